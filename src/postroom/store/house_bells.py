"""Waking those who wait in the same process."""

from __future__ import annotations

import contextlib
import os
from _thread import allocate_lock
from typing import TYPE_CHECKING

from .ears import readable

if TYPE_CHECKING:
    from collections.abc import Iterable


class HouseBells:
    """Bells for the threads of one process."""

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self._watches: set[HouseWatch] = set()

    def ring(self, mailboxes: Iterable[str]) -> None:
        rung = set(mailboxes)
        with self.lock:
            for watch in self._watches:
                watch.hear(rung)

    def watch(self, mailboxes: Iterable[str]) -> HouseWatch:
        watch = HouseWatch(self, set(mailboxes))
        with self.lock:
            self._watches.add(watch)
        return watch

    def forget(self, watch: HouseWatch) -> None:
        with self.lock:
            self._watches.discard(watch)


class HouseWatch:
    """An ear in the same process: a pipe that becomes readable."""

    def __init__(self, bells: HouseBells, mailboxes: set[str]) -> None:
        self._bells = bells
        self._mailboxes = mailboxes
        self._rung: set[str] = set()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def add(self, mailbox: str) -> None:
        self._mailboxes.add(mailbox)

    def hear(self, mailboxes: set[str]) -> None:
        """Called by the bells, under their lock."""
        heard = mailboxes & self._mailboxes
        if heard:
            self._rung |= heard
            with contextlib.suppress(BlockingIOError):  # the pipe is full: it rings already
                os.write(self._writer, b"!")

    def wait(self, timeout: float) -> bool:
        return readable(self._reader, timeout) and bool(self.rung())

    def fileno(self) -> int:
        return self._reader

    def rung(self) -> set[str]:
        with self._bells.lock:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 65536)
            rung, self._rung = self._rung, set()
        return rung

    def close(self) -> None:
        if self._reader >= 0:
            self._bells.forget(self)
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1
