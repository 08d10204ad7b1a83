"""The types of our own JSON, for schemas: what `plain` makes of each value that a verb returns."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..model.record import Change, Cursor
from .plain import Form, forms

_MADE: set[type] = set()  # types of JSON, which hold no values of ours


@cache
def json_type(wanted: Any) -> Any:
    """Return the type of the JSON that `plain` makes of a value of this type."""
    if wanted is Cursor:
        return str
    parts = get_args(wanted)
    if get_origin(wanted) in {Union, UnionType}:
        return Union[tuple(map(json_type, parts))]  # noqa: UP007 - of any number of types
    if get_origin(wanted) in {list, tuple, dict}:
        return get_origin(wanted)[tuple(map(json_type, parts))]
    if wanted is Change or wanted in _MADE or not (isinstance(wanted, type) and issubclass(wanted, Struct)):
        return wanted
    form = forms().get(wanted) or Form()
    of = form.of or wanted
    own = {} if form.alone else _hints(json_type(of) if form.of else of)
    kept = {field: hint for field, hint in own.items() if field not in form.without}
    return _shape(form.name or wanted.__name__, of, {**kept, **form.types})


def _shape(name: str, of: type[Struct], hints: dict[str, Any]) -> type[Struct]:
    fields = [
        (field, json_type(hint), UNSET) if UnsetType in get_args(hint) else (field, json_type(hint))
        for field, hint in hints.items()
    ]
    # The module tells apart two types of one name.
    made = msgspec.defstruct(name, fields, module=of.__module__, kw_only=True)
    _MADE.add(made)
    return made


def _hints(of: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(of, include_extras=True)
    return {field: hints[field] for field in of.__struct_fields__}
