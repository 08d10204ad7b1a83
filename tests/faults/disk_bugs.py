"""More SQLite stores with one planted bug each: for power cuts, damage, clocks and long days."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from postroom.store.base import Plan, Posted, Write
from postroom.store.sqlite.store import SqliteStore


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


class EmptiedTooEarly(SqliteStore):
    """Starts the log over before the room's file is on the disk."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        self._here().database.pragma("synchronous", "off")
        return super().commit(writes)


SQLITE: dict[str, type[SqliteStore]] = {
    "unsynced": Unsynced,
    "synced too early": SyncedTooEarly,
    "emptied too early": EmptiedTooEarly,
}
