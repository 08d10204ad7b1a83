"""The health of a room of files: its index, as of any room; and are files and journal what they were?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import Unreadable
from ...model.health import error, ok
from . import accepting, compacting, letters, paper, reconciling
from .layouts.base import Where

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...model.health import Finding
    from ..sqlite.rows import Row
    from .connection import FileConnection
    from .store import FileStore

MOST = 10  # files or lines that one finding tells
_FILES = """
SELECT f.number, m.name, f.folder, f.name FROM files f JOIN mailboxes m ON m.id = f.mailbox
ORDER BY f.folder, f.name"""


def examine(store: FileStore, of_the_index: Iterator[Finding], *, repair: bool, full: bool) -> Iterator[Finding]:
    if store.made_anew:
        lost = "leases and failed attempts, which no file tells, are gone"
        yield error("index", f"it was made anew from the files; {lost}: {store.made_anew}", repaired=True)
    yield from of_the_index
    here = store.connection()
    yield from _journal(here, repair=repair)
    if full:
        yield from _files(store, here, repair=repair)


def _journal(here: FileConnection, *, repair: bool) -> Iterator[Finding]:
    with here.lock:
        damaged = here.journal.damaged()
        if damaged and repair:
            here.mend()
            compacting.compact(here)
    if damaged:
        told = ", ".join(map(str, damaged[:MOST]))
        what = f"{len(damaged)} lines cannot be read: {told}; the index has what they said"
        yield error(
            "journal", what, "" if repair else "repair=True writes it anew from the index", repaired=repair
        )
    else:
        yield ok("journal", "every line can be read")


def _files(store: FileStore, here: FileConnection, *, repair: bool) -> Iterator[Finding]:
    """Does every file still say what was accepted?"""
    wrong: dict[str, set[str] | None] = {}
    known: list[Row] = here.database.execute(_FILES).fetchall()
    for number, owner, folder, name in known:
        if not _is_sound(here, number, owner, folder, name):
            names = wrong.setdefault(folder, set())
            if names is not None:
                names.add(name)
    count = sum(len(names or ()) for names in wrong.values())
    if not count:
        yield ok("files", f"{len(known)} files say what was accepted")
        return
    told = ", ".join(f"{folder}/{name}" for folder, names in wrong.items() for name in sorted(names or ()))
    if repair:
        store.set_right(wrong)
    hint = "" if repair else "repair=True sets them aside and writes the letters again"
    yield error("files", f"{count} files do not say what was accepted: {told}", hint, repaired=repair)


def _is_sound(here: FileConnection, number: int, owner: str, folder: str, name: str) -> bool:
    _, place = here.places.of(folder)
    message, _ = here.letter(number)
    try:
        raw, stamp = paper.read(f"{here.places.path(folder)}/{name}", reconciling.LARGEST)
        where = Where(owner, place, name, stamp.time)
        sheet = letters.read_sheet(here.places.layout, raw, where, reconciling.LARGEST)
    except (FileNotFoundError, Unreadable):
        return False
    return accepting.is_as_accepted(here.places.layout, message, sheet, folder, name)
