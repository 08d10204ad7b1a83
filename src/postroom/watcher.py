"""Watches of a store in an event loop: one for all tasks that wait for mail, of the async face or of the server,
and one for a service that follows all commits of a room.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .store.notification import POLL, ROOM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .core.core import Core
    from .store.protocol import Watch


POLL_ROOM = 1.0  # seconds between two signals of `room_watch` from a store without notifications


@contextmanager
def room_watch(core: Core, changed: Callable[[], object]) -> Iterator[None]:
    """Call `changed` at each commit to the room and, where folders are the room, at each file for another system.

    Every commit of the room pays for it while the block runs, so a service that has just looked leaves the block.
    """
    loop, watch = asyncio.get_running_loop(), core.store.watch((ROOM,))

    def notified() -> None:
        watch.notified()
        changed()

    async def poll() -> None:
        while True:
            await asyncio.sleep(POLL_ROOM)
            notified()

    # A store without a descriptor (memory, a disk where inotify is spent) has nothing that an event loop could
    # watch.
    polling = None if watch.fileno() >= 0 else asyncio.ensure_future(poll())
    if polling is None:
        loop.add_reader(watch.fileno(), notified)
    try:
        yield
    finally:
        if polling is None:
            loop.remove_reader(watch.fileno())
        else:
            polling.cancel()
        watch.close()


class SharedWatcher:
    """One store watch for all waiting tasks of a room; wakes the tasks whose mailbox was notified.

    It is used from one event loop at a time, never from a thread.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._watch: Watch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._poll: asyncio.TimerHandle | None = None

    @contextmanager
    def listen(self, mailboxes: Sequence[str]) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever one of these mailboxes is notified."""
        event = asyncio.Event()
        self._open()
        for mailbox in mailboxes:
            if mailbox not in self._listeners:
                self._add(mailbox)
            self._listeners.setdefault(mailbox, set()).add(event)
        try:
            yield event
        finally:
            for mailbox in mailboxes:
                self._listeners.get(mailbox, set()).discard(event)
            self._rest()

    def close(self) -> None:
        """Stop listening, and wake every waiting task, which then finds the room closed."""
        self._wake_all()
        self._listeners.clear()
        self._stop()

    def _wake_all(self) -> None:
        for event in {event for events in self._listeners.values() for event in events}:
            event.set()

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
            self._loop, self._watch = loop, self._core.store.watch(tuple(self._listeners))
            if self._watch.fileno() >= 0:
                loop.add_reader(self._watch.fileno(), self._wake_notified)
            else:
                self._poll_again(loop)

    def _add(self, mailbox: str) -> None:
        """Watch one more mailbox.

        If the watch cannot take it (inotify's limits), open a new watch of whatever kind is possible for all
        mailboxes, and wake every waiting task once: a notification may have been lost in between.
        """
        try:
            if self._watch is not None:
                self._watch.add(mailbox)
        except OSError:
            self._stop()
            # Listed before the new watch opens, so that the new one covers this mailbox, too.
            self._listeners[mailbox] = set()
            self._open()
            self._wake_all()

    def _rest(self) -> None:
        """Stop polling when no task waits; the next task may get a watch with a descriptor."""
        if self._watch is not None and self._watch.fileno() < 0 and not any(self._listeners.values()):
            self._stop()

    def _poll_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Poll the watch now and then: without a descriptor, nothing becomes readable."""
        self._wake_notified()
        self._poll = loop.call_later(POLL, self._poll_again, loop)

    def _wake_notified(self) -> None:
        if self._watch is not None:
            for mailbox in self._watch.notified():
                for event in self._listeners.get(mailbox, ()):
                    event.set()
