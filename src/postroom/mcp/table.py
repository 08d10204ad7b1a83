"""What a tool is: a row of arguments, an answer and a function. Schemas, checks and docs are made from it.

Plain values: the SDK is not needed to count, print or check them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import Invalid
from ..wire.table import Kind, Method, Param, snake, taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .caller import Caller

Run = Callable[["Caller", dict[str, Any]], Awaitable[dict[str, Any]]]

_TYPES: dict[Kind, dict[str, Any]] = {
    "text": {"type": "string"},
    "address": {"anyOf": [{"type": "string"}, {"type": "object"}]},
    "addresses": {"anyOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}]},
    "texts": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "count": {"type": "integer"},
    "seconds": {"type": "number"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
    "list": {"type": "array", "items": {"type": "string"}},
    "when": {"type": ["string", "number"]},
    "any": {},
}


_ALSO = {  # a verb's word -> those of tools for the same
    "id": ("message_id", "message_ids", "in_reply_to"),
    "mailbox": ("agent_id", "from"),
    "agent_id": ("from",),
    "sender": ("from", "agent_id"),
    "priority": ("importance",),
    "scope": ("to_scope",),
    "thread": ("thread_tag",),
    "tag": ("thread_tag",),
    "cursor": ("since",),
}


class Arg(Struct, frozen=True):
    """An argument, under the name that models see."""

    name: str
    kind: Kind
    about: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()

    @property
    def schema(self) -> dict[str, Any]:
        plain = dict(_TYPES[self.kind])
        if self.choices:
            plain["enum"] = list(self.choices)
        return plain | ({"description": self.about} if self.about else {})


class Tool(Struct, frozen=True, kw_only=True, dict=True):  # dict: for what is made once
    """A row of the table."""

    name: str
    title: str
    about: str
    run: Run
    args: tuple[Arg, ...]
    answer: dict[str, Any]  # the properties of what it gives back
    always: tuple[str, ...]  # those of them that are always there
    reads_only: bool = False
    destroys: bool = False  # may it undo or end something?
    repeatable: bool = False  # is a second call with the same arguments harmless?

    @property
    def input_schema(self) -> dict[str, Any]:
        required = [arg.name for arg in self.args if arg.required]
        plain = {"type": "object", "properties": {arg.name: arg.schema for arg in self.args}}
        return plain | ({"required": required} if required else {}) | {"additionalProperties": False}

    @property
    def output_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": self.answer, "required": list(self.always)}

    @cached_property
    def method(self) -> Method:
        """Its arguments, as those of a verb: checked in the same way."""
        params = tuple(Param(snake(arg.name), arg.kind, arg.about, arg.required) for arg in self.args)
        return Method(name=self.name, about=self.about, action="agents", run=_elsewhere, params=params, result="")

    @cached_property
    def choosy(self) -> tuple[tuple[str, Arg], ...]:
        """The arguments that are one of a few words, by their names in snake_case."""
        return tuple((snake(arg.name), arg) for arg in self.args if arg.choices)


def understood(tool: Tool, said: Mapping[str, Any]) -> dict[str, Any]:
    """What was said, by names in snake_case, every value checked. Invalid says what is wrong, and with what."""
    given = taken(tool.method, said, [arg.name for arg in tool.args])
    for name, arg in tool.choosy:
        value = given.get(name)
        if value is not None and value not in arg.choices:
            raise Invalid(f"{value!a} is none of them", field=arg.name, hint=", ".join(arg.choices))
    return given


def argument_of(tool: Tool, field: str) -> str:
    """What a model called it that a verb calls `field`."""
    names = {snake(arg.name): arg.name for arg in tool.args}
    return next((names[name] for name in (field, *_ALSO.get(field, ())) if name in names), field)


def _elsewhere(*_said: Any) -> None:
    """A tool is not a verb: it calls some."""
