"""Time and fresh names, as things that can be handed in: tests bring their own.

Order never comes from here (stores number what they accept), and leases never from the wall clock.
"""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime
from typing import Protocol

from .model.query import Moment
from .whereabouts import boot_id

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _CROCKFORD for b in _CROCKFORD]  # ten bits at a time
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
        self._last = (-1, "")  # the millisecond of the last id, and how it is written

    def message(self) -> str:
        now = time.time_ns() // 1_000_000
        if now != self._last[0]:
            self._last = (now, _crockford(now, 50))
        return self._last[1] + _crockford(random.getrandbits(80), 80)  # reseeded in a forked child

    def token(self) -> str:
        return os.urandom(16).hex()


def _crockford(number: int, bits: int) -> str:
    return "".join([_PAIRS[(number >> shift) & 1023] for shift in range(bits - 10, -10, -10)])
