"""The base of values that programs print: their `repr` fits on one line."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Any

from msgspec import Struct

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


def quoted(text: str) -> str:
    """Return a text in quotes, cut to a part of a line."""
    return repr(text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…")


def _brief(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, Enum):
        return quoted(value)
    if isinstance(value, (tuple, list, dict)):
        return f"<{len(value)}>"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{value}" if isinstance(value, Enum) else repr(value)
