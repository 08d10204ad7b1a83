"""SQLite stores with one planted bug each: such as only a store of this kind can have.

Bugs that any store could have are in `bugs.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from postroom.errors import StoreFailing
from postroom.model.codec import decode_message
from postroom.model.message import Message
from postroom.store.protocol import Plan, Posted, Write
from postroom.store.queries import Statement
from postroom.store.sqlite import backup, ground, rows, wal
from postroom.store.sqlite.connection import Connection
from postroom.store.sqlite.ground import sync_file
from postroom.store.sqlite.lock import WriterLock
from postroom.store.sqlite.store import SqliteStore
from postroom.store.sqlite.writes import WriteTransaction

T = TypeVar("T")


# -- syncs


class Unsynced(SqliteStore):
    """Reports success before the letter is on the disk."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, durable=False, **settings)


class SyncedTooEarly(Unsynced):
    """Syncs the log before it writes into it."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        conn = self.connection()
        conn.log.sync(conn.lock)
        return super().commit(writes)


class OfNoName(SqliteStore):
    """Never syncs the folder of a new room or a new log: their bytes are safe, under no name."""

    def __init__(self, path: Path, **settings: Any) -> None:
        _sync_paths_by(lambda _path: None)
        apsw.VFS("blind", "").xSetSystemCall("openDirectory", ctypes.cast(_NO_FOLDER, ctypes.c_void_p).value or 0)
        super().__init__(path, **settings)


def _sync_paths_by(sync: Callable[[ground.Place], None]) -> None:
    """In a process of its own."""
    for module in (ground, wal, backup):
        vars(module)["sync_path"] = sync


# SQLite syncs folders too, and does not mind if it cannot open them.
_NO_FOLDER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda _path, _to: 14)


class Shrugging(SqliteStore):
    """A folder or a copy that cannot be synced is nobody's business."""

    def __init__(self, path: Path, **settings: Any) -> None:
        _sync_paths_by(_sync_or_shrug)
        super().__init__(path, **settings)


def _sync_or_shrug(path: ground.Place, sync: Callable[[ground.Place], None] = ground.sync_path) -> None:
    with suppress(OSError):
        sync(path)


class EmptiedTooEarly(SqliteStore):
    """Starts the log over before the room's file is on the disk."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        self.connection().database.pragma("synchronous", "off")
        return super().commit(writes)


class Swallowing(SqliteStore):
    """A sync that fails is nobody's business."""

    def connection(self) -> Connection:
        conn = super().connection()
        conn.log.__class__ = _SwallowingLog
        return conn


class _SwallowingLog(wal.Log):
    def sync(self, lock: WriterLock) -> None:  # noqa: ARG002 - nobody is warned
        try:
            sync_file(self._descriptor)
        except OSError:
            return


class Retrying(SqliteStore):
    """A sync that fails is tried again, on the same descriptor, and then believed."""

    def connection(self) -> Connection:
        conn = super().connection()
        conn.log.__class__ = _RetryingLog
        return conn


class _RetryingLog(wal.Log):
    def sync(self, lock: WriterLock) -> None:  # noqa: ARG002 - nobody is warned
        try:
            sync_file(self._descriptor)
        except OSError:
            sync_file(self._descriptor)


class Unwarned(SqliteStore):
    """Where a warning cannot be written either, what the system says is passed on as it is."""

    def connection(self) -> Connection:
        conn = super().connection()
        conn.log.__class__ = _UnwarnedLog
        return conn


class _UnwarnedLog(wal.Log):
    def sync(self, lock: WriterLock) -> None:
        try:
            sync_file(self._descriptor)
        except OSError as failed:
            lock.mark_sync_failed()
            raise StoreFailing(f"the disk did not take the letter: {failed.strerror}") from None


# -- transactions and full disks


class Loose(SqliteStore):
    """No transaction: every statement is committed on its own."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        conn = self.connection()
        with conn.lock:
            conn.recover()
            planned = writes() if callable(writes) else writes
            posted = self._apply(conn, planned)
            conn.log.maintain(conn.lock)
        conn.log.sync(conn.lock)
        return posted

    def _apply(self, conn: Connection, planned: Sequence[Write]) -> tuple[Posted, ...]:
        writing = WriteTransaction(conn.database, conn.names)
        posted = writing.apply(planned)
        writing.remember()
        return posted


class Careless(SqliteStore):
    """Sets nothing aside for a full disk."""

    def connection(self) -> Connection:
        conn = super().connection()
        conn.log.__class__ = _CarelessLog
        return conn


class _CarelessLog(wal.Log):
    def check_disk_space(self, lock: WriterLock) -> None:
        pass

    def release_reserve(self, lock: WriterLock) -> None:  # noqa: ARG002 - there is nothing to give up
        raise apsw.FullError


# -- sums and indexes


def _believed(sum: int, body: bytes) -> Message:
    return decode_message(body)


class Trusting(SqliteStore):
    """Hands out letters without a look at their sums."""

    def fetch(self, make: Callable[[rows.Row], T], *questions: Statement) -> list[T]:
        checked, rows.sound = rows.sound, _believed
        try:
            return super().fetch(make, *questions)
        finally:
            rows.sound = checked


class Unindexed(SqliteStore):
    """Looks at every letter to find the first."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, **settings)
        self.connection().database.execute("DROP INDEX IF EXISTS deliveries_unread")


BUGS: dict[str, type[SqliteStore]] = {
    "unsynced": Unsynced,
    "synced too early": SyncedTooEarly,
    "emptied too early": EmptiedTooEarly,
    "of no name": OfNoName,
    "shrugging": Shrugging,
    "swallowing": Swallowing,
    "retrying": Retrying,
    "unwarned": Unwarned,
    "loose": Loose,
    "careless": Careless,
    "trusting": Trusting,
    "unindexed": Unindexed,
}
