"""The stores that must survive. A new one joins by one line in KINDS; one of another package by its address in the
environment: POSTROOM_FAULTS_GUEST=module:NAME_OF_ITS_KIND.

What a kind must have is its name, how it is opened, the scheme of its address, and those planted bugs that only a
store of its kind can have (OWN_BUGS). All else has a default that suits a store without secrets.

The processes of a fault test are given a kind and a bug by their names.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from msgspec import Struct

from postroom.store.files.layouts.base import layout_named
from postroom.store.files.layouts.paths import NAMES
from postroom.store.files.store import FileStore
from postroom.store.protocol import Store
from postroom.store.sqlite.store import SqliteStore
from tests.conftest import LONG
from tests.faults import bugs, files_bugs, files_room, sqlite_bugs, sqlite_room
from tests.faults.planting import BOOT, Opener, planted
from tests.letters import BootClock

SOUND = "sound"  # the name of no bug
GUEST = "POSTROOM_FAULTS_GUEST"
OWN_BUGS = frozenset(  # where it writes and syncs only the store itself can go wrong
    {"unsynced", "shrugging", "swallowing", "retrying", "loose", "careless", "trusting"}
)
EVERY_KIND = LONG or os.environ.get("POSTROOM_FAULTS_EVERY_KIND") == "1"  # no kind stands for another
CALLS = ("fsync", "fdatasync", "pwrite64", "rename", "unlink")


def nothing_is_rare() -> None:
    pass


def fill(_folder: Path, first: Callable[[], None], second: Callable[[], None]) -> None:
    first()
    second()


class Kind(Struct, frozen=True, kw_only=True):
    """A kind of store that outlives its process."""

    name: str
    open: Opener
    scheme: str  # of its address
    more: str = ""  # what its address ends in
    own_bugs: Mapping[
        str, Opener
    ]  # the same store with a planted bug: OWN_BUGS, and more where it has more to lose
    file: str = ""  # where in its folder the room lies
    late: tuple[str, ...] = ("unsynced",)  # which of its bugs lose what was promised when the machine stops
    calls: tuple[str, ...] = CALLS  # by which calls it changes its disk
    sync: str = "fdatasync"  # the one of them that makes a letter safe
    write: str = "pwrite64"  # and the one that writes it
    hurry: Callable[[], None] = nothing_is_rare  # in this process, let what is rare happen every few letters
    shrink: Callable[[], None] = nothing_is_rare  # the same, for a disk on which every write is tried
    fill_small: Callable[[Path, Callable[[], None], Callable[[], None]], None] = fill  # in few bytes
    derived: tuple[str, ...] = ()  # how files end that hold nothing to remember
    open_ended: tuple[str, ...] = ()  # how files end that, cut short, look as if they had never been longer
    steps: Callable[[Store, Callable[[], object]], int] | None = None  # what some work costs, if that can be told
    letters: int = 20_000  # in one inbox, in the short form
    share: float = 1.0  # of the calls that are tried in the short form
    damages: int = 150  # flips, and as many cuts, in the short form
    bodies: Callable[[Path], set[bytes]] | None = None  # what a look-up finds in a damaged room; None: its bytes
    heals: bool = False  # is a damaged room whole again once it is opened, without a doctor?
    promises_nothing: tuple[str, ...] = ()  # how files end that may be lost: they are made anew
    stops_at: tuple[str, ...] = ()  # walls behind which even an ack is refused, for a time
    inodes: int = 24  # that a room of some letters has left over
    slack: Mapping[str, int] = {}  # by how many calls of a kind two sessions may differ: some look at the clock
    kills: int = 60  # in the short form of the storm
    like: str = ""  # another kind that stands for it where the short form would be too long
    mark: str = ""  # by which its tests can be chosen
    copies: str = ""  # the scheme of its copies, where that is another

    def with_bug(self, bug: str) -> Opener:
        return self.own_bugs[bug] if bug in self.own_bugs else planted(bugs.BUGS[bug], self.open)

    def address(self, folder: Path) -> str:
        """Where the doctor finds the room of this folder."""
        return f"{self.scheme}:{folder / self.file}{self.more}"

    def address_of(self, copy: Path) -> str:
        return f"{self.copies or self.scheme}:{copy}"

    def salvage(self, folder: Path) -> Path:
        """Where the doctor lays what he could save of it."""
        return Path(f"{folder / self.file}.salvaged")


def sqlite(make: type[SqliteStore]) -> Opener:
    return lambda folder, boot=BOOT: make(folder / sqlite_room.FILE, clock=BootClock(boot))


def guests() -> tuple[Kind, ...]:
    """The kind that the environment names."""
    module, colon, name = os.environ.get(GUEST, "").partition(":")
    return (getattr(importlib.import_module(module), name),) if colon else ()


SQLITE = Kind(
    name="sqlite",
    open=sqlite(SqliteStore),
    scheme="sqlite",
    own_bugs={name: sqlite(bug) for name, bug in sqlite_bugs.BUGS.items()},
    file=sqlite_room.FILE,
    late=("unsynced", "synced too early", "emptied too early", "of no name"),
    hurry=sqlite_room.checkpoint_often,
    shrink=sqlite_room.shrink_log,
    fill_small=sqlite_room.fill_small,
    derived=("-shm", ".reserve"),
    open_ended=("-wal",),
    steps=sqlite_room.steps,
    bodies=sqlite_room.bodies,
)


def files(layout: str) -> Kind:
    def opening(make: type[FileStore]) -> Opener:
        at = layout_named(layout)
        return lambda folder, boot=BOOT: make(folder / files_room.FOLDER, at, clock=BootClock(boot))

    return Kind(
        name=layout,
        open=opening(FileStore),
        scheme="files",
        more=f"?layout={layout}",
        own_bugs={name: opening(bug) for name, bug in files_bugs.BUGS.items()},
        file=files_room.FOLDER,
        fill_small=files_room.fill_small,
        derived=SQLITE.derived,
        open_ended=SQLITE.open_ended,
        steps=sqlite_room.steps,
        late=("unsynced", "of no name", "unread"),
        calls=("fsync", "fdatasync", "pwrite64", "write", "rename", "renameat2", "unlink"),
        slack={"pwrite64": 40},
        inodes=140,
        share=0.25,
        damages=40,
        letters=2_000,
        heals=True,
        promises_nothing=("/index.db", "/index.db-wal"),
        stops_at=("read-only",),  # the files are the truth
        hurry=files_room.hurry,
        shrink=files_room.shrink,
        write="write",
        kills=25,
        like="" if layout == NAMES[0] else NAMES[0],
        mark="files",
        copies="sqlite",
    )


OURS = (SQLITE, *map(files, NAMES))
KINDS = (*OURS, *guests())


def param(kind: Kind, *more: object) -> ParameterSet:
    """For tests that run over kinds, with the mark by which they can be chosen."""
    marks = [getattr(pytest.mark, kind.mark)] if kind.mark else []
    return pytest.param(kind, *more, marks=marks, id="-".join([kind.name, *map(str, more)]))


def named(kind: str) -> Kind:
    (found,) = (each for each in KINDS if each.name == kind)
    return found


def opener(kind: str, bug: str = SOUND) -> Opener:
    """How a process opens the room, from the words it was given."""
    return named(kind).open if bug == SOUND else named(kind).with_bug(bug)
