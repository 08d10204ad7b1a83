"""After a boot, or after somebody died in the middle: the journal is carried out, every folder is looked at."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ...model.codec import convert
from ...model.record import Record
from ..base import Rename
from ..sqlite.ground import sync_path
from ..sqlite.renaming import rename
from ..sqlite.writing import Writing
from . import paper, steps
from .reconciling import reconcile

if TYPE_CHECKING:
    from .connection import FileConnection


def recover(here: FileConnection) -> None:
    """Under the lock. It may be cut off itself: then it is done again."""
    here.journal.mend()
    entries = list(here.journal.entries())
    _finish(here, entries)
    _clean(here)
    with here.database:
        _remember(here, entries)
        here.ledger.forget_notes()
        if here.registry is not None:
            here.registry.forget()
        folders = dict.fromkeys([*here.places.folders(), *here.ledger.used_folders()])
        _, later = reconcile(here, folders, after_crash=True)
    here.eyes.put_back(later)


def _finish(here: FileConnection, entries: list[dict[str, Any]]) -> None:
    """The steps of a commit that was begun and not done."""
    begun: list[steps.Step] = []
    for entry in entries:
        begun = steps.from_json(entry["steps"]) if entry.get("steps") else []
        if "done" in entry:
            begun = []
    for step in begun:
        steps.do_again(step)
    for folder in {folder for step in begun for folder in step.folders}:
        sync_path(folder)
    if begun:
        here.journal.append({"done": True}, durable=True)


def _clean(here: FileConnection) -> None:
    """What was not finished. Letters are written under the lock, so nobody is at it now."""
    for folder in here.places.folders():
        path = here.places.path(folder)
        with suppress(OSError):
            paper.check_folder(path)
            for name in filter(paper.is_unfinished, os.listdir(path)):
                paper.remove(f"{path}/{name}")


def _remember(here: FileConnection, entries: list[dict[str, Any]]) -> None:
    """Records and names, where the index lost them."""
    writing = Writing(here.database, here.names)
    for entry in entries:
        for write in entry.get("writes", ()):
            if "put" in write:
                _put(here, convert(write["put"], Record))
            elif "rename" in write:
                rename(here.database, Rename(*write["rename"]))
            elif "introduce" in write:
                name, known = write["introduce"]
                writing.mailbox(name, "mailbox", known=known)
    here.names.committed.clear()


def _put(here: FileConnection, record: Record) -> None:
    if record.value is None:
        here.database.execute("DELETE FROM records WHERE kind = ? AND key = ?", (record.kind, record.key))
        return
    row = (record.kind, record.key, record.revision, msgspec.json.encode(record.value))
    here.database.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)
