"""Notification between machines: LISTEN and NOTIFY, with polling where they are not to be had.

A bell is rung after the letters are durable, in a transaction that waits for no disk, once for all letters of a
batch. It names the mailboxes and the process that rang, which has told its own waiters already. One connection of
each process listens, while something there waits. A bell may come late, twice or never: a waiter looks again by
itself.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
import psycopg

from ...errors import PostroomError
from ..notification import EVERYONE, MANY, ROOM, LocalNotifier

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ..notification import LocalWatch
    from .connection import Database, RoomConnection

LISTENERS = 10  # connections of one server that listen: each makes every bell dearer
POLL = 0.05  # seconds between two looks of a process that cannot listen
FIRST = 5.0  # seconds that the first watch waits for the connection
PATIENCE = 1.0  # seconds between two tries to listen again
LARGEST = 7000  # bytes of a bell
NAME = "postroom-listener"
_HOW_MANY = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
_NEWEST = "SELECT ROOM.next_number()"


class ServerNotifier(LocalNotifier):
    """A notifier between the processes that use one room, on any machine."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._own = os.urandom(6).hex()
        self._listener: threading.Thread | None = None
        self._ready = threading.Event()  # it listens, or has failed to
        self._stop = threading.Event()

    def bell(self, *commits: Collection[str]) -> str:
        """Return what to ring for some commits."""
        wanted: set[str] = set()
        for mailboxes in commits:
            wanted |= {EVERYONE} if len(mailboxes) > MANY else set(mailboxes)
        bell = msgspec.json.encode([self._own, *sorted(wanted)])
        return (bell if len(bell) < LARGEST else msgspec.json.encode([self._own, EVERYONE])).decode()

    def tell(self, *commits: Collection[str]) -> None:
        """Wake the waiters of this process."""
        if commits:
            self.notify(self.open_signals(*commits))

    def watch(self, mailboxes: Iterable[str]) -> LocalWatch:
        watch = super().watch(mailboxes)
        with self.lock:
            if self._listener is None or not self._listener.is_alive():  # none outlives a fork
                self._ready = threading.Event()
                self._listener = threading.Thread(target=self._run, args=(self._ready,), name=NAME, daemon=True)
                self._listener.start()
        # What is sent after the caller's next look must ring: so LISTEN comes before that look.
        self._ready.wait(FIRST)
        return watch

    def close(self) -> None:
        self._stop.set()

    # -- the thread that listens

    def _run(self, ready: threading.Event) -> None:
        while not self._stop.is_set():
            try:
                self._listen(ready)
            except (psycopg.Error, PostroomError):
                ready.set()
                self._stop.wait(PATIENCE)

    def _listen(self, ready: threading.Event) -> None:
        with self._database.connect(application_name=NAME) as connection:
            may_listen = not self._database.address.pooled
            if may_listen:
                connection.execute(f'LISTEN "postroom {self._database.address.schema}"')
                found = connection.execute(_HOW_MANY, [NAME]).fetchone()
                may_listen = found is not None and found[0] <= LISTENERS
            if not may_listen:
                with suppress(psycopg.Error):
                    connection.execute("UNLISTEN *")
                self._poll(connection, ready)
                return
            if ready.is_set():
                self._tell_all()  # what was sent between two connections rang for nobody
            ready.set()
            while not self._stop.is_set():
                for notice in connection.notifies(timeout=0.5):
                    self._take(notice.payload)
                    if self._stop.is_set():
                        break

    def _poll(self, connection: RoomConnection, ready: threading.Event) -> None:
        """Look for a new number now and then, and wake everybody."""
        sql, seen = self._database.sql(_NEWEST), None
        while not self._stop.is_set():
            newest = connection.execute(sql).fetchone()
            if seen is not None and newest != seen:
                self._tell_all()
            seen = newest
            ready.set()
            self._stop.wait(POLL)

    def _take(self, payload: str) -> None:
        own, *mailboxes = msgspec.json.decode(payload, type=list[str])
        if own == self._own:
            return
        if EVERYONE in mailboxes:
            self._tell_all()
        else:
            self.notify([ROOM, *mailboxes])

    def _tell_all(self) -> None:
        with self.lock:
            for watch in self._watches:
                watch.notify(watch.mailboxes)
