"""One caller over time: who it is, and in which dialect each line of it is answered.

A line is an action of agent-inbox, a call in JSON-RPC, or a batch of those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import PostroomError, TooLarge
from ..model.values import read_json
from . import rpc
from .mail_problems import mail_problem
from .methods import PREFIX, for_action, for_rpc
from .problems import NoSuchMethod, socket_error
from .table import Method, taken

if TYPE_CHECKING:
    from ..policy.limits import Limits

ROOM_FOR_MORE = 64 * 1024  # bytes that a line may be longer than the letter in it
DEEPER = 8  # levels that stand around a letter


class Action(Struct, frozen=True):
    """A line in agent-inbox's dialect."""

    method: str
    said: dict[str, Any]
    id: Any = None
    is_notification: bool = False

    def answer(self, result: Any) -> dict[str, Any]:
        return {"ok": True, **result} if self.id is None else {"ok": True, **result, "id": self.id}

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        reply = socket_error(error)
        return reply if self.id is None else reply | {"id": self.id}


class Step(Struct, frozen=True):
    """One call that was understood: what is to be done, and how it is answered."""

    call: Action | rpc.Call
    method: Method
    said: dict[str, Any]

    def answer(self, result: Any) -> dict[str, Any]:
        return self.call.answer(result)

    def refuse(self, error: PostroomError) -> dict[str, Any]:
        return refusal(self.call, self.method, error)


class Asked(Struct, frozen=True):
    """What one line asks for: steps, and replies that are known already in place of some."""

    steps: list[Step | dict[str, Any]]
    is_batch: bool = False

    @property
    def is_long(self) -> bool:
        """May it take long, or change who is calling? Then nothing of the same caller overtakes it."""
        for step in self.steps:  # noqa: SIM110 - written out, here and below: every line is asked
            if isinstance(step, Step) and step.method.is_long(step.said):
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
            if isinstance(step, Step) and step.method.is_slow(step.said):
                break
        else:
            return False
        return not any(isinstance(step, Step) and step.method.patience(step.said) > 0 for step in self.steps)


def read_line(line: bytes | None, limits: Limits) -> Asked | dict[str, Any]:
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


def read_value(value: Any) -> Asked:
    """What a value asks for."""
    if isinstance(value, list):
        calls = rpc.read_batch(value)
        return Asked([understood(call) for call in calls], is_batch=0 < len(value) <= rpc.MOST)
    if rpc.is_rpc(value):
        return Asked([understood(rpc.read_call(value))])
    return Asked([understood(_read_action(value))])


def refusal(call: Action | rpc.Call, method: Method | None, error: PostroomError) -> dict[str, Any]:
    """The reply to a call that is refused. Errors about conversations have MAP's numbers."""
    special = mail_problem(error) if method is not None and method.name.startswith(PREFIX) else None
    return call.refuse(error) if special is None else rpc.failed(call.id, special)


def understood(call: Action | rpc.Call | dict[str, Any]) -> Step | dict[str, Any]:
    """The step that a call asks for, or its refusal. A notification that is refused is answered by nothing: {}."""
    if isinstance(call, dict):
        return call
    method = None
    try:
        method = for_action(call.method) if isinstance(call, Action) else for_rpc(call.method)
        return Step(call, method, taken(method, call.said))
    except PostroomError as wrong:
        return {} if call.is_notification else refusal(call, method, wrong)


def _read_action(value: Any) -> Action | dict[str, Any]:
    if not isinstance(value, dict):
        return socket_error(NoSuchMethod("Unknown action: undefined", hint="a line is an object with an `action`"))
    said = value.copy()  # without what says how a line is answered, and is no parameter
    name, id = said.pop("action", None), said.pop("id", None)
    if not isinstance(name, str):
        told = NoSuchMethod("Unknown action: undefined", hint="say `action`, or `jsonrpc` and `method`")
        return Action("", {}, id).refuse(told)
    return Action(name, said, id)
