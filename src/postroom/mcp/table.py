"""What a tool is: a row of arguments, an answer and a function. Schemas, checks and docs are made from it.

Plain values: the SDK is not needed to count, print or check them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..wire.table import Kind, Method, Param, snake, taken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .caller import Caller

Run = Callable[["Caller", dict[str, Any]], Awaitable[dict[str, Any]]]

_TYPES: dict[Kind, dict[str, Any]] = {
    "text": {"type": "string"},
    "texts": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    "count": {"type": "integer"},
    "seconds": {"type": "number"},
    "flag": {"type": "boolean"},
    "object": {"type": "object"},
    "list": {"type": "array", "items": {"type": "string"}},
    "when": {"type": ["string", "number"]},
    "any": {},
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


class Tool(Struct, frozen=True, kw_only=True):
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


def understood(tool: Tool, said: Mapping[str, Any]) -> dict[str, Any]:
    """What was said, by names in snake_case, every value checked. Invalid says what is wrong, and with what."""
    params = tuple(Param(snake(arg.name), arg.kind, arg.about, arg.required) for arg in tool.args)
    row = Method(name=tool.name, about=tool.about, action="agents", run=_elsewhere, params=params, result="")
    return taken(row, said)


def _elsewhere(*_said: Any) -> None:
    """A tool is not a verb: it calls some."""
