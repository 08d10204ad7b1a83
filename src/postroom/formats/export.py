"""The codec of exports: a room as JSON lines.

An export begins with a head line; then come names, records, and letters with their deliveries in order of
acceptance. The last line says that it is the last, and how many lines stand between: an export that was cut off is
refused. What the values mean, and whether a room may hold them, is checked in `core/portable.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ..core.portable import LINE_RULE, ExportedLetter, ExportHead
from ..core.presentation import escape_json
from ..errors import Invalid
from ..model.codec import convert, encode
from ..model.query import Name
from ..model.record import Record
from ..model.values import check_count, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..core.portable import ExportValue
    from ..policy.limits import Limits


FORMAT = 2
_NAMES: dict[type, str] = {Name: "name", Record: "record"}  # a line is an object with one of them, or a letter
OLDER = (1,)  # formats that are still understood: 1 had no names and no end


def write_export(parts: Iterable[ExportHead | ExportValue]) -> Iterator[bytes]:
    """Yield the lines of an export: its head, its values, and the end."""
    lines = 0
    for part in parts:
        if isinstance(part, ExportHead):
            yield encode({"postroom": FORMAT, "room": part.room, "lines": part.lines})
        else:
            lines += 1
            name = _NAMES.get(type(part))
            yield escape_json(encode({name: part} if name else part))
    # The importer needs this line: a file that was cut off would look complete without it.
    yield encode({"end": True, "lines": lines})


def read_export(lines: Iterable[bytes | str], limits: Limits) -> tuple[ExportHead, Iterator[ExportValue]]:
    """Return the head of an export, and its values as they are read. Refuses one that is not complete."""
    if not isinstance(lines, Iterable):
        raise Invalid(f"must be lines, not {type(lines).__name__}", field="lines")
    source = iter(lines)
    head = read_head(next(source, b""), limits)
    return head, _values(source, limits, has_end=head.has_end)


def read_head(line: bytes | str, limits: Limits) -> ExportHead:
    """Return the parsed first line; refuse one that is no head of an export."""
    value = _read(line, 1, limits)
    if value.get("postroom") not in (FORMAT, *OLDER) or not isinstance(value.get("room"), str):
        raise Invalid("is not the head of an export", field="line 1", hint=f"this version reads format {FORMAT}")
    lines = check_count(value.get("lines", 0), "line 1", least=0)
    return ExportHead(value["room"], lines, has_end=value["postroom"] not in OLDER)


def _values(source: Iterator[bytes | str], limits: Limits, *, has_end: bool) -> Iterator[ExportValue]:
    number = 1
    for number, line in enumerate(source, start=2):
        value, field = _read(line, number, limits), f"line {number}"
        if has_end and "end" in value:
            between = number - 2
            if value != {"end": True, "lines": between} or value["end"] is not True:
                raise Invalid(f"is the end of another export than these {between} lines", field=field)
            if next(source, None) is not None:
                raise Invalid("stands after the end of the export", field=f"line {number + 1}")
            return
        is_letter = value.get("letter") is not None and value.get("deliveries") is not None
        kind = next((kind for kind, name in _NAMES.items() if name in value), None)
        if kind is None and not is_letter:
            raise Invalid("is not a line of an export", field=field, hint=LINE_RULE)
        try:
            found = convert(value, ExportedLetter) if kind is None else convert(value[_NAMES[kind]], kind)
        except msgspec.ValidationError as broken:
            raise Invalid(f"is not as an export writes it: {broken}", field=field, hint=LINE_RULE) from None
        yield found
    if has_end:
        raise Invalid(
            "the export is cut off after this line: its end is missing",
            field=f"line {number}",
            hint="get the whole file; the same import then goes on where it stopped",
        )


def _read(line: bytes | str, number: int, limits: Limits) -> dict[str, Any]:
    field, largest = f"line {number}", limits.max_message_bytes + 64 * 1024 * 1024  # a letter and its deliveries
    if not isinstance(line, (bytes, str)):
        raise Invalid(f"must be text or bytes, not {type(line).__name__}", field=field)
    value = read_json(line, field, depth=limits.max_depth + 4, largest=largest)
    if not isinstance(value, dict):
        raise Invalid("is not an object", field=field)
    return value
