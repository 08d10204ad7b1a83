"""What the words of options mean: numbers, spans, times, JSON, settings. Each error names the option."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..clock import SystemClock
from ..errors import Invalid
from ..model.values import read_json
from .exits import Usage

if TYPE_CHECKING:
    from .table.shape import Option

SPAN_RULE = "a number with s, m, h, d or w, such as 90s, 10m or 1h30m"
TIME_RULE = f"{SPAN_RULE}; or a time such as 2030-01-31T09:00, local unless it says otherwise"
DEEPEST = 200  # of nested JSON; the room's own limit is lower
LONGEST_COUNT = 15  # digits
LARGEST = 64 * 1024 * 1024  # bytes of JSON on one argument; likewise
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SPAN = re.compile(r"\+?(?:\d+(?:\.\d+)?[smhdw])+", re.ASCII)
_PIECE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)


def convert_all(values: dict[str, Any], options: dict[str, Option]) -> None:
    """Put what the words mean in their place."""
    for name, said in values.items():
        option = options[name]
        meaning = _MEANINGS.get(option.kind)
        if meaning is None:
            continue
        if option.many:
            values[name] = [meaning(word, option) for word in said]
        else:
            values[name] = meaning(said, option)


def seconds(word: str, option: Option) -> float:
    span = _span(word)
    if span is None:
        raise Invalid(f"{_short(word)} is not a span of time", field=_field(option), hint=SPAN_RULE)
    return span


def later(word: str, option: Option) -> datetime | float:
    """A span from now, or a time."""
    span = _span(word)
    return _time(word, option) if span is None else span


def past(word: str, option: Option) -> datetime:
    """A time, or a span back from now."""
    span = _span(word)
    if span is None:
        return _time(word, option)
    try:
        return SystemClock().now().wall - timedelta(seconds=span)
    except OverflowError:
        raise Invalid(f"{_short(word)} is out of range", field=_field(option)) from None


def count(word: str, option: Option) -> int:
    if not word.isascii() or not word.isdecimal():
        raise Invalid(f"{_short(word)} is not a number", field=_field(option), hint="digits")
    if len(word) > LONGEST_COUNT:
        raise Invalid(f"{_short(word)} is too large", field=_field(option), hint=f"up to {LONGEST_COUNT} digits")
    return int(word)


def json(word: str, option: Option) -> Any:
    return read_json(word, _field(option), depth=DEEPEST, largest=LARGEST)


def address(word: str, option: Option) -> Any:
    """As text, or as an object: no name begins like one."""
    return json(word, option) if word.startswith("{") else word


def choice(word: str, option: Option) -> str:
    if word.lower() not in option.choices:
        raise Usage(f"{_short(word)} is not one of them", field=_field(option), hint=", ".join(option.choices))
    return word.lower()


def setting(word: str, option: Option) -> tuple[str, str]:
    name, value = pair(word, option)
    if name == "store":
        raise Usage("the room is named by --room", field=_field(option))
    return name, value


def pair(word: str, option: Option) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise Usage(f"{_short(word)} is not NAME=VALUE", field=_field(option))
    return name, value


def rule(word: str, option: Option) -> tuple[str, str] | None:
    """One of several; nothing means that there are none."""
    return pair(word, option) if word else None


_MEANINGS: dict[str, Any] = {
    "seconds": seconds,
    "when": later,
    "past": past,
    "count": count,
    "json": json,
    "address": address,
    "word": choice,
    "setting": setting,
    "pair": pair,
    "rule": rule,
}


def _span(word: str) -> float | None:
    if len(word) > 100:
        return None
    if _NUMBER.fullmatch(word):
        return float(word)
    if not _SPAN.fullmatch(word):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(word))


def _time(word: str, option: Option) -> datetime:
    try:
        time = datetime.fromisoformat(word)
        return time if time.tzinfo else time.astimezone()
    except (ValueError, OverflowError, OSError):
        raise Invalid(f"{_short(word)} is not a time", field=_field(option), hint=TIME_RULE) from None


def _field(option: Option) -> str:
    return option.metavar if option.is_place else option.names[-1]


def _short(word: str) -> str:
    return ascii(word if len(word) <= 80 else f"{word[:80]}…")
