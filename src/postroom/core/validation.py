"""Checks of the plain values that callers pass: counts, seconds, lists, callbacks.

Any Python value may come in. A check returns the value in its normal form or raises `Invalid` with the field's
name.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

from ..errors import Invalid
from ..model import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.report import Progress


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
    if isinstance(value, names.Address):
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
