"""Rooms in files, to test with."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from postroom.store.sqlite.store import SqliteStore
from tests.letters import BOOT, BootClock


@contextmanager
def opened(path: Path | str, boot: str = BOOT, **settings: Any) -> Iterator[SqliteStore]:
    """The room at this path, closed afterwards."""
    store = SqliteStore(path, clock=BootClock(boot), **settings)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def database(path: Path | str) -> Iterator[apsw.Connection]:
    """The room's file as any other program sees it."""
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    try:
        yield connection
    finally:
        connection.close()


def empty_log(path: Path) -> None:
    """Bring all of the log into the main file."""
    with database(path) as room:
        room.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # without a look there is no log to empty
        room.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def descriptors() -> int:
    """How many files this process holds open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
