"""Lines of JSON out of a stream of bytes. Characters may be split anywhere. A line that is too long is dropped;
what follows it is read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..core.authorize import authorize
from ..errors import PostroomError, TooLarge
from ..formats.errors import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    PARSE_ERROR,
    NoSuchMethod,
    mail_problem,
    rpc_error,
    socket_error,
)
from ..model.codec import to_plain
from ..model.values import read_json
from . import inbox_actions, mail
from . import verbs as server_verbs
from .table import Method, taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..formats.errors import Problem
    from ..policy.limits import Limits
    from ..room import Room


class Lines:
    """What came in, line by line. Never holds more than one line and one packet."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._skipping = False  # inside a line that is too long

    def feed(self, packet: bytes) -> list[bytes | None]:
        """The lines that are whole now; None stands for one that was too long."""
        if not self._rest and not self._skipping and packet.find(b"\n") == len(packet) - 1 <= self._longest:
            return [packet[:-1]] if packet.strip() else []  # one line and nothing else, as mostly
        found: list[bytes | None] = []
        *whole, rest = packet.split(b"\n")
        if whole:
            first, self._rest = bytes(self._rest) + whole[0], bytearray()
            whole[0] = b"" if self._skipping else first
            self._skipping = False
            found += [line if len(line) <= self._longest else None for line in whole if line]
        if not self._skipping:
            self._rest += rest
            if len(self._rest) > self._longest:
                self._rest.clear()
                self._skipping = True
                found.append(None)
        return [line for line in found if line is None or line.strip()]

    def last(self) -> list[bytes | None]:
        """The end of the stream: a line without its end is a line too."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest.strip() and not self._skipping else []


# JSON-RPC 2.0: from a value that came in to the calls in it, and from what became of them to the reply.

MOST = 100  # calls in one batch


class Call(Struct, frozen=True):
    """One call. Without an id it is a notification, and nobody waits for an answer."""

    method: str
    params: dict[str, Any]
    id: str | int | float | None = None
    is_notification: bool = False

    def answer(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "error": rpc_error(error)}


def is_rpc(value: Any) -> bool:
    """Is this JSON-RPC, where another dialect is spoken too?"""
    return isinstance(value, list) or (isinstance(value, dict) and "jsonrpc" in value)


def read_batch(value: list[Any]) -> list[Call | dict[str, Any]]:
    """The calls of a batch; an error in place of each that is none. One that is empty or too long is one error."""
    if not value:
        return [failure(INVALID_REQUEST, "an empty batch asks nothing")]
    if len(value) > MOST:
        return [failure(INVALID_REQUEST, f"a batch of {len(value)} calls; {MOST} at most")]
    return [read_call(one) for one in value]


def read_call(value: Any) -> Call | dict[str, Any]:
    """The call, or what is wrong with it."""
    if not isinstance(value, dict):
        return failure(INVALID_REQUEST, "a call is an object")
    id = value.get("id")
    if not isinstance(id, str | int | float | None) or isinstance(id, bool):
        return failure(INVALID_REQUEST, "id must be text, a number or null")
    if value.get("jsonrpc") != "2.0":
        return failure(INVALID_REQUEST, 'jsonrpc must be "2.0"', id)
    method, params = value.get("method"), value.get("params")
    if not isinstance(method, str):
        return failure(INVALID_REQUEST, "method must be text", id)
    if not isinstance(params, dict | None):  # null says nothing, as in its fields
        return failure(INVALID_PARAMS, "params are given by name, in an object", id)
    return Call(method, params or {}, id, is_notification="id" not in value)


def unreadable(why: str) -> dict[str, Any]:
    return failure(PARSE_ERROR, why)


def failure(code: int, why: str, id: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}


def failed(id: Any, problem: Problem) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": to_plain(problem)}


def notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


# All methods by name.
#
# Our own verbs are called by their bare name inside the house and on the socket, and as `mail/<verb>` in JSON-
# RPC.
# The actions of agent-inbox are the socket's, and come first there; `mail/*` of its conversations are JSON-RPC's.

PREFIX = "mail/"
VERBS: dict[str, Method] = {
    row.name: row
    for row in (
        *server_verbs.MAIL_ROWS,
        *server_verbs.WORK_ROWS,
        *server_verbs.ALERT_ROWS,
        *server_verbs.ROOM_ROWS,
    )
}
ACTIONS: dict[str, Method] = {row.name: row for row in inbox_actions.ROWS}
MAIL: dict[str, Method] = {row.name: row for row in mail.MAIL}
SESSION: dict[str, Method] = {row.name: row for row in server_verbs.SESSION_ROWS}  # the caller's connection itself
ALIASES = {"mail/inbox": "check"}  # what agent-inbox's README calls it


def named(name: str) -> Method:
    """Inside the house: a verb of ours, or what agent-inbox calls one."""
    found = VERBS.get(name) or ACTIONS.get(name) or MAIL.get(name)
    if found is None:
        raise NoSuchMethod(f"Method not found: {name}", field="method")
    return found


def for_action(name: str) -> Method:
    """On the socket."""
    found = ACTIONS.get(name) or VERBS.get(name) or SESSION.get(name)
    if found is None:
        known = (*ACTIONS, *VERBS, *SESSION)
        raise NoSuchMethod(f"Unknown action: {name}", field="action", hint=_meant(name, known))
    return found


def for_rpc(name: str) -> Method:
    """In JSON-RPC."""
    bare = ALIASES.get(name) or name.removeprefix(PREFIX)
    found = MAIL.get(name) or SESSION.get(name) or (VERBS.get(bare) if bare != name else None)
    if found is None:
        known = (*MAIL, *SESSION, *(PREFIX + verb for verb in VERBS))
        raise NoSuchMethod(f"Method not found: {name}", field="method", hint=_meant(name, known))
    return found


def _meant(name: str, known: tuple[str, ...]) -> str | None:
    """What was probably meant. What all names begin with makes none alike."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    verbs = {one.rpartition("/")[2]: one for one in reversed(known)}  # the first of a name counts
    found = get_close_matches(name[:100].rpartition("/")[2], verbs, 1, 0.7)
    return f"did you mean {verbs[found[0]]}?" if found else None


def call(room: Room, name: str, params: Mapping[str, Any]) -> Any:
    """Carry out a method. One that waits only looks."""
    method = named(name)
    value = taken(method, params)
    let_in(room, method, value)
    return method.run(room, value)


def speaker_in(method: Method, params: Mapping[str, Any]) -> str | None:
    """For whom a caller speaks that nothing but its words tells of; None: for nobody. Never more than one: the
    call is carried out as this agent, and so what else it would touch is refused.
    """
    if method.speaker is not None:
        return method.speaker(params)
    return None if method.whose is None else params.get(method.whose)


def let_in(room: Room, method: Method, params: Mapping[str, Any]) -> None:
    """May this caller do this, whatever else is wrong with it? The verbs ask again, for what they touch."""
    principal, whose = room._principal, method.whose
    named = params.get(whose) if whose is not None else None
    authorize(principal, method.action, named or principal.agent)


# One caller over time: who it is, and in which dialect each line of it is answered.
#
# A line is an action of agent-inbox, a call in JSON-RPC, or a batch of those.

ROOM_FOR_MORE = 64 * 1024  # bytes that a line may be longer than the letter in it
DEEPER = 8  # levels that stand around a letter


class Action(Struct, frozen=True):
    """A line in agent-inbox's dialect."""

    method: str
    params: dict[str, Any]
    id: Any = None
    is_notification: bool = False

    def answer(self, result: Any) -> dict[str, Any]:
        return {"ok": True, **result} if self.id is None else {"ok": True, **result, "id": self.id}

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        reply = socket_error(error)
        return reply if self.id is None else reply | {"id": self.id}


class Step(Struct, frozen=True):
    """One call that was understood: what is to be done, and how it is answered."""

    call: Action | Call
    method: Method
    params: dict[str, Any]

    def answer(self, result: Any) -> dict[str, Any]:
        return self.call.answer(result)

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        return refusal(self.call, self.method, error)


class Request(Struct, frozen=True):
    """What one line asks for: steps, and replies that are known already in place of some."""

    steps: list[Step | dict[str, Any]]
    is_batch: bool = False

    @property
    def is_long(self) -> bool:
        """May it take long, or change who is calling? Then nothing of the same caller overtakes it."""
        for step in self.steps:  # noqa: SIM110 - written out, here and below: every line is asked
            if isinstance(step, Step) and step.method.is_long(step.params):
                return True
        return False

    @property
    def is_alone(self) -> bool:
        """Must nothing of the same caller be under way beside it? A batch is carried out call by call."""
        return self.is_batch or self.is_long

    @property
    def is_large(self) -> bool:
        """May it be told of many things, as soon as they are found?"""
        for step in self.steps:
            if isinstance(step, Step) and step.method.is_slow(step.params):
                break
        else:
            return False
        return not any(isinstance(step, Step) and step.method.patience(step.params) > 0 for step in self.steps)


def read_line(line: bytes | None, limits: Limits) -> Request | dict[str, Any]:
    """What a line asks for, or the reply that says why it asks for nothing."""
    if line is None:
        most = limits.max_message_bytes + ROOM_FOR_MORE
        return socket_error(TooLarge(f"a line of more than {most} bytes", field="line"))
    try:
        value = read_json(
            line, "line", depth=limits.max_depth + DEEPER, largest=limits.max_message_bytes + ROOM_FOR_MORE
        )
    except PostroomError as broken:
        return socket_error(broken) | {"error": "Invalid JSON", "hint": str(broken)}
    return read_value(value)


def read_value(value: Any) -> Request:
    """What a value asks for."""
    if isinstance(value, list):
        calls = read_batch(value)
        return Request([understood(call) for call in calls], is_batch=0 < len(value) <= MOST)
    if is_rpc(value):
        return Request([understood(read_call(value))])
    return Request([understood(_read_action(value))])


def refusal(call: Action | Call, method: Method | None, error: PostroomError) -> dict[str, Any]:
    """The reply to a call that is refused. Errors about conversations have MAP's numbers."""
    special = mail_problem(error) if method is not None and method.name.startswith(PREFIX) else None
    return call.refuse(error) if special is None else failed(call.id, special)


def understood(call: Action | Call | dict[str, Any]) -> Step | dict[str, Any]:
    """The step that a call asks for, or its refusal. A notification that is refused is answered by nothing: {}."""
    if isinstance(call, dict):
        return call
    method = None
    try:
        method = for_action(call.method) if isinstance(call, Action) else for_rpc(call.method)
        return Step(call, method, taken(method, call.params))
    except PostroomError as wrong:
        return {} if call.is_notification else refusal(call, method, wrong)


def _read_action(value: Any) -> Action | dict[str, Any]:
    if not isinstance(value, dict):
        return socket_error(NoSuchMethod("Unknown action: undefined", hint="a line is an object with an `action`"))
    params = value.copy()  # without what says how a line is answered, and is no parameter
    name, id = params.pop("action", None), params.pop("id", None)
    if not isinstance(name, str):
        result = NoSuchMethod("Unknown action: undefined", hint="say `action`, or `jsonrpc` and `method`")
        return Action("", {}, id).refuse(result)
    return Action(name, params, id)
