"""The message formats of the server: lines of JSON, JSON-RPC 2.0, and the actions of agent-inbox.

    bytes → LineSplitter → read_line → Request of Steps → (caller carries them out) → Step.answer → reply

A line is an action of agent-inbox (`{"action": ...}`), a call in JSON-RPC, or a batch of those. Verbs have their
bare name inside the server and on the socket, and `mail/<verb>` in JSON-RPC. On the socket the actions of
agent-inbox come first; the `mail/*` methods of its conversations belong to JSON-RPC. No I/O happens here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from ..core.verb import VERBS, Verb, from_params, given_names, load_verbs, parameters
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
from .inbox_actions import ACTIONS
from .mail import MAIL
from .requests import Schedule, answer, schedule_of
from .session import SESSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..formats.errors import Problem
    from ..policy.limits import Limits
    from ..room import Room


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


class Call(Struct, frozen=True):
    """One call in JSON-RPC. Without an id it is a notification, and gets no answer."""

    method: str
    params: dict[str, Any]
    id: str | int | float | None = None
    is_notification: bool = False

    def answer(self, result: Any) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "result": result}

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.id, "error": rpc_error(error)}


def is_rpc(value: Any) -> bool:
    """Return whether this is JSON-RPC and not an action of agent-inbox."""
    return isinstance(value, list) or (isinstance(value, dict) and "jsonrpc" in value)


def read_batch(value: list[Any]) -> list[Call | dict[str, Any]]:
    """Return the calls of a batch, an error in place of each that is invalid. An empty or too long batch is one
    error.
    """
    if not value:
        return [failure(INVALID_REQUEST, "an empty batch asks nothing")]
    if len(value) > MAX_BATCH:
        return [failure(INVALID_REQUEST, f"a batch of {len(value)} calls; {MAX_BATCH} at most")]
    return [read_call(one) for one in value]


def read_call(value: Any) -> Call | dict[str, Any]:
    """Return the call, or the error reply that says what is wrong with it."""
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
    if not isinstance(params, dict | None):  # null means "not given", as in its fields
        return failure(INVALID_PARAMS, "params are given by name, in an object", id)
    return Call(method, params or {}, id, is_notification="id" not in value)


def unreadable(why: str) -> dict[str, Any]:
    return failure(PARSE_ERROR, why)


def failure(code: int, why: str, id: Any = None) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}}


def problem_reply(id: Any, problem: Problem) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "error": to_plain(problem)}


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


def call(room: Room, name: str, params: Mapping[str, Any]) -> Any:
    """Carry out a verb at once; one that waits for mail only looks."""
    return answer(room.core, room.principal, from_params(find_verb(name), params))


# -- requests

EXTRA_BYTES = 64 * 1024  # that a line may be longer than the letter in it
EXTRA_DEPTH = 8  # levels of JSON around a letter


class Action(Struct, frozen=True):
    """One call in the protocol of agent-inbox."""

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
    """One valid call: the request that it makes, and how it is answered."""

    call: Action | Call
    request: Verb
    _schedule: Schedule | None = None  # found when it is first asked for

    @property
    def name(self) -> str:
        return self.request.declaration().name

    @property
    def schedule(self) -> Schedule:
        if self._schedule is None:
            force_setattr(self, "_schedule", schedule_of(self.request))
        return cast("Schedule", self._schedule)

    def answer(self, result: Any) -> dict[str, Any]:
        return self.call.answer(result)

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        return refusal(self.call, self.name, error)


class Request(Struct, frozen=True):
    """The steps of one line or body, and the error reply in place of each invalid one."""

    steps: list[Step | dict[str, Any]]
    is_batch: bool = False

    @property
    def is_alone(self) -> bool:
        """Return whether no other request of the caller may run meanwhile: it may take long, change who calls, or
        have a large reply. A batch is carried out call by call.
        """
        step = self.steps[0]
        if self.is_batch or not isinstance(step, Step):
            return self.is_batch
        return step.schedule not in {Schedule.WRITE, Schedule.READ} or step.request.declaration().many

    @property
    def is_large(self) -> bool:
        """Return whether its reply may be large and comes without waiting for mail."""
        kinds = {step.schedule for step in self.steps if isinstance(step, Step)}
        return not kinds.isdisjoint({Schedule.MANY, Schedule.SLOW}) and Schedule.WAIT not in kinds


def read_line(line: bytes | None, limits: Limits) -> Request | dict[str, Any]:
    """Return the request in a line, or the reply to a line that cannot be read."""
    if line is None:
        most = limits.max_message_bytes + EXTRA_BYTES
        return socket_error(TooLarge(f"a line of more than {most} bytes", field="line"))
    try:
        value = read_json(
            line, "line", depth=limits.max_depth + EXTRA_DEPTH, largest=limits.max_message_bytes + EXTRA_BYTES
        )
    except PostroomError as broken:
        return socket_error(broken) | {"error": "Invalid JSON", "hint": str(broken)}
    return read_value(value)


def read_value(value: Any) -> Request:
    """Return the request in a parsed value."""
    if isinstance(value, list):
        calls = read_batch(value)
        return Request([to_step(call) for call in calls], is_batch=0 < len(value) <= MAX_BATCH)
    if is_rpc(value):
        return Request([to_step(read_call(value))])
    return Request([to_step(_read_action(value))])


def refusal(call: Action | Call, name: str, error: PostroomError) -> dict[str, Any]:
    """Return the reply to a call that is refused. Errors about conversations have MAP's codes."""
    special = mail_problem(error) if name.startswith(PREFIX) else None
    return call.refuse(error) if special is None else problem_reply(call.id, special)


def to_step(call: Action | Call | dict[str, Any]) -> Step | dict[str, Any]:
    """Return the step of a call, or the reply that refuses it; {} for a notification, which gets no answer."""
    if isinstance(call, dict):
        return call
    name = ""
    try:
        cls = find_action(call.method) if isinstance(call, Action) else find_rpc_method(call.method)
        name = cls.declaration().name
        params = _with_letter_id(call, cls) if isinstance(call, Action) else call.params
        return Step(call, from_params(cls, params))
    except PostroomError as wrong:
        return {} if call.is_notification else refusal(call, name, wrong)


def _with_letter_id(call: Action, cls: type[Verb]) -> dict[str, Any]:
    """Return the parameters of an action. The `id` of a line names the line, and the letter if none else does."""
    if call.id is None or "id" not in parameters(cls) or "id" in given_names(cls, call.params):
        return call.params
    return call.params | {"id": call.id}


def _read_action(value: Any) -> Action | dict[str, Any]:
    if not isinstance(value, dict):
        return socket_error(NoSuchMethod("Unknown action: undefined", hint="a line is an object with an `action`"))
    params = value.copy()
    name, id = params.pop("action", None), params.pop("id", None)
    if not isinstance(name, str):
        unknown = NoSuchMethod("Unknown action: undefined", hint="say `action`, or `jsonrpc` and `method`")
        return Action("", {}, id).refuse(unknown)
    return Action(name, params, id)
