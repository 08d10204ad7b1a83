"""The stores that must survive. A new one joins by one line in KINDS.

The processes of a fault test are given a kind and a bug by their names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from postroom.store.base import Store
from postroom.store.sqlite.store import SqliteStore
from postroom.whereabouts import boot_id
from tests.faults import bugs, disk_bugs, sqlite_room

Opener: TypeAlias = Callable[[Path], Store]
SOUND = "sound"  # the name of no bug


class Kind(Struct, frozen=True):
    """A kind of store that outlives its process. `open` is given a folder of its own."""

    name: str
    open: Opener
    bugs: dict[str, Opener]  # the same store with a planted bug
    file: str  # what of its folder is given to the doctor
    hurry: Callable[[], None]  # in this process, let what is rare (a checkpoint) happen every few letters
    shrink: Callable[[], None]  # the same, for a disk on which every write is tried
    fill_small: Callable[[Path, Callable[[], None], Callable[[], None]], None]  # by two fillers, in few bytes
    derived: tuple[str, ...] = ()  # how files end that hold nothing to remember
    steps: Callable[[Store, Callable[[], object]], int] | None = None  # what some work costs, if that can be told
    carries: bool = False  # does one process write the letters of others?
    on_carrying: Callable[[Callable[[], None]], None] = lambda _told: None  # in this process, tell when it does


def sqlite(make: type[SqliteStore]) -> Opener:
    return lambda folder: make(folder / sqlite_room.FILE, boot=boot_id())


SQLITE_BUGS = bugs.SQLITE | disk_bugs.SQLITE


KINDS = (
    Kind(
        "sqlite",
        sqlite(SqliteStore),
        {name: sqlite(bug) for name, bug in SQLITE_BUGS.items()},
        file=sqlite_room.FILE,
        hurry=sqlite_room.checkpoint_often,
        shrink=sqlite_room.shrink_log,
        fill_small=sqlite_room.fill_small,
        derived=("-shm", ".reserve"),
        steps=sqlite_room.steps,
        carries=True,
        on_carrying=sqlite_room.tell_of_answers,
    ),
)


def named(kind: str) -> Kind:
    (found,) = (each for each in KINDS if each.name == kind)
    return found


def opener(kind: str, bug: str = SOUND) -> Opener:
    """How a process opens the room, from the words it was given."""
    return named(kind).open if bug == SOUND else named(kind).bugs[bug]
