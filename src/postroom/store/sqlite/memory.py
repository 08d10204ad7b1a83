"""A room in the memory of one process: the same tables on SQLite's memdb, with a connection for each thread.

It promises all that a room in a file promises, but its mail ends with the `MemoryStore` object. There is no log,
no sync and no text index; the writers' lock and the notifications reach the threads of this process alone.
"""

from __future__ import annotations

import os
from _thread import allocate_lock, get_ident
from contextlib import nullcontext
from typing import TYPE_CHECKING

import apsw

from ...errors import BadStore, StoreBusy
from ...model.report import note
from ..notification import LocalNotifier
from .connection import Connection, NameCache, configure, enter, translated
from .lock import WriterLock
from .schema import bring_up
from .search import Index
from .store import SqliteStore
from .wal import Log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ...clock import Clock
    from ...model.report import Finding, Progress


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI


class MemoryStore(SqliteStore):
    """A room that lives as long as this object."""

    def __init__(self, *, clock: Clock | None = None, busy_timeout: float = 30.0) -> None:
        self._lock = MemoryLock(busy_timeout)
        name = f"file:/{os.urandom(8).hex()}?vfs=memdb"
        self._anchor = apsw.Connection(name, flags=_FLAGS)  # SQLite keeps the room while a connection is open
        notifier = LocalNotifier()
        super().__init__(name, clock=clock, durable=False, busy_timeout=busy_timeout, notifier=notifier)

    def connect(self) -> MemoryConnection:
        return MemoryConnection(self.path, self._lock, boot=self.boot, busy_timeout=self.busy_timeout)

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()  # nothing is synced, and other threads need not wait for all of it

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:  # noqa: ARG002
        """Report how little the room promises: nothing here could break by itself."""
        yield note("durability", "this room is in memory: its mail ends with its process", "open a file instead")

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:  # noqa: ARG002
        raise BadStore("a room in memory has no file to copy", field="store", hint="use export()")


class MemoryLock(WriterLock):
    """The writers' lock of a room in memory, for the threads of one process."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.is_short = self.sync_failed = False
        self._lock = allocate_lock()
        self._holder = 0  # the thread that holds it

    def acquire(self) -> None:
        if not self._lock.acquire(timeout=self.timeout):
            raise StoreBusy("another thread holds the room", hint="try again")
        self._holder = get_ident()

    def release(self) -> None:
        if self._holder == get_ident():
            self._holder = 0
            self._lock.release()

    def close(self) -> None:
        """Nothing is held open."""


class MemoryConnection(Connection):
    """One thread's connection to a room in memory."""

    def __init__(self, path: str, lock: MemoryLock, *, boot: str, busy_timeout: float) -> None:
        self._closing = allocate_lock()
        self.path = path
        self.lock = lock
        with translated(path), lock:
            self.database = apsw.Connection(path, flags=_FLAGS)
            configure(self.database, int(busy_timeout * 1000))
            self.database.pragma("temp_store", "memory")
            self.read_cursor = self.database.cursor()
            self.names = NameCache(self.database)
            self.log = NoLog()
            bring_up(self.database, path)
            with self.database:
                enter(self.database, boot)

    def recover(self) -> None:
        # An interrupt (Ctrl-C) between BEGIN and COMMIT left it open.
        if self.database.in_transaction:
            self.database.execute("ROLLBACK")

    @property
    def index(self) -> Index:
        return NoIndex()


class NoLog(Log):
    """In place of the log: there is nothing to check, to sync or to checkpoint."""

    def __init__(self) -> None:
        pass

    def check_index(self) -> None:
        pass

    def check_complete(self) -> None:
        pass

    def maintain(self, lock: WriterLock) -> None:
        pass

    def sync(self, lock: WriterLock) -> None:
        pass

    def release_reserve(self, lock: WriterLock) -> None:
        pass

    def close(self) -> None:
        pass


class NoIndex(Index):
    """In place of the text index: it can never be opened, so every search reads the letters themselves."""

    def __init__(self) -> None:
        self._database = self._lock = None

    def _open(self) -> apsw.Connection:
        raise StoreBusy("a room in memory has no text index")

    def _hold(self) -> WriterLock:
        raise StoreBusy("a room in memory has no text index")
