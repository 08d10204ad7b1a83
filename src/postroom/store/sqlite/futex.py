"""A word in memory that processes share, and on which they can sleep until another wakes them (Linux)."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import mmap

SYSCALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}  # futex(2), by machine
EVERYONE = 0x7FFFFFFF
_WAIT, _WAKE = 0, 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def has_futex() -> bool:
    return sys.platform == "linux" and os.uname().machine in SYSCALL


class Futex:
    """Words of 32 bits in a map of a file, each named by where it lies."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._first = ctypes.c_uint32.from_buffer(memory)
        self._address = ctypes.addressof(self._first)
        self._number = SYSCALL[os.uname().machine]
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self._syscall.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
        self._syscall.argtypes += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]

    def wait(self, at: int, value: int, seconds: float) -> None:
        """Sleep until somebody wakes us, if the word still has this value; but not for longer than this."""
        pause = _Timespec(int(seconds), int(seconds % 1 * 1e9))
        self._syscall(self._number, self._address + at, _WAIT, value, ctypes.byref(pause), None, 0)

    def wake(self, at: int, count: int = 1) -> None:
        self._syscall(self._number, self._address + at, _WAKE, count, None, None, 0)

    def close(self) -> None:
        """Before the memory is closed."""
        del self._first
