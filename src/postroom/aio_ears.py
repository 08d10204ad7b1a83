"""Listening inside an event loop: one watch for all tasks that wait in a room. Above it stands `aio`."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .store.ears import POLL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .store.base import Store, Watch


class SharedEars:
    """One watch for all waiting tasks of a room; wakes those whose mailbox rang."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch: Watch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._poll: asyncio.TimerHandle | None = None

    @contextmanager
    def listen(self, mailboxes: Sequence[str]) -> Iterator[asyncio.Event]:
        """An event that is set whenever one of these mailboxes rings."""
        bell = asyncio.Event()
        self._open()
        for mailbox in mailboxes:
            if mailbox not in self._listeners:
                self._add(mailbox)
            self._listeners.setdefault(mailbox, set()).add(bell)
        try:
            yield bell
        finally:
            for mailbox in mailboxes:
                self._listeners.get(mailbox, set()).discard(bell)
            self._rest()

    def close(self) -> None:
        """Stop listening. Whoever still waits is woken, to find the room closed."""
        self._wake_all()
        self._listeners.clear()
        self._stop()

    def _wake_all(self) -> None:
        for bell in {bell for bells in self._listeners.values() for bell in bells}:
            bell.set()

    def _stop(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
        if self._watch is not None:
            if self._watch.fileno() >= 0 and self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watch is not None and self._loop is not loop:  # a room may outlive an event loop
            self.close()
        if self._watch is None:
            self._loop, self._watch = loop, self._store.watch(tuple(self._listeners))
            if self._watch.fileno() >= 0:
                loop.add_reader(self._watch.fileno(), self._hear)
            else:
                self._look_again(loop)

    def _add(self, mailbox: str) -> None:
        """One more mailbox. Where no bell can be hung for it, all are listened to anew, in what way there is; and
        whoever waits already looks once, for what may have rung meanwhile.
        """
        try:
            if self._watch is not None:
                self._watch.add(mailbox)
        except OSError:
            self._stop()
            self._listeners[mailbox] = set()
            self._open()
            self._wake_all()

    def _rest(self) -> None:
        """Who has to look again and again stops when nobody waits; the next may find bells to listen to."""
        if self._watch is not None and self._watch.fileno() < 0 and not any(self._listeners.values()):
            self._stop()

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Where nothing becomes readable, look at the bells now and then."""
        self._hear()
        self._poll = loop.call_later(POLL, self._look_again, loop)

    def _hear(self) -> None:
        if self._watch is not None:
            for mailbox in self._watch.rung():
                for bell in self._listeners.get(mailbox, ()):
                    bell.set()
