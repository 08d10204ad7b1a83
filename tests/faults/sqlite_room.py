"""What fault tests know of a SQLite room and of no other: how to hurry it, to measure it, to make it small."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest import mock

import apsw

from postroom.store.protocol import Store
from postroom.store.sqlite import wal
from postroom.store.sqlite.store import SqliteStore

FILE = "room.db"
HIGHEST = 200  # no room that is damaged here has so many letters and changes
LETTER = "SELECT sum, body FROM letters WHERE number = ?"


def checkpoint_often() -> None:
    wal.CHECKPOINT_PAGES = 40


def shrink_log() -> None:
    """A log that starts over every few letters: checkpoints come into the picture."""
    wal.CHECKPOINT_PAGES, wal.STEP = 24, 64 * 1024
    wal.LARGEST = 32 + wal.FRAME * (24 + 64)


def steps(store: Store, work: Callable[[], object]) -> int:
    """How many steps SQLite takes for this, in tens."""
    count = 0

    def tick() -> bool:
        nonlocal count
        count += 1
        return False

    assert isinstance(store, SqliteStore)
    database = store.connection().database
    database.set_progress_handler(tick, 10)
    try:
        work()
    finally:
        database.set_progress_handler(None)
    return count


def bodies(room: Path) -> set[bytes]:
    """The letters that SQLite finds by their numbers, with their checksums, in the room of this file."""
    found = set()
    database = apsw.Connection(str(room))
    try:
        for number in range(HIGHEST):
            with suppress(apsw.Error, UnicodeDecodeError):
                found |= {body for _, body in database.execute(LETTER, (number,)) if isinstance(body, bytes)}
    finally:
        database.close()
    return found


def fill_small(folder: Path, first: Callable[[], None], second: Callable[[], None], file: str = FILE) -> None:
    """Let the room in this folder be filled so that a part lies in its file and a part in its log; in small pages,
    so that few of its bytes mean nothing.
    """
    with mock.patch.object(wal, "STEP", 1024), mock.patch.object(wal, "LARGEST", 4096):
        first()
        room = apsw.Connection(str(folder / file))
        room.pragma("journal_mode", "delete")
        room.pragma("page_size", 512)
        room.execute("VACUUM")
        room.pragma("journal_mode", "wal")
        room.close()
        second()
