"""The base of values that programs print, and the checks of plain values that may enter a room.

The checks are of text, times and JSON, and of the counts, seconds, lists and callbacks that callers pass. Any
Python value may come in; a check returns it in its normal form, as a private copy, so that no caller can change a
letter later, or raises `Invalid` with the field's name. What the values mean is not known here: `core.compose`
checks the fields of a letter one by one.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, NoReturn, cast

import msgspec
from msgspec import Struct

from ..errors import Invalid, TooLarge
from .names import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .report import Progress


# Values that programs print

LINE = 115  # characters of a repr
_EMPTY: tuple[object, ...] = (None, "", (), [], {})
_TEXT = 40  # of them, of one text


class Brief(Struct, frozen=True):
    """A value whose `repr` is one line: texts are cut, lists are counted, and what is empty is left out."""

    def __repr__(self) -> str:
        values = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = ", ".join(f"{name}={_brief(value)}" for name, value in values if value not in _EMPTY)
        whole = f"{type(self).__name__}({shown})"
        return whole if len(whole) <= LINE else f"{whole[: LINE - 2]}…)"


def in_quotes(text: str) -> str:
    """Return a text in quotes, cut to a part of a line."""
    return repr(text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…")


def _brief(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, Enum):
        return in_quotes(value)
    if isinstance(value, (tuple, list, dict)):
        return f"<{len(value)}>"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{value}" if isinstance(value, Enum) else repr(value)


# Text, times and JSON

_DIGITS = bytes(b"0"[0] if chr(byte).isdecimal() and byte < 128 else b" "[0] for byte in range(256))
_LONG_NUMBER = b"0" * 19  # as many digits may be over 64 bits
JSON_RULE = "text, numbers, true, false, null, lists, and objects with text keys"


def check_text(value: Any, field: str, longest: int | None = None) -> str:
    """Return text that every store and every reader can hold: no NUL, no lone surrogates."""
    if not isinstance(value, str):
        raise Invalid(f"must be text, not {type(value).__name__}", field=field)
    if longest is not None and len(value) > longest:
        raise TooLarge(f"is {len(value)} characters long, the limit is {longest}", field=field)
    if "\0" in value:
        raise Invalid("holds a NUL character", field=field, hint="remove it or send the bytes as base64")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Invalid("holds half a character (a lone surrogate)", field=field) from None
    return value if type(value) is str else str.__str__(value)  # a subclass could change its mind later


def check_line(value: Any, field: str, longest: int) -> str:
    """Return text on one line, without control characters: a subject, key or label."""
    line = check_text(value, field, longest)
    if not line.isprintable():
        for character in line:
            if unicodedata.category(character) in {"Cc", "Zl", "Zp"}:
                raise Invalid(f"holds the control character {character!a}", field=field, hint="one line of text")
    return line


def check_label(value: Any, field: str, longest: int = 128) -> str:
    """Return a tag or key: one line, not empty, no blanks at its ends."""
    label = check_line(value, field, longest)
    if not label or label != label.strip():
        raise Invalid(f"{label!a} is empty or has blanks at an end", field=field)
    return label


def check_time(value: Any, field: str) -> datetime:
    """Return an aware time, converted to UTC."""
    if not isinstance(value, datetime):
        raise Invalid(f"must be a datetime, not {type(value).__name__}", field=field)
    if value.tzinfo is None or value.utcoffset() is None:
        raise Invalid("has no time zone", field=field, hint="use datetime.now(UTC) or .astimezone()")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{value} is out of range", field=field) from None


def check_json(value: Any, field: str, depth: int) -> Any:
    """Return a private copy of `value` as plain JSON, at most `depth` levels deep."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return check_text(value, field)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise Invalid("holds an integer over 64 bits", field=field, hint="send it as text")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Invalid(f"holds {value}, which is not JSON", field=field)
        return float(value)
    if depth <= 0:
        raise TooLarge("is nested too deep", field=field)
    if isinstance(value, dict):
        return {_check_key(k, field): check_json(v, f"{field}.{k}", depth - 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [check_json(item, field, depth - 1) for item in value]
    raise Invalid(f"holds a {type(value).__name__}, which is not JSON", field=field, hint=JSON_RULE)


def check_object(value: Any, field: str, depth: int) -> dict[str, Any]:
    """Return a private copy of a JSON object."""
    if not isinstance(value, dict):
        raise Invalid(f"must be an object, not {type(value).__name__}", field=field)
    copy: dict[str, Any] = check_json(value, field, depth)
    return copy


def read_json(raw: bytes | str, field: str, *, depth: int, largest: int) -> Any:
    """Parse JSON from outside: size before parsing, no duplicate keys, no NaN, bounded depth."""
    # The size is checked before the text is parsed (threat 7).
    size = len(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw)
    if size > largest:
        raise TooLarge(f"is {size} bytes, the limit is {largest}", field=field)
    # The fast path: msgspec, without a look at every value, which takes ten times as long. It is for JSON in which
    # every value is sound: no escape that makes a bad character, no long number. (Not by `in`: that first tries to
    # read its operand as a number, which raises and catches an error.)
    if isinstance(raw, bytes) and raw.find(b"\\u") < 0 and raw.translate(_DIGITS).find(_LONG_NUMBER) < 0:
        try:
            value = msgspec.json.decode(raw)
            # A duplicate key is lost by decoding, so the encoded value is shorter than the normalized input.
            has_no_duplicates = msgspec.json.encode(value) == msgspec.json.format(raw, indent=-1)
            # No more brackets than levels means that it cannot be too deep: the walk is for the rest.
            if has_no_duplicates and (raw.count(b"[") + raw.count(b"{") <= depth or _is_within(value, depth)):
                return value
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            pass  # the slow path below finds out what is wrong

    def refuse_constant(word: str) -> NoReturn:
        raise Invalid(f"holds {word}, which is not JSON", field=field)

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            left = list(found)
            twice = next(key for place, (key, _) in enumerate(pairs) if left[place : place + 1] != [key])
            raise Invalid(f"holds the key {twice[:100]!a} twice in one object", field=field)
        return found

    import json  # noqa: PLC0415 - only the slow path needs it

    try:
        value = json.loads(raw, object_pairs_hook=refuse_duplicates, parse_constant=refuse_constant)
    except RecursionError:
        raise TooLarge("is nested too deep", field=field) from None
    except ValueError as broken:
        raise Invalid(f"is not JSON: {broken}", field=field) from None
    return check_json(value, field, depth)


def text_in(values: Any, name: str) -> str | None:
    """Return the text under this name in JSON that any program may have written; None if there is none."""
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, str) and value else None


def time_in(values: Any, name: str) -> datetime | None:
    """Return the time with a zone under this name in JSON that any program may have written; None if none."""
    try:
        found = datetime.fromisoformat(text_in(values, name) or "")
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def object_in(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object under this name in JSON that any program may have written; empty if there is none."""
    value = values.get(name)
    return value if isinstance(value, dict) else {}


def passes(refusal: type[Exception], check: Callable[..., object], *args: Any) -> bool:
    """Return whether a check of these values passes; False if it raises this error."""
    try:
        check(*args)
    except refusal:
        return False
    return True


def _is_within(value: Any, depth: int) -> bool:
    """Return whether a value is nested at most `depth` levels deep, without recursion."""
    level = [value]
    for _ in range(depth):
        inner = [each for one in level for each in (one.values() if type(one) is dict else one)]
        level = [each for each in inner if type(each) is dict or type(each) is list]
        if not level:
            return True
    return False


def _check_key(key: Any, field: str) -> str:
    if not isinstance(key, str):
        raise Invalid(f"has a key that is not text ({type(key).__name__})", field=field)
    return check_text(key, field)


# Counts, seconds, lists and callbacks

MAX_COUNT = 2**53  # the largest integer that JSON carries exactly
FOR_EVER = 1e12  # seconds: longer spans are cut to this
LONGEST_QUOTE = 80


def check_count(value: Any, field: str, *, least: int = 1, most: int = MAX_COUNT) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Invalid(f"{quoted(value)} is not a number of this kind", field=field, hint=f"{least:,} to {most:,}")
    return int(value)


def check_limit(value: Any) -> int | None:
    """Return how many results the caller wants at most; None means all."""
    return None if value is None else check_count(value, "limit")


def is_made_id(value: Any) -> bool:
    """Return whether a value is like the ids that are made here, of tokens and webhooks."""
    return isinstance(value, str) and 0 < len(value) <= 32 and value.isalnum()


def check_seconds(value: Any, field: str, *, above: float = -math.ulp(0), most: float = math.inf) -> float:
    """Return a span of time that is more than `above` and at most `most` seconds; by default zero or more."""
    if (
        (type(value) is float or type(value) is int) and above < value <= most and value < FOR_EVER
    ):  # the usual case
        return float(value)
    if isinstance(value, (int, float)) and value > most:
        raise Invalid("is too long", field=field, hint=f"up to {most:g} seconds")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not above < value <= most:
        hint = f"more than {max(above, 0):g}, up to {most:g}" if above >= 0 else "zero or more"
        raise Invalid(f"{quoted(value)} is not a number of seconds", field=field, hint=hint)
    return float(min(value, FOR_EVER))


def as_list(value: Any, field: str) -> Sequence[Any]:
    """Return one name or several as a sequence whose order does not vary."""
    if isinstance(value, (str, dict)):  # a dict is an address in pieces: agent, system, scope
        return (value,)
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)  # a repeated send must have the same content as the first
    if isinstance(value, Address):
        return (value,)
    raise Invalid(f"must be a name or a list of names, not {type(value).__name__}", field=field)


def check_progress(progress: Any) -> Progress:
    """Return the caller's progress callback, or one that does nothing."""
    if progress is None:
        return lambda _done, _total: None
    if not callable(progress):
        raise Invalid(f"must be a function, not {type(progress).__name__}", field="progress", hint="(done, total)")
    return cast("Progress", progress)


def quoted(value: Any) -> str:
    """Return the value as an error may show it: ASCII, and at most LONGEST_QUOTE characters."""
    try:
        text = ascii(value)
    except ValueError:  # Python refuses to write out an integer of thousands of digits
        return "a huge number"
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
