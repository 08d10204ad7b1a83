"""One MAP connection, as the protocol sees it: its states, what may be said in each, and how what is said is read
and answered. It does no I/O and knows no room; whoever carries bytes drives it, over WebSocket or as lines:

    session = Session(id)
    heard = session.hear(value)            # one JSON value that came in: a frame, or a line
    if isinstance(heard, dict): reply      # known already, such as the refusal of an unknown method
    elif isinstance(heard, Answer): ...    # it answers something we asked; `heard.id` says what
    elif heard is not None:                # a Step: carry out `heard.method` with `heard.said`
        reply = heard.answer(result)       # or heard.refuse(error); {} where nobody waits for it

A method of a session (`method.of_session`) is run with the one who drives it (`Host`), in place of a room; all
others with a room that acts as `session.speaker(step)`, the agent that the step is said for. What the host does to
the session it tells it: `session.step("challenge")`, `"admit"`, `"close"`, `session.take(agent)`, `drop(agent)`.
The table below says which step leads where; what is not in it is refused.

    connected       the connection is open, and nothing was said
    authenticating  it has said who it is, and has yet to prove it
    joined          it is let in: it may look, listen, and register agents
    registered      it has agents: their mail is handed to it
    closed          nothing more is heard

Whoever is a client writes `request(id, method, **params)` and `rpc.notification(method, params)`, and reads what
comes back with `Session.hear`, too: answers are `Answer`s.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from ..errors import IllegalMove, NotAllowed, PostroomError, QuotaFull
from ..formats.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR
from ..formats.federation import PREFIX as FEDERATION
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
)
from ..model.values import read_json
from ..server import protocol
from ..server.protocol import PREFIX
from ..server.table import taken
from .table import for_map

if TYPE_CHECKING:
    from ..policy.limits import Limits
    from ..server.table import Method


MOST_AGENTS = 1000  # of one connection


class State(StrEnum):
    CONNECTED = "connected"
    AUTHENTICATING = "authenticating"
    JOINED = "joined"
    REGISTERED = "registered"
    CLOSED = "closed"


# (state, step) -> next state. What is not here is refused.
STEPS: dict[tuple[State, str], State] = {
    (State.CONNECTED, "challenge"): State.AUTHENTICATING,
    (State.CONNECTED, "admit"): State.JOINED,
    (State.AUTHENTICATING, "challenge"): State.AUTHENTICATING,
    (State.AUTHENTICATING, "admit"): State.JOINED,
    (State.JOINED, "register"): State.REGISTERED,
    (State.JOINED, "unregister"): State.JOINED,
    (State.REGISTERED, "register"): State.REGISTERED,
    (State.REGISTERED, "unregister"): State.JOINED,  # the last of its agents
    **{(state, "close"): State.CLOSED for state in State},
}
# What may be said before a connection is let in. Everything else needs that.
BEFORE: dict[State, frozenset[str]] = {
    State.CONNECTED: frozenset({CONNECT, AUTHENTICATE, DISCONNECT, MEET}),
    State.AUTHENTICATING: frozenset({CONNECT, AUTHENTICATE, DISCONNECT, MEET}),
}
# What may be said without waiting for an answer; whatever else is said so is not heard.
NOTIFIED = frozenset({SUBSCRIBE_ACK, MESSAGE_ACK, SEND, DISCONNECT, ANNOUNCE, PART})


class Host(Protocol):
    """Who carries out what is said of the connection itself."""

    def connect(self, params: dict[str, Any]) -> Any: ...
    def authenticate(self, params: dict[str, Any]) -> Any: ...
    def refresh(self, params: dict[str, Any]) -> Any: ...
    def disconnect(self, params: dict[str, Any]) -> Any: ...
    def subscribe(self, params: dict[str, Any]) -> Any: ...
    def unsubscribe(self, params: dict[str, Any]) -> Any: ...
    def subscribe_ack(self, params: dict[str, Any]) -> Any: ...
    def message_ack(self, params: dict[str, Any]) -> Any: ...
    def federation_connect(self, params: dict[str, Any]) -> Any: ...
    def federation_disconnect(self, params: dict[str, Any]) -> Any: ...


class Answer(Struct, frozen=True):
    """A reply to something that this side asked."""

    id: Any
    result: Any = None
    error: dict[str, Any] | None = None


class Step(protocol.Step, frozen=True):
    """One call that was understood."""

    def answer(self, result: Any) -> dict[str, Any]:
        return {} if self.call.is_notification else self.call.answer(result)

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        return {} if self.call.is_notification else refusal(self.call, error)


class Later(protocol.Request, frozen=True):
    """A value that came while it was not settled who speaks: heard when that is, and overtaken by nothing."""

    value: Any = None

    @property
    def is_alone(self) -> bool:
        return True

    @property
    def is_large(self) -> bool:
        """Nobody knows yet."""
        return True


class Session:
    """One connection."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.state = State.CONNECTED
        self.agents: list[str] = []  # that it registered, the first first
        self.refused = ""  # why it was not let in, the last time it showed something

    # -- what happens to it

    def step(self, step: str) -> None:
        after = STEPS.get((self.state, step))
        if after is None:
            raise IllegalMove(f"a session that is {self.state} cannot {step}", field="session")
        self.state = after

    def take(self, agent: str) -> None:
        """It has registered this agent."""
        if agent not in self.agents:
            if len(self.agents) >= MOST_AGENTS:
                raise QuotaFull(f"{MOST_AGENTS:,} agents on one connection are enough", hint="open another")
            self.agents.append(agent)
        self.step("register")

    def drop(self, agent: str) -> None:
        """It has it no more."""
        if agent in self.agents:
            self.agents.remove(agent)
        if not self.agents and self.state is State.REGISTERED:
            self.step("unregister")

    @property
    def is_in(self) -> bool:
        return self.state in {State.JOINED, State.REGISTERED}

    # -- what it says

    def hear(self, value: Any) -> Step | Answer | dict[str, Any] | None:
        """What one value asks for; None: nothing, and no answer is owed."""
        if self.state is State.CLOSED:
            return None
        if isinstance(value, list):
            return failure(None, INVALID_REQUEST, "MAP has no batches: one message in each frame")
        if is_answer(value):
            return Answer(value.get("id"), value.get("result"), _object(value.get("error")))
        call = protocol.read_call(value)
        if isinstance(call, dict):
            wrong = call["error"]
            return failure(call["id"], wrong["code"], wrong["message"])
        try:
            return self._understood(call)
        except PostroomError as refused:
            return None if call.is_notification else refusal(call, refused, is_in=self.is_in)

    def _understood(self, call: protocol.Call) -> Step | None:
        method = for_map(call.method)
        if call.is_notification and method.name not in NOTIFIED:
            return None
        allowed = BEFORE.get(self.state)
        if allowed is not None and method.name not in allowed:
            text = f"Authentication required{f': {self.refused}' if self.refused else ''}"
            raise NotAllowed(text, field="auth", hint="map/connect, with auth, comes first")
        if method.name == CONNECT and self.is_in:
            raise IllegalMove("this connection is connected already", field="session")
        return Step(call, method, self._said(method, taken(method, call.params)))

    def _said(self, method: Method, params: dict[str, Any]) -> dict[str, Any]:
        """With the agent of this connection, where none is named."""
        name = method.whose
        is_new = method.name in {REGISTER, SPAWN}  # whose id is yet to be found
        if name is None or name in params or not self.agents or is_new or method.name.startswith(PREFIX):
            return params
        return {**params, name: self.agents[0]}

    def speaker(self, step: Step) -> str | None:
        """For which agent a step is said: the one it names if it is this connection's, else the first. None: for
        whoever opened the connection.
        """
        named = step.params.get(step.method.whose) if step.method.whose is not None else None
        if named is not None:
            return named if named in self.agents else None
        return self.agents[0] if self.agents else None


def read_text(raw: bytes | str, limits: Limits) -> Any:
    """The value of a frame or a line; raises Invalid."""
    largest = limits.max_message_bytes + protocol.ROOM_FOR_MORE
    return read_json(raw, "frame", depth=limits.max_depth + protocol.DEEPER, largest=largest)


def unreadable(why: str) -> dict[str, Any]:
    """The reply to what is no JSON."""
    return failure(None, PARSE_ERROR, why)


def unsound(raw: bytes | str, why: PostroomError, limits: Limits) -> dict[str, Any]:
    """The reply to a text that was refused. One that is a call nonetheless, and holds what no letter may, such as
    half a character, is answered as a call: who waits for it by its id must not wait in vain.
    """
    id = _id_in(raw) if len(raw) <= limits.max_message_bytes + protocol.ROOM_FOR_MORE else None
    return unreadable(str(why)) if id is None else failure(id, INVALID_PARAMS, str(why))


def _id_in(raw: bytes | str) -> str | int | None:
    import json  # noqa: PLC0415 - few say what they may not

    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    call = protocol.read_call(value)
    id = value.get("id") if isinstance(call, protocol.Call) else None
    return id if isinstance(id, int) or (isinstance(id, str) and id.isprintable()) else None


def refusal(call: protocol.Call | protocol.Action, error: PostroomError, *, is_in: bool = True) -> dict[str, Any]:
    """What systems say to each other is refused by numbers of its own, once they are let in."""
    if is_in and call.method.startswith(FEDERATION):
        return {"jsonrpc": "2.0", "id": call.id, "error": federation_error(error)}
    of_mail = call.method.startswith(PREFIX)
    return {"jsonrpc": "2.0", "id": call.id, "error": map_error(error, of_mail=of_mail)}


def is_answer(value: Any) -> bool:
    """Does it answer something that this side asked?"""
    return isinstance(value, dict) and "method" not in value and ("result" in value or "error" in value)


def _object(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None
