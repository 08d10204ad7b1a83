"""Time and fresh names, as things that can be handed in: tests bring their own.

Order never comes from here (stores number what they accept), and leases never from the wall clock.
"""

from __future__ import annotations

import random
import secrets
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Protocol

from .model.query import Moment

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_DIGITS = bytes(ord(_CROCKFORD[byte % 32]) for byte in range(256))  # five bits of any byte, as a digit
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
            self._last = (now, "".join([_CROCKFORD[(now >> shift) & 31] for shift in range(45, -5, -5)]))
        chance = random.getrandbits(128).to_bytes(16, "little")  # reseeded in a forked child
        return self._last[1] + chance.translate(_DIGITS).decode()

    def token(self) -> str:
        return secrets.token_hex(16)


@cache
def boot_id() -> str:
    """Names this boot of this machine."""
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    asked = subprocess.run(
        ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()
