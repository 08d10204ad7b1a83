"""What callers say, before it means anything: numbers and lists of names. Any value may come in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from ..errors import Invalid
from ..model import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.report import Progress


MOST = 2**53  # the largest count anyone needs
FOR_EVER = 1e12  # seconds
LONGEST_QUOTE = 80


def check_count(value: Any, field: str, *, least: int = 1, most: int = MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Invalid(f"{quoted(value)} is not a number of this kind", field=field, hint=f"{least:,} to {most:,}")
    return int(value)


def check_limit(value: Any) -> int | None:
    """How many are wanted at most; None means all."""
    return None if value is None else check_count(value, "limit")


def check_seconds(value: Any, field: str, *, above: float = -math.ulp(0), most: float = math.inf) -> float:
    """A span of time, zero or longer; more than `above` and at most `most`."""
    if (type(value) is float or type(value) is int) and above < value <= most and value < FOR_EVER:  # most of them
        return float(value)
    if isinstance(value, (int, float)) and value > most:
        raise Invalid("is too long", field=field, hint=f"up to {most:g} seconds")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not above < value <= most:
        hint = f"more than {max(above, 0):g}, up to {most:g}" if above >= 0 else "zero or more"
        raise Invalid(f"{quoted(value)} is not a number of seconds", field=field, hint=hint)
    return float(min(value, FOR_EVER))


def listed(value: Any, field: str) -> Sequence[Any]:
    """One name, or a list of them, always in the same order."""
    if isinstance(value, (str, dict)):  # an address may be told by its pieces
        return (value,)
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)  # or the same letter sent again would not be the same
    if isinstance(value, names.Address):
        return (value,)
    raise Invalid(f"must be a name or a list of names, not {type(value).__name__}", field=field)


def progress_of(progress: Any) -> Progress:
    """Whom to tell how far the work is."""
    if progress is None:
        return _nobody
    if not callable(progress):
        raise Invalid(f"must be a function, not {type(progress).__name__}", field="progress", hint="(done, total)")
    return cast("Progress", progress)


def _nobody(_done: int, _total: int) -> None:
    """Nobody wants to know."""


def quoted(value: Any) -> str:
    """The value as an error may show it: short, and harmless to print."""
    try:
        text = ascii(value)
    except ValueError:  # Python refuses to write out an integer of thousands of digits
        return "a huge number"
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"
