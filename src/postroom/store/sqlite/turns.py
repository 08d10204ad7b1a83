"""A tap on the shoulder for whoever is next in line: a futex in memory the writers share.

Only a hint. Who holds the room is decided by the lock alone; a tap that is lost, because its giver was killed,
costs the next writer a few milliseconds. Without futexes (macOS) writers ask again after short random pauses.
"""

from __future__ import annotations

import mmap
import os
import time

from .futex import Futex, has_futex
from .lock import TURN_AT, WAITING_AT

_SIZE = TURN_AT + 8
_TURN = TURN_AT // 4  # the same, counted in words
NAP, LONG_NAP = 0.005, 0.1  # seconds after which a sleeper asks by itself: soon at first, then less and less often
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

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE)
        self._words = memoryview(self._memory).cast("I")
        self._futex = Futex(self._memory)

    def read(self) -> int:
        """Whose turn it is. Read it before the last try; sleep only if it has not changed since."""
        return self._words[_TURN]

    def wait(self, turn: int, seconds: float) -> None:
        """Sleep until somebody taps, but not for longer than this."""
        self._futex.wait(TURN_AT, turn, seconds)

    def expect(self) -> None:
        """Say that somebody waits. Whoever leaves after this taps."""
        self._memory[WAITING_AT] = 1

    def tap(self) -> None:
        """After leaving: wake one who waits, if anybody does."""
        if self._memory[WAITING_AT]:
            self._memory[WAITING_AT] = 0
            self._words[_TURN] = (self._words[_TURN] + 1) & 0xFFFFFFFF
            self._futex.wake(TURN_AT)

    def close(self) -> None:
        self._futex.close()
        self._words.release()
        self._memory.close()


def open_turns(descriptor: int) -> Turns | Pauses:
    """The turns kept in the lock file, or pauses where there can be none."""
    if not has_futex() or not _make_room(descriptor):
        return Pauses()
    return Turns(descriptor)


def _make_room(descriptor: int) -> bool:
    """Written, not only reserved: touching a hole on a full disk would kill the process."""
    try:
        if len(os.pread(descriptor, _SIZE, 0)) < _SIZE:
            os.pwrite(descriptor, bytes(_SIZE - TURN_AT), TURN_AT)
    except OSError:
        return False
    return True
