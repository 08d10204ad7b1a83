"""A tap on the shoulder for whoever is next in line: a futex in memory the writers share.

Only a hint. Who holds the room is decided by the lock alone; a tap that is lost, because its giver was killed,
costs the next writer a few milliseconds. Without futexes (macOS) writers ask again after short random pauses.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from typing import Any

from .lock import SIZE, TURN_AT

SYSCALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}  # futex(2), by machine
_WAIT, _WAKE = 0, 1
NAP = 0.005  # seconds after which a sleeper asks by itself
SHORTEST, LONGEST = 0.00002, 0.0003  # seconds between two tries, where nobody can be tapped


class Pauses:
    """Without futexes: everybody asks again after a short random pause, so nobody is ahead for long."""

    def read(self) -> int:
        return 0

    def wait(self, turn: int, seconds: float) -> None:  # noqa: ARG002 - there are no turns here
        time.sleep(min(SHORTEST + (LONGEST - SHORTEST) * os.urandom(1)[0] / 255, seconds))

    def expect(self) -> None:
        pass

    def tap(self) -> None:
        pass

    def close(self) -> None:
        pass


class Turns:
    """With futexes: the one who leaves wakes one who waits."""

    def __init__(self, descriptor: int, syscall: Any, number: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)
        self._turn = ctypes.c_uint32.from_buffer(self._memory, TURN_AT)
        self._waiting = ctypes.c_uint32.from_buffer(self._memory, TURN_AT + 4)
        self._address = ctypes.addressof(self._turn)
        self._syscall = syscall
        self._number = number

    def read(self) -> int:
        """Whose turn it is. Read it before the last try; sleep only if it has not changed since."""
        return int(self._turn.value)

    def wait(self, turn: int, seconds: float) -> None:
        """Sleep until somebody taps, but not for long."""
        pause = _Timespec(0, int(min(seconds, NAP) * 1e9))
        self._syscall(self._number, self._address, _WAIT, turn, ctypes.byref(pause), None, 0)

    def expect(self) -> None:
        """Say that somebody waits. Whoever leaves after this taps."""
        self._waiting.value = 1

    def tap(self) -> None:
        """After leaving: wake one who waits, if anybody does."""
        if self._waiting.value:
            self._waiting.value = 0
            self._turn.value += 1
            self._syscall(self._number, self._address, _WAKE, 1, None, None, 0)

    def close(self) -> None:
        del self._turn, self._waiting
        self._memory.close()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def open_turns(descriptor: int) -> Turns | Pauses:
    """The turns kept in the lock file, or pauses where there can be none."""
    number = SYSCALL.get(os.uname().machine) if sys.platform == "linux" else None
    if number is None or not _make_room(descriptor):
        return Pauses()
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    syscall.argtypes += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
    return Turns(descriptor, syscall, number)


def _make_room(descriptor: int) -> bool:
    """Written, not only reserved: touching a hole on a full disk would kill the process."""
    try:
        if len(os.pread(descriptor, SIZE, 0)) < SIZE:
            os.pwrite(descriptor, bytes(SIZE - TURN_AT), TURN_AT)
    except OSError:
        return False
    return True
