"""The stores that must survive. A new one joins by one line in KINDS.

The processes of a fault test are given a kind and a bug by their names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from postroom.store.base import Store
from postroom.store.sqlite import tray, wal
from postroom.store.sqlite.store import SqliteStore
from postroom.whereabouts import boot_id
from tests.faults import bugs, disk_bugs

Opener: TypeAlias = Callable[[Path], Store]
SOUND = "sound"  # the name of no bug


class Kind(Struct, frozen=True):
    """A kind of store that outlives its process. `open` is given a folder of its own."""

    name: str
    open: Opener
    bugs: dict[str, Opener]  # the same store with a planted bug
    hurry: Callable[[], None]  # in this process, let what is rare (a checkpoint) happen every few letters
    carries: bool = False  # does one process write the letters of others?
    on_carrying: Callable[[Callable[[], None]], None] = lambda _told: None  # in this process, tell when it does


def sqlite(make: type[SqliteStore]) -> Opener:
    return lambda folder: make(folder / "room.db", boot=boot_id())


SQLITE_BUGS = bugs.SQLITE | disk_bugs.SQLITE


def checkpoint_often() -> None:
    wal.CHECKPOINT_PAGES = 40


def tell_of_answers(told: Callable[[], None]) -> None:
    reply = tray.Tray.reply

    def reply_and_tell(self: tray.Tray, slot: int, answer: bytes | None) -> None:
        reply(self, slot, answer)
        if answer is not None:
            told()

    tray.Tray.reply = reply_and_tell  # type: ignore[method-assign]


KINDS = (
    Kind(
        "sqlite",
        sqlite(SqliteStore),
        {name: sqlite(bug) for name, bug in SQLITE_BUGS.items()},
        checkpoint_often,
        carries=True,
        on_carrying=tell_of_answers,
    ),
)


def named(kind: str) -> Kind:
    (found,) = (each for each in KINDS if each.name == kind)
    return found


def opener(kind: str, bug: str = SOUND) -> Opener:
    """How a process opens the room, from the words it was given."""
    return named(kind).open if bug == SOUND else named(kind).bugs[bug]
