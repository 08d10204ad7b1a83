"""What fault tests know of a room of files and of no other: how to hurry it, to measure it, to make it small."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from postroom.store.files import journal
from postroom.store.files.tree import INDEX, OWN_FOLDER
from tests.faults import sqlite_room

FOLDER = "mail"


def hurry() -> None:
    sqlite_room.checkpoint_often()
    journal.COMPACT_AT = 2000


def shrink() -> None:
    """A journal and a log that start over every few letters."""
    sqlite_room.shrink_log()
    journal.COMPACT_AT = 2000


def fill_small(folder: Path, first: Callable[[], None], second: Callable[[], None]) -> None:
    """Also the index beside the files."""
    sqlite_room.fill_small(folder / FOLDER / OWN_FOLDER, first, second, INDEX)
