"""Time and fresh names, as things that can be handed in: tests bring their own.

Order never comes from here (stores number what they accept), and leases never from the wall clock.
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
_chance = Random()
os.register_at_fork(after_in_child=_chance.seed)  # two processes must not draw the same
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    def now(self) -> Moment: ...


class Ids(Protocol):
    def message(self) -> str: ...
    def token(self) -> str: ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Moment:
        return Moment(wall=datetime.now(UTC), steady=time.clock_gettime(_STEADY), boot=boot_id())


class RandomIds:
    """ULIDs for letters; 128 random bits for leases."""

    def __init__(self) -> None:
        self._last = (-1, "")  # the second of the last id, more or less, and how it is written

    def message(self) -> str:
        seconds, rest = divmod(time.time_ns() // 1_000_000, 1024)
        last, written = self._last
        if seconds != last:
            written = "".join([_PAIRS[(seconds >> shift) & 1023] for shift in range(30, -10, -10)])
            self._last = (seconds, written)
        chance = _chance.getrandbits(128).to_bytes(16, "little")
        return written + _PAIRS[rest] + chance.translate(_DIGITS).decode()

    def token(self) -> str:
        return os.urandom(16).hex()
