"""The message formats of the server: lines of JSON, JSON-RPC 2.0, and the actions of agent-inbox.

    bytes → LineSplitter → read_line → Call → (a caller carries it out) → Call.answer → reply

A line is an action of agent-inbox (`{"action": ...}`), a call in JSON-RPC, or a batch of those. Verbs have their
bare name inside the server and on the socket, and `mail/<verb>` in JSON-RPC. On the socket the actions of
agent-inbox come first; the `mail/*` methods of its conversations belong to JSON-RPC. No I/O happens here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct

from ..core.verb import VERBS, Verb, from_params, load_verbs, parameters, set_names
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
from ..model.values import read_json
from .inbox_actions import ACTIONS
from .mail import MAIL
from .requests import SESSION, Schedule, schedule_of

if TYPE_CHECKING:
    from ..policy.limits import Limits


class LineSplitter:
    """Splits a stream of bytes into lines, and never holds more than one line and one packet. A character may be
    split between packets. A line that is too long is dropped; the lines after it are read again.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()
        self._is_skipping = False  # inside a line that is too long

    def feed(self, packet: bytes) -> list[bytes | None]:
        """Return the lines that are complete now, None in place of one that was too long."""
        if not self._rest and not self._is_skipping and packet.find(b"\n") == len(packet) - 1 <= self._longest:
            return [packet[:-1]] if packet.strip() else []  # one line and nothing else: the usual case
        found: list[bytes | None] = []
        *whole, rest = packet.split(b"\n")
        if whole:
            first, self._rest = bytes(self._rest) + whole[0], bytearray()
            whole[0] = b"" if self._is_skipping else first
            self._is_skipping = False
            found += [line if len(line) <= self._longest else None for line in whole if line]
        if not self._is_skipping:
            self._rest += rest
            if len(self._rest) > self._longest:
                self._rest.clear()
                self._is_skipping = True
                found.append(None)
        return [line for line in found if line is None or line.strip()]

    def last(self) -> list[bytes | None]:
        """Return the last line at the end of the stream, though it has no newline."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest.strip() and not self._is_skipping else []


# -- JSON-RPC 2.0

MAX_BATCH = 100  # calls in one batch


class Call(Struct):
    """One call in JSON-RPC, and how it is answered. Without an id it is a notification, and gets no answer."""

    method: str
    params: dict[str, Any]
    id: Any = None
    is_notification: bool = False
    request: Verb = cast("Verb", None)  # set once method and parameters are checked
    _schedule: Schedule | None = None

    @property
    def name(self) -> str:
        """The name of its verb inside the server."""
        return self.request.declaration().name

    @property
    def schedule(self) -> Schedule:
        """How it is carried out; found once."""
        if self._schedule is None:
            self._schedule = schedule_of(self.request)
        return self._schedule

    @property
    def is_alone(self) -> bool:
        """Whether no other request of the caller may run meanwhile: it may take long, change who calls, or have a
        large reply.
        """
        # No set: to hash a member of an enumeration takes longer than all comparisons.
        return self.schedule not in (Schedule.WRITE, Schedule.READ) or self.request.declaration().many

    def answer(self, result: Any) -> Any:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def refuse(self, error: PostroomError) -> Any:
        """Return the reply to a call that is refused. Errors about conversations have MAP's codes."""
        problem = mail_problem(error) if self.method in MAIL else None
        return {"jsonrpc": "2.0", "id": self.id, "error": problem or rpc_error(error)}


C = TypeVar("C", bound=Call)
Batch = list[Call | dict[str, Any]]  # calls, and the error reply in place of each that is invalid
Request = Call | Batch | dict[str, Any]  # of one line or body; a dictionary is its reply, {} that there is none


def is_rpc(value: Any) -> bool:
    """Return whether this is JSON-RPC and not an action of agent-inbox."""
    return isinstance(value, list) or (isinstance(value, dict) and "jsonrpc" in value)


def read_call(value: Any, kind: type[C] = Call) -> C | dict[str, Any]:  # type: ignore[assignment] # python/mypy#3737
    """Return the call in a value, its verb not looked up yet; or the reply that says what is wrong with it."""
    if not isinstance(value, dict):
        return failure(INVALID_REQUEST, "a call is an object")
    id = value.get("id")
    if not isinstance(id, str | int | float | None) or isinstance(id, bool):
        return failure(INVALID_REQUEST, "id must be text, a number or null")
    if value.get("jsonrpc") != "2.0":
        why = 'jsonrpc must be "2.0"; with plain parameters, call POST /v1/VERB'
        return failure(INVALID_REQUEST, why, id)
    method, params = value.get("method"), value.get("params")
    if not isinstance(method, str):
        return failure(INVALID_REQUEST, "method must be text", id)
    if not isinstance(params, dict | None):  # null means "not given", as in its fields
        return failure(INVALID_PARAMS, "params are given by name, in an object", id)
    return kind(method, params or {}, id, is_notification="id" not in value)


def unreadable(why: str) -> dict[str, Any]:
    return failure(PARSE_ERROR, why)


def failure(code: int, why: str, id: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}


def notification(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


# -- all verbs by name

load_verbs()
PREFIX = "mail/"
ALIASES = {"mail/inbox": "check"}  # what agent-inbox's README calls it
ADDED: dict[str, type[Verb]] = {}  # by rooms above this one, each with a prefix of its own, such as `tools/`


def wire_verbs() -> dict[str, type[Verb]]:
    """Return our own verbs by name, without those that make sense only in the caller's process."""
    return {name: cls for name, cls in VERBS.items() if not cls.declaration().local}


def own_verb(name: str) -> type[Verb] | None:
    """Return one of our own verbs by its name."""
    cls = VERBS.get(name)
    return None if cls is None or cls.declaration().local else cls


def find_verb(name: str) -> type[Verb]:
    """Return a verb by its name inside the server: one of ours, else an action of agent-inbox."""
    found = own_verb(name) or ACTIONS.get(name) or MAIL.get(name) or ADDED.get(name)
    if found is None:
        raise NoSuchMethod(f"Method not found: {name}", field="method")
    return found


def find_action(name: str) -> type[Verb]:
    """Return a verb by its name on the socket."""
    found = ACTIONS.get(name) or own_verb(name) or SESSION.get(name)
    if found is None:
        known = (*ACTIONS, *wire_verbs(), *SESSION)
        raise NoSuchMethod(f"Unknown action: {name}", field="action", hint=similar(name, known))
    return found


def find_rpc_method(name: str) -> type[Verb]:
    """Return a verb by its name in JSON-RPC."""
    bare = ALIASES.get(name) or name.removeprefix(PREFIX)
    found = MAIL.get(name) or SESSION.get(name) or ADDED.get(name) or (own_verb(bare) if bare != name else None)
    if found is None:
        known = (*MAIL, *SESSION, *(PREFIX + verb for verb in wire_verbs()))
        raise NoSuchMethod(f"Method not found: {name}", field="method", hint=similar(name, known))
    return found


def similar(name: str, known: tuple[str, ...]) -> str | None:
    """Return a hint with the most similar name. Prefixes such as `mail/` are not compared."""
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    verbs = {one.rpartition("/")[2]: one for one in reversed(known)}  # of two equal names the first wins
    found = get_close_matches(name[:100].rpartition("/")[2], verbs, 1, 0.7)
    return f"did you mean {verbs[found[0]]}?" if found else None


# -- requests

EXTRA_BYTES = 64 * 1024  # that a line may be longer than the letter in it
EXTRA_DEPTH = 8  # levels of JSON around a letter


def largest_frame(limits: Limits) -> int:
    """Return how many bytes one line, body or frame may have."""
    return limits.max_message_bytes + EXTRA_BYTES


class Action(Call):
    """One call in the protocol of agent-inbox."""

    def answer(self, result: Any) -> Any:
        return {"ok": True, **result} if self.id is None else {"ok": True, **result, "id": self.id}

    def refuse(self, error: PostroomError) -> Any:
        reply = socket_error(error)
        return reply if self.id is None else reply | {"id": self.id}


def read_line(line: bytes | None, limits: Limits) -> Request:
    """Return the request in a line; of one that cannot be read, the reply."""
    most = largest_frame(limits)
    if line is None:
        return socket_error(TooLarge(f"a line of more than {most} bytes", field="line"))
    try:
        value = read_json(line, "line", depth=limits.max_depth + EXTRA_DEPTH, largest=most)
    except PostroomError as broken:
        return socket_error(broken) | {"error": "Invalid JSON", "hint": str(broken)}
    return read_rpc(value) if is_rpc(value) else _read_action(value)


def read_rpc(value: Any) -> Request:
    """Return the calls in a parsed value. An empty batch or one that is too long is one error."""
    if not isinstance(value, list):
        return _checked(read_call(value))
    if not value:
        return failure(INVALID_REQUEST, "an empty batch asks nothing")
    if len(value) > MAX_BATCH:
        return failure(INVALID_REQUEST, f"a batch of {len(value)} calls; {MAX_BATCH} at most")
    return [_checked(read_call(one)) for one in value]


def _read_action(value: Any) -> Call | dict[str, Any]:
    if not isinstance(value, dict):
        return socket_error(NoSuchMethod("Unknown action: undefined", hint="a line is an object with an `action`"))
    params = value.copy()
    action = Action(params.pop("action", None), params, params.pop("id", None))
    if not isinstance(action.method, str):
        unknown = NoSuchMethod("Unknown action: undefined", hint="send `action`, or `jsonrpc` and `method`")
        return cast("dict[str, Any]", action.refuse(unknown))
    return _checked(action)


def _checked(call: Call | dict[str, Any]) -> Call | dict[str, Any]:
    """Return the call with its verb, or the reply that refuses it; {} for a notification, which gets no answer."""
    if isinstance(call, dict):
        return call
    try:
        if isinstance(call, Action):
            cls, params = find_action(call.method), call.params
            # The `id` of a line names the line, and the letter if nothing else does.
            if call.id is not None and "id" in parameters(cls) and "id" not in set_names(cls, params):
                params = params | {"id": call.id}
            call.request = from_params(cls, params)
        else:
            call.request = from_params(find_rpc_method(call.method), call.params)
    except PostroomError as wrong:
        return {} if call.is_notification else cast("dict[str, Any]", call.refuse(wrong))
    return call


def is_alone(request: Request) -> bool:
    """Return whether no other request of the caller may run meanwhile. A batch is carried out call by call."""
    return request.is_alone if isinstance(request, Call) else isinstance(request, list)
