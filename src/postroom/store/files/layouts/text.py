"""JSON as the designs write it: byte for byte what `json.dumps` makes, many times as fast.

msgspec writes text, whole numbers and structure as Python does; what it writes otherwise is left to Python.
"""

from __future__ import annotations

import json
from types import NoneType
from typing import Any

import msgspec

_ALIKE = frozenset({str, int, bool, NoneType})
_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def dumps(value: Any, *, indent: int | None = None, sort_keys: bool = False, ensure_ascii: bool = False) -> bytes:
    """As `json.dumps` with these settings."""
    quick = _quick(value, sort_keys=sort_keys)
    if quick is None or (ensure_ascii and not (quick.isascii() and b"\x7f" not in quick)):
        return json.dumps(value, indent=indent, sort_keys=sort_keys, ensure_ascii=ensure_ascii).encode()
    return msgspec.json.format(quick, indent=indent or 0)


def _quick(value: Any, *, sort_keys: bool) -> bytes | None:
    try:
        if _is_alike(value):
            return _encode_sorted(value) if sort_keys else _encode(value)
    except (
        OverflowError,
        RecursionError,
        UnicodeEncodeError,
    ):  # what is too large or deep, half a character
        pass
    return None


def _is_alike(value: Any) -> bool:
    """Does msgspec write it as Python does? Numbers with a fraction it does not, and it knows many more types."""
    kind = type(value)
    if kind is dict:
        return all(type(name) is str and (type(item) in _ALIKE or _is_alike(item)) for name, item in value.items())
    if kind is list:
        return all(map(_is_alike, value))
    return kind in _ALIKE
