"""What the answer to a call means. Only its first line and one header count; the rest is thrown away.

No text of the other side is kept or shown: what went wrong is told in our own words, with its number.
"""

from __future__ import annotations

import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

LONGEST_PAUSE = 3600.0  # seconds that the other side may ask us to wait
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: .*)?")
_WAITING = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of a call."""

    status: int | None = None  # None: there was no answer
    problem: str = ""  # empty: it was rung
    pause: float | None = None  # seconds that were asked for before the next try

    @property
    def is_rung(self) -> bool:
        return not self.problem

    @property
    def is_gone(self) -> bool:
        """Does nobody want to be called there any more?"""
        return self.status == HTTPStatus.GONE

    @property
    def is_final(self) -> bool:
        """Is it an answer to whatever else was to be said just now?"""
        return self.is_gone or self.pause is not None


def status_of(line: bytes) -> int | None:
    """The number in the first line of an answer; None: it is no such line."""
    found = _STATUS.fullmatch(line)
    return None if found is None else int(found[1])


def outcome_of(status: int, headers: Mapping[str, str], now: datetime) -> Outcome:
    if 200 <= status < 300:
        return Outcome(status=status)
    pause = _pause(headers.get("retry-after", ""), now) if status in _WAITING else None
    return Outcome(status=status, problem=_told(status), pause=pause)


def _told(status: int) -> str:
    if 300 <= status < 400:
        return f"it answered {status}, which leads elsewhere; redirects are not followed"
    words = {one.value: one.phrase for one in HTTPStatus}
    return f"it answered {status} {words.get(status, '')}".rstrip()


def _pause(text: str, now: datetime) -> float | None:
    """Seconds, or a time, as the other side said it; within bounds. What cannot be read was not said."""
    if text.isascii() and text.isdecimal():
        return min(float(text[:9]), LONGEST_PAUSE)
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return None
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return min(max((until - now).total_seconds(), 0.0), LONGEST_PAUSE)
