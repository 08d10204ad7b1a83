"""The types of our own JSON, for schemas: what `plain` makes of each value that a verb returns."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..core import messages, tasks
from ..model import agent, alert, delivery, message, peer, query, report, task
from ..model.record import Change, Cursor
from . import plain
from .plain import Form, form_of, hidden

if TYPE_CHECKING:
    from ..core.verb import Declaration


_MADE: set[type] = set()  # types of JSON, which hold no values of ours
# The names of types in the forms.
_TYPES = {
    name: found
    for module in (agent, alert, delivery, message, messages, peer, query, report, task, tasks, plain)
    for name, found in vars(module).items()
} | {"datetime": datetime, "Any": Any, "UnsetType": UnsetType}


def result_names(declaration: Declaration) -> tuple[str, ...]:
    """Return the fields of the JSON of a verb's result."""
    return _names(declaration.result) if declaration.under is None else (declaration.under,)


def _names(result: Any) -> tuple[str, ...]:
    form = form_of(result)
    if form is None:
        return tuple(result.__struct_fields__)
    if form.alone:
        return tuple(form.types)
    own = _names(_TYPES[form.of]) if form.of else result.__struct_fields__
    return tuple(dict.fromkeys((*(name for name in own if name not in hidden(result, form)), *form.types)))


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
    form = form_of(wanted) or Form()
    of = _TYPES[form.of] if form.of else wanted
    own = {} if form.alone else _hints(json_type(of) if form.of else of)
    kept = {name: hint for name, hint in own.items() if name not in hidden(wanted, form)}
    hints = kept | get_type_hints(SimpleNamespace(__annotations__=dict(form.types)), _TYPES)
    fields = [
        (field, json_type(hint), UNSET) if UnsetType in get_args(hint) else (field, json_type(hint))
        for field, hint in hints.items()
    ]
    # The module tells apart two types of one name.
    made = msgspec.defstruct(form.name or wanted.__name__, fields, module=of.__module__, kw_only=True)
    _MADE.add(made)
    return made


def _hints(of: type[Struct]) -> dict[str, Any]:
    hints = get_type_hints(of, include_extras=True)
    return {field: hints[field] for field in of.__struct_fields__}
