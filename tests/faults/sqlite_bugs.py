"""More SQLite stores with one planted bug each: for power cuts, damage, clocks and long days."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import apsw

from postroom.errors import StoreFailing
from postroom.model.codec import decode_message
from postroom.model.health import Progress
from postroom.model.message import Message
from postroom.store.base import Plan, Posted, Write
from postroom.store.sqlite import asking, backup, ground, rows, wal
from postroom.store.sqlite.store import SqliteStore

T = TypeVar("T")


class Unsynced(SqliteStore):
    """Reports success before the letter is on the disk."""

    def __init__(self, path: Path, **settings: Any) -> None:
        super().__init__(path, durable=False, **settings)


class SyncedTooEarly(Unsynced):
    """Syncs the log before it writes into it."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        here = self._here()
        here.log.sync(here.lock)
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


class Misnaming(SqliteStore):
    """A copy that cannot be given its name was made all the same: its name is given to nothing."""

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        with suppress(StoreFailing):
            return super().backup(path, overwrite=overwrite, progress=progress)
        path.touch()
        return 0


class EmptiedTooEarly(SqliteStore):
    """Starts the log over before the room's file is on the disk."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        self._here().database.pragma("synchronous", "off")
        return super().commit(writes)


def _believed(sum: int, body: bytes) -> Message:
    return decode_message(body)


class Trusting(SqliteStore):
    """Hands out letters without a look at their sums."""

    def _sound(self, make: Callable[[rows.Row], T], *questions: asking.Statement) -> list[T]:
        checked, rows.sound = rows.sound, _believed
        try:
            return super()._sound(make, *questions)
        finally:
            rows.sound = checked


SQLITE: dict[str, type[SqliteStore]] = {
    "unsynced": Unsynced,
    "synced too early": SyncedTooEarly,
    "emptied too early": EmptiedTooEarly,
    "of no name": OfNoName,
    "shrugging": Shrugging,
    "misnaming": Misnaming,
    "trusting": Trusting,
}
