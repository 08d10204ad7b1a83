"""Rows of methods that are not declared as verbs yet: name, parameters, result and function of each.

`verb_of` makes the verb of a row; everything else in the server speaks of verbs and requests alone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

import msgspec
from msgspec import UNSET, Struct

from ..core.verb import Declaration, Verb, declared_by, given
from ..errors import Invalid
from ..room import room_of
from .requests import Milliseconds, SessionVerb, time_of

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..core.core import Core
    from ..mailbox import Mailbox
    from ..room import Room


# The kind of a value. `when` is a time in ISO 8601, or seconds from now; `texts` is one text or a list of them.
# `time` is a time in ISO 8601, or milliseconds since 1970. `json` may be null; elsewhere null means "not given".
# An `address` is a text or an object (agent, system, scope).
Kind = Literal[
    "text",
    "texts",
    "address",
    "addresses",
    "count",
    "seconds",
    "flag",
    "object",
    "list",
    "when",
    "time",
    "any",
    "json",
]
_TYPES: dict[Kind, Any] = {
    "text": str,
    "texts": str | list[str],
    "address": str | dict[str, Any],
    "addresses": str | dict[str, Any] | list[Any],
    "count": int,
    "seconds": float,
    "flag": bool,
    "object": dict[str, Any],
    "list": list[Any],
    "when": datetime | float,
    "time": datetime | Milliseconds,
    "any": Any,
    "json": Any,
}
Run = Callable[[Any, dict[str, Any]], Any]  # (room or session, params) → result


class Param(Struct, frozen=True):
    """A parameter of a method. Names are snake_case; camelCase is accepted too."""

    name: str
    kind: Kind
    about: str
    required: bool = False


class Method(Struct, frozen=True, kw_only=True):
    """One method: a row of the table."""

    name: str
    about: str
    action: str  # the action that `authorize` checks
    run: Run
    params: tuple[Param, ...] = ()
    result: str  # the fields of the answer, in words
    whose: str | None = None  # the parameter that names the mailbox; None: it is about the room
    speaker: Callable[[Any], str | None] | None = None  # finds the acting agent where `whose` is not enough
    strict: bool = True  # is an unknown parameter refused? Other programs' protocols ignore it
    slow: bool = False  # may take long: never on the thread that serves everyone
    many: bool = False  # may return any number of things: slow unless a small limit is given
    wide: bool = False  # writes to a group of any size: on the thread of large calls
    empty: Callable[[Any], bool] | None = None  # of a method that waits: is this result empty?
    waits: float = 0.0  # and how many seconds it waits if the caller does not say
    of_session: bool = False  # is it about the caller's connection? Then `run` takes that in place of a room
    writes: bool = True  # does it change anything?


class RowVerb(Verb, kw_only=True, dict=True):
    """The verb of a row."""

    row: ClassVar[Method]

    def owners(self, _core: Core, principal: Principal) -> list[str | None]:
        self.box = self.named() or principal.agent
        return [self.box]

    def acting(self) -> str | None:
        return super().acting() if self.row.speaker is None else self.row.speaker(given(self))

    def run(self, core: Core, principal: Principal) -> Any:
        return self.row.run(room_of(core, principal), row_params(self))

    def is_empty(self, result: Any) -> bool:
        assert self.row.empty is not None  # noqa: S101 - only rows that wait are asked
        return self.row.empty(result)

    def mailboxes(self) -> list[str]:
        return [self.box]  # type: ignore[list-item] # it has looked once, so the agent is known


class SessionRowVerb(RowVerb, SessionVerb, kw_only=True):
    """The verb of a row about the connection."""

    def serve(self, session: Any) -> Any:
        return self.row.run(session, row_params(self))


def row_params(request: Verb) -> dict[str, Any]:
    """Return the given parameters of a row as its function wants them."""
    if not isinstance(request, RowVerb):
        return given(request)
    kinds = {param.name: param.kind for param in request.row.params}
    params = {name: _value(kinds[name], value, name) for name, value in given(request).items()}
    return params | ({"is_here": True} if getattr(request, "is_here", False) else {})


def _value(kind: Kind, value: Any, field: str) -> Any:
    if kind == "texts":
        return [value] if isinstance(value, str) else value
    return time_of(value, field) if kind == "time" else value


def verb_of(row: Method | type[Verb]) -> type[Verb]:
    """Return the verb of a row."""
    if isinstance(row, type):
        return row
    fields: list[Any] = []
    for param in row.params:
        kind = _TYPES[param.kind]
        if param.required:
            fields.append((param.name, Annotated[kind, param.about]))
        elif param.kind == "json":
            fields.append((param.name, Annotated[kind, param.about], UNSET))
        else:
            default = row.waits if row.empty is not None and param.name == "timeout" else None
            fields.append((param.name, Annotated[kind | None if kind is not Any else Any, param.about], default))
    base = SessionRowVerb if row.of_session else RowVerb
    namespace = {"__doc__": row.about, "row": row, "whose": row.whose}
    made = msgspec.defstruct(row.name, fields, bases=(base,), namespace=namespace, kw_only=True)
    cls = cast("type[Verb]", made)
    declared_by[cls] = Declaration(
        name=row.name,
        about=row.about,
        result=row.result,
        action=row.action,
        writes=row.writes,
        slow=row.slow,
        many=row.many,
        wide=row.wide,
        waits=row.empty is not None,
        strict=row.strict,
    )
    return cls


def box_of(room: Room, params: dict[str, Any], param: str = "agent_id") -> Mailbox:
    """Return the mailbox that a call names, else the caller's own."""
    name = params.get(param) or room.principal.agent
    if name is None:
        raise Invalid("who are you?", field=param, hint="the name of an agent")
    return room.mailbox(name)
