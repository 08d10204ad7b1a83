"""More SQLite stores with one planted bug each: for power cuts, damage, clocks and long days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from postroom.model.codec import decode_message
from postroom.model.message import Message
from postroom.store.base import Plan, Posted, Write
from postroom.store.sqlite import asking, rows
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
    "trusting": Trusting,
}
