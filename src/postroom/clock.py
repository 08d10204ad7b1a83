"""The clock and the id generator, which callers inject so that tests can replace them.

Neither decides the order of letters: a store numbers what it accepts. Leases go by the machine's uptime, never
by the wall clock.
"""

from __future__ import annotations

import os
import time
from _random import Random
from datetime import UTC, datetime
from typing import Protocol

from .environment import boot_id
from .model.query import Moment

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _CROCKFORD for b in _CROCKFORD]  # ten bits at a time
_DIGITS = bytes(ord(_CROCKFORD[byte % 32]) for byte in range(256))  # five bits of any byte, as a digit
_random = Random()
os.register_at_fork(after_in_child=_random.seed)  # parent and child must not draw the same numbers
UPTIME = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # counts while the machine sleeps, where it can


class Clock(Protocol):
    """A source of the present moment."""

    def now(self) -> Moment: ...


class Ids(Protocol):
    """A source of letter ids and lease tokens."""

    def message(self) -> str: ...
    def token(self) -> str: ...


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._boot = boot_id()

    def now(self) -> Moment:
        return Moment(wall=datetime.now(UTC), steady=time.clock_gettime(UPTIME), boot=self._boot)


class RandomIds:
    """A generator of ULIDs for letters and of 128 random bits for lease tokens."""

    def __init__(self) -> None:
        self._last = (-1, "")  # the last 1024 ms of an id, and their text

    def message(self) -> str:
        """Return a ULID: 48 bits of milliseconds and 80 random bits, in Crockford's base 32."""
        period, rest = divmod(time.time_ns() // 1_000_000, 1024)
        last, text = self._last
        if period != last:
            text = "".join([_PAIRS[(period >> shift) & 1023] for shift in range(30, -10, -10)])
            self._last = (period, text)
        noise = _random.getrandbits(128).to_bytes(16, "little")
        return text + _PAIRS[rest] + noise.translate(_DIGITS).decode()

    def token(self) -> str:
        return os.urandom(16).hex()
