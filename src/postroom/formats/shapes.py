"""The types of our own JSON, for schemas: what `plain` makes of each value that a verb returns."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from ..core.messages import Receipt
from ..core.waiting import Entry
from ..core.work import Claimed, Revived, Settled
from ..model.delivery import Delivery
from ..model.message import Message
from ..model.peer import Carried
from ..model.query import Found
from ..model.record import Cursor
from .plain import encoders

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


@cache
def json_type(wanted: Any) -> Any:
    """Return the type of the JSON that `plain` makes of a value of this type."""
    if wanted in _SHAPES:
        return _SHAPES[wanted]()
    if wanted in encoders():
        return Any  # JSON of its own, of which no shape is given below
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return _shape(wanted.__name__, wanted, **{name: json_type(hint) for name, hint in _hints(wanted).items()})
    parts = get_args(wanted)
    if get_origin(wanted) in {Union, UnionType}:
        return Union[tuple(map(json_type, parts))]  # noqa: UP007 - of any number of types
    return (
        get_origin(wanted)[tuple(map(json_type, parts))] if get_origin(wanted) in {list, tuple, dict} else wanted
    )


def _shape(name: str, of: type[Struct], without: Collection[str] = (), **more: Any) -> type[Struct]:
    """Return a type of JSON that has all fields of a struct, without some, and more."""
    own = {field: hint for field, hint in _hints(of).items() if field not in without}
    # The module tells apart two types of one name.
    return msgspec.defstruct(name, list((own | more).items()), module=of.__module__)


def _hints(of: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(of, include_extras=True)
    return {field: hints[field] for field in of.__struct_fields__}


class _Forwarded(Struct):
    where: str
    since: str


@cache
def _message_shape() -> type[Struct]:
    return _shape("Message", Message, priority=_Priority, text=str, thread=str)


@cache
def _letter_shape() -> type[Struct]:
    more = {"holder": str | None, "forwarded": _Forwarded | None}
    delivery = _shape("Delivery", Delivery, ("lease", "priority", "message_id"), **more)
    return _shape("Letter", _message_shape(), delivery=delivery)


@cache
def _claimed_shape() -> type[Struct]:
    letter = _shape("ClaimedLetter", _letter_shape(), token=str | None, lease_seconds=float)
    return msgspec.defstruct("Claimed", [("letters", list[letter])])  # type: ignore[valid-type] # a type made here


@cache
def _entry_shape() -> type[Struct]:
    return _shape("Entry", Entry, ("sender", "priority"), **{"from": str, "priority": _Priority})


@cache
def _receipt_shape() -> type[Struct]:
    carried = list[json_type(Carried)]  # type: ignore[misc,valid-type] # made here
    return _shape("Receipt", Receipt, ("message",), id=str, thread=str, carried=carried, letter=_message_shape())


@cache
def _move_shape() -> type[Struct]:
    hints, names = _hints(Delivery), ("state", "attempts", "reason", "due_at")
    return msgspec.defstruct("Move", [("id", str), *((name, hints[name]) for name in names)])


@cache
def _settled_shape() -> type[Struct]:
    fields: list[Any] = [("letters", list[_move_shape()]), ("receipts", list[_receipt_shape()])]  # type: ignore[misc]
    return msgspec.defstruct("Settled", fields)


@cache
def _revived_shape() -> type[Struct]:
    return msgspec.defstruct("Revived", [("letters", list[_move_shape()])])  # type: ignore[misc] # a type made here


_Priority = Literal["low", "normal", "high", "urgent"]
_SHAPES: dict[type, Callable[[], type]] = {
    Claimed: _claimed_shape,
    Cursor: lambda: str,
    Entry: _entry_shape,
    Found: _letter_shape,
    Message: _message_shape,
    Receipt: _receipt_shape,
    Revived: _revived_shape,
    Settled: _settled_shape,
}
