"""Which text and which JSON may enter a letter, checked and copied so that no caller can change it later.

Refuses to know what the values mean; the fields of a letter are checked one by one in `service.compose`.
"""

from __future__ import annotations

import math
import unicodedata
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec

from ..errors import Invalid, TooLarge

_DIGITS = bytes(b"0"[0] if chr(byte).isdecimal() and byte < 128 else b" "[0] for byte in range(256))
_LONG = b"0" * 19
JSON_RULE = "text, numbers, true, false, null, lists, and objects with text keys"


def check_text(value: Any, field: str, longest: int | None = None) -> str:
    """Text that every store and every reader can hold: no NUL, no lone surrogates."""
    if not isinstance(value, str):
        raise Invalid(f"must be text, not {type(value).__name__}", field=field)
    if longest is not None and len(value) > longest:
        raise TooLarge(f"is {len(value)} characters long, the limit is {longest}", field=field)
    if "\0" in value:
        raise Invalid("holds a NUL character", field=field, hint="remove it or send the bytes as base64")
    if not value.isascii():
        _check_surrogates(value, field)
    return value if type(value) is str else str.__str__(value)  # a subclass may not be what it seems


def check_line(value: Any, field: str, longest: int) -> str:
    """Text on one line, without control characters: subjects, keys, labels."""
    line = check_text(value, field, longest)
    if not line.isprintable():
        for character in line:
            if unicodedata.category(character) in {"Cc", "Zl", "Zp"}:
                raise Invalid(f"holds the control character {character!a}", field=field, hint="one line of text")
    return line


def check_label(value: Any, field: str, longest: int = 128) -> str:
    """A tag or key: one line, not empty, no blanks at its ends."""
    label = check_line(value, field, longest)
    if not label or label != label.strip():
        raise Invalid(f"{label!a} is empty or has blanks at an end", field=field)
    return label


def check_time(value: Any, field: str) -> datetime:
    """An aware time, turned to UTC."""
    if not isinstance(value, datetime):
        raise Invalid(f"must be a datetime, not {type(value).__name__}", field=field)
    if value.tzinfo is None or value.utcoffset() is None:
        raise Invalid("has no time zone", field=field, hint="use datetime.now(UTC) or .astimezone()")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Invalid(f"{value} is out of range", field=field) from None


def check_json(value: Any, field: str, depth: int) -> Any:
    """A private copy of `value` as plain JSON, at most `depth` levels deep."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return check_text(value, field)
    if isinstance(value, int):
        return _check_integer(int(value), field)
    if isinstance(value, float):
        return _check_float(float(value), field)
    if depth <= 0:
        raise TooLarge("is nested too deep", field=field)
    if isinstance(value, dict):
        return {_check_key(k, field): check_json(v, f"{field}.{k}", depth - 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [check_json(item, field, depth - 1) for item in value]
    raise Invalid(f"holds a {type(value).__name__}, which is not JSON", field=field, hint=JSON_RULE)


def check_object(value: Any, field: str, depth: int) -> dict[str, Any]:
    """A private copy of a JSON object."""
    if not isinstance(value, dict):
        raise Invalid(f"must be an object, not {type(value).__name__}", field=field)
    copy: dict[str, Any] = check_json(value, field, depth)
    return copy


def read_json(raw: bytes | str, field: str, *, depth: int, largest: int) -> Any:
    """Parse JSON from outside: size before parsing, no duplicate keys, no NaN, bounded depth."""
    size = len(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw)
    if size > largest:
        raise TooLarge(f"is {size} bytes, the limit is {largest}", field=field)
    if isinstance(raw, bytes) and _is_harmless(raw):
        try:
            value = msgspec.json.decode(raw)
            is_once = msgspec.json.encode(value) == msgspec.json.format(raw, indent=-1)  # no key was there twice
            if is_once and (raw.count(b"[") + raw.count(b"{") <= depth or _is_within(value, depth)):
                return value
        except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
            pass  # it is told below what is wrong

    def refuse_constant(word: str) -> NoReturn:
        raise Invalid(f"holds {word}, which is not JSON", field=field)

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            left = list(found)
            twice = next(key for place, (key, _) in enumerate(pairs) if left[place : place + 1] != [key])
            raise Invalid(f"holds the key {twice[:100]!a} twice in one object", field=field)
        return found

    import json  # noqa: PLC0415 - most letters hold none

    try:
        value = json.loads(raw, object_pairs_hook=refuse_duplicates, parse_constant=refuse_constant)
    except RecursionError:
        raise TooLarge("is nested too deep", field=field) from None
    except ValueError as broken:
        raise Invalid(f"is not JSON: {broken}", field=field) from None
    return check_json(value, field, depth)


def _is_harmless(raw: bytes) -> bool:
    """Can nothing be wrong with values that were read from this? No escape that could make a bad character, no
    number of many digits. Looking at every value takes ten times as long.
    """
    # Not by `in`: that takes what it looks for to be a number first, and makes an error of it.
    return raw.find(b"\\u") < 0 and raw.translate(_DIGITS).find(_LONG) < 0


def _is_within(value: Any, depth: int) -> bool:
    """Is it nested so deep at most? Level by level, for the levels may be many."""
    level = [value]
    for _ in range(depth):
        inner = [each for one in level for each in (one.values() if type(one) is dict else one)]
        level = [each for each in inner if type(each) is dict or type(each) is list]
        if not level:
            return True
    return False


def _check_surrogates(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid("holds half a character (a lone surrogate)", field=field) from None


def _check_integer(number: int, field: str) -> int:
    if not -(2**63) <= number < 2**63:
        raise Invalid("holds an integer over 64 bits", field=field, hint="send it as text")
    return number


def _check_float(number: float, field: str) -> float:
    if not math.isfinite(number):
        raise Invalid(f"holds {number}, which is not JSON", field=field)
    return number


def _check_key(key: Any, field: str) -> str:
    if not isinstance(key, str):
        raise Invalid(f"has a key that is not text ({type(key).__name__})", field=field)
    return check_text(key, field)
