"""The stores that must keep the contract. A new one joins by one line in STORES."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from postroom.store.files.layouts.base import layout_named
from postroom.store.files.layouts.paths import NAMES
from postroom.store.files.store import FileStore
from postroom.store.protocol import Store
from postroom.store.sqlite.memory import MemoryStore
from postroom.store.sqlite.store import SqliteStore
from tests.letters import StillClock
from tests.postgres.server import address_in, programs


class Kind(Struct, frozen=True):
    """A kind of store. `open` is given a folder of its own and the name of the machine's boot."""

    name: str
    open: Callable[[Path, str], Store]
    lasts: bool  # does it outlive its process?
    in_files: bool = True  # here, where a test can read them
    patience: int = 1  # where one look takes so many times as long, so many times fewer are taken


def _files(layout: str) -> Kind:
    def open_files(folder: Path, boot: str) -> Store:
        return FileStore(folder / "mail", layout_named(layout), clock=StillClock(boot), durable=False)

    return Kind(layout, open_files, lasts=True, patience=4)


def _open_postgres(folder: Path, boot: str) -> Store:
    from postroom.store.postgres.store import PostgresStore

    return PostgresStore(address_in(folder), clock=StillClock(boot), durable=False)


# Rooms on a PostgreSQL server that the tests start, where there is one to start.
POSTGRES = (Kind("postgres", _open_postgres, lasts=True, in_files=False, patience=4),) if programs() else ()

# No power is cut here, so nobody waits for the disk; the tests of the store and of its faults do.
STORES = (
    Kind("memory", lambda _folder, boot: MemoryStore(clock=StillClock(boot)), lasts=False),
    Kind(
        "sqlite",
        lambda folder, boot: SqliteStore(folder / "room.db", clock=StillClock(boot), durable=False),
        lasts=True,
    ),
    *map(_files, NAMES),
    *POSTGRES,
)
CORE = STORES[1:2]  # where a test is about what stands above the store; one in memory is the same engine
