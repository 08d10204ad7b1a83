"""The state of one MAP connection as the protocol sees it.

It says what may be called in each state, and how it is answered.

It does no I/O and knows no room. A transport drives it, over WebSocket or in lines:

    session = Session(id)
    received = session.receive(value)          # one JSON value that came in
    if isinstance(received, dict): reply       # known already, such as the refusal of an unknown method
    elif isinstance(received, Answer): ...     # the answer to a call of ours; `received.id` names the call
    elif received is not None:                 # a Step: carry out `received.request`
        reply = received.answer(result)        # or received.refuse(error); {} where no reply is due

A verb about the session itself (a `SessionVerb`) is carried out by the connection; all others for
`session.speaker(step)`, the agent that makes the call. The connection reports what it
does: `session.step("challenge")`, `"admit"`, `"close"`, `session.take(agent)`, `drop(agent)`. The table STEPS says
which step leads where; whatever is not in it is refused.

    connected       the connection is open, and nothing was received
    authenticating  it has called `map/connect`, and has yet to prove who it is
    joined          it is admitted: it may read, subscribe, and register agents
    registered      it has agents: their mail is pushed to it
    closed          nothing more is read

A client writes `request(id, method, **params)` and `protocol.notification(method, params)`, and reads what comes
back with `Session.receive`, too: answers are `Answer`s.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..core.verb import from_params, parameters
from ..errors import IllegalMove, NotAllowed, PostroomError, QuotaFull
from ..federation.peer_calls import FEDERATION
from ..formats.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, NoSuchMethod
from ..formats.federation import PREFIX as FEDERATION_PREFIX
from ..formats.federation import federation_error
from ..formats.map import (
    ANNOUNCE,
    AUTHENTICATE,
    CONNECT,
    DISCONNECT,
    MEET,
    MESSAGE_ACK,
    PART,
    REGISTER,
    SEND,
    SPAWN,
    SUBSCRIBE_ACK,
    failure,
    map_error,
    spellings,
)
from ..model.values import read_json
from ..server import protocol
from ..server.mail import MAIL
from ..server.protocol import PREFIX
from ..server.requests import SESSION
from . import agents, methods, routing, scopes  # noqa: F401 - they declare their methods

if TYPE_CHECKING:
    from ..core.verb import Verb
    from ..policy.limits import Limits


SUBSCRIBE, UNSUBSCRIBE = "map/subscribe", "map/unsubscribe"  # which every connection of the server has
# All methods by name. Checks, docs and the matrix of rights are made of them.
MAP: dict[str, type[Verb]] = dict(
    sorted((methods.METHODS | FEDERATION | {name: SESSION[name] for name in (SUBSCRIBE, UNSUBSCRIBE)}).items())
)
_SPELT: dict[str, type[Verb]] = {spelling: cls for name, cls in MAP.items() for spelling in spellings(name)}
MOST_AGENTS = 1000  # of one connection


class SessionState(StrEnum):
    CONNECTED = "connected"
    AUTHENTICATING = "authenticating"
    JOINED = "joined"
    REGISTERED = "registered"
    CLOSED = "closed"


# (state, step) -> next state. What is not here is refused.
STEPS: dict[tuple[SessionState, str], SessionState] = {
    (SessionState.CONNECTED, "challenge"): SessionState.AUTHENTICATING,
    (SessionState.CONNECTED, "admit"): SessionState.JOINED,
    (SessionState.AUTHENTICATING, "challenge"): SessionState.AUTHENTICATING,
    (SessionState.AUTHENTICATING, "admit"): SessionState.JOINED,
    (SessionState.JOINED, "register"): SessionState.REGISTERED,
    (SessionState.JOINED, "unregister"): SessionState.JOINED,
    (SessionState.REGISTERED, "register"): SessionState.REGISTERED,
    (SessionState.REGISTERED, "unregister"): SessionState.JOINED,  # the last of its agents
    **{(state, "close"): SessionState.CLOSED for state in SessionState},
}
# What may be called before a connection is admitted.
BEFORE: dict[SessionState, frozenset[str]] = {
    SessionState.CONNECTED: frozenset({CONNECT, AUTHENTICATE, DISCONNECT, MEET}),
    SessionState.AUTHENTICATING: frozenset({CONNECT, AUTHENTICATE, DISCONNECT, MEET}),
}
# What may be called as a notification, without an answer; all other notifications are ignored.
NOTIFIED = frozenset({SUBSCRIBE_ACK, MESSAGE_ACK, SEND, DISCONNECT, ANNOUNCE, PART})


class Response(Struct, frozen=True):
    """The answer to a call that this side made."""

    id: Any
    result: Any = None
    error: dict[str, Any] | None = None


class MapCall(protocol.Call):
    """One call whose method and parameters were checked."""

    def answer(self, result: Any) -> Any:
        return {} if self.is_notification else super().answer(result)

    def refuse(self, error: PostroomError) -> Any:
        return {} if self.is_notification else refusal(self, error)


class DeferredCall(protocol.Call):
    """A value that was read while a call that changes the session was under way.

    It is read again after that call, and nothing overtakes it.
    """

    value: Any = None

    @property
    def is_alone(self) -> bool:
        return True


class MapSession:
    """The protocol state of one connection."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.state = SessionState.CONNECTED
        self.agents: list[str] = []  # in the order of registration
        self.refused = ""  # why its last credentials were refused

    # -- state

    def step(self, step: str) -> None:
        after = STEPS.get((self.state, step))
        if after is None:
            raise IllegalMove(f"a session that is {self.state} cannot {step}", field="session")
        self.state = after

    def take(self, agent: str) -> None:
        """Add an agent that it has registered."""
        if agent not in self.agents:
            if len(self.agents) >= MOST_AGENTS:
                raise QuotaFull(
                    f"one connection may hold at most {MOST_AGENTS:,} agents", hint="open another connection"
                )
            self.agents.append(agent)
        self.step("register")

    def drop(self, agent: str) -> None:
        """Remove an agent."""
        if agent in self.agents:
            self.agents.remove(agent)
        if not self.agents and self.state is SessionState.REGISTERED:
            self.step("unregister")

    @property
    def is_in(self) -> bool:
        return self.state in {SessionState.JOINED, SessionState.REGISTERED}

    # -- messages

    def receive(self, value: Any) -> MapCall | Response | dict[str, Any] | None:
        """Return what one message asks for; None: nothing, and no answer is due."""
        if self.state is SessionState.CLOSED:
            return None
        # JSON-RPC has batches; MAP excludes them, and an SDK that sent one would wait for a list.
        if isinstance(value, list):
            return failure(None, INVALID_REQUEST, "MAP has no batches: one message in each frame")
        if is_answer(value):
            error = value.get("error")
            return Response(value.get("id"), value.get("result"), error if isinstance(error, dict) else None)
        call = protocol.read_call(value, MapCall)
        if isinstance(call, dict):
            wrong = call["error"]
            return failure(call["id"], wrong["code"], wrong["message"])
        try:
            return self._step(call)
        except PostroomError as refused:
            return None if call.is_notification else refusal(call, refused, is_in=self.is_in)

    def _step(self, call: MapCall) -> MapCall | None:
        cls = for_map(call.method)
        name = cls.declaration().name
        # Nobody would get the refusal or the result.
        if call.is_notification and name not in NOTIFIED:
            return None
        allowed = BEFORE.get(self.state)
        if allowed is not None and name not in allowed:
            raise NotAllowed(
                f"Authentication required{f': {self.refused}' if self.refused else ''}",
                field="auth",
                hint="map/connect, with auth, comes first",
            )
        if name == CONNECT and self.is_in:
            raise IllegalMove("this connection is connected already", field="session")
        call.request = self._with_agent(name, from_params(cls, call.params))
        return call

    def _with_agent(self, name: str, request: Verb) -> Verb:
        """Return the request with the first agent of this connection, where it names none."""
        is_new = name in {REGISTER, SPAWN}  # its id is not known yet
        if request.whose is None or request.named() or not self.agents or is_new or name.startswith(PREFIX):
            return request
        name_agent(request, self.agents[0])
        return request

    def speaker(self, step: MapCall) -> str | None:
        """Return the agent of this connection that makes a call: the one it names, else the first.

        None: it names an agent of another connection, or there is none.
        """
        named = step.request.named()
        if named is not None:
            return named if named in self.agents else None
        return self.agents[0] if self.agents else None


def for_map(name: str) -> type[Verb]:
    """Return the verb of this name, in either spelling; `mail/*` of conversations are methods of MAP, too."""
    found = _SPELT.get(name) or MAIL.get(name)
    if found is None:
        raise NoSuchMethod(f"Method not found: {name[:200]}", field="method")
    return found


def name_agent(request: Verb, agent: str) -> None:
    """Make a request about this agent."""
    assert request.whose is not None  # noqa: S101 - only for requests about an agent
    setattr(request, parameters(type(request))[request.whose].field, agent)


def read_text(raw: bytes | str, limits: Limits) -> Any:
    """Return the JSON value of a frame or a line; raise Invalid where it is none."""
    largest = protocol.largest_frame(limits)
    return read_json(raw, "frame", depth=limits.max_depth + protocol.EXTRA_DEPTH, largest=largest)


def unreadable(why: str) -> dict[str, Any]:
    """Return the reply to a text that is no JSON."""
    return failure(None, PARSE_ERROR, why)


def unsound(raw: bytes | str, why: PostroomError, limits: Limits) -> dict[str, Any]:
    """Return the reply to a text that was refused.

    A text that is a call nonetheless, but holds what no letter may, such as half a character, is answered with the
    call's id: otherwise its caller would wait for ever.
    """
    # The size is checked before the second parse, too (threat 7).
    id = _id_in(raw) if len(raw) <= protocol.largest_frame(limits) else None
    return unreadable(str(why)) if id is None else failure(id, INVALID_PARAMS, str(why))


def _id_in(raw: bytes | str) -> str | int | None:
    try:
        # Not our own reader, which has refused this text: here only the id counts, whatever else is in it.
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    call = protocol.read_call(value)
    id = value.get("id") if isinstance(call, protocol.Call) else None
    # What is sent back to the client is a number, or text without control characters.
    return id if isinstance(id, int) or (isinstance(id, str) and id.isprintable()) else None


def refusal(call: protocol.Call, error: PostroomError, *, is_in: bool = True) -> dict[str, Any]:
    """Return the error reply to a call; calls of federation have error numbers of their own, once admitted."""
    if is_in and call.method.startswith(FEDERATION_PREFIX):
        return {"jsonrpc": "2.0", "id": call.id, "error": federation_error(error)}
    of_mail = call.method.startswith(PREFIX)
    return {"jsonrpc": "2.0", "id": call.id, "error": map_error(error, of_mail=of_mail)}


def is_answer(value: Any) -> bool:
    """Return whether it is the answer to a call of ours."""
    return isinstance(value, dict) and "method" not in value and ("result" in value or "error" in value)
