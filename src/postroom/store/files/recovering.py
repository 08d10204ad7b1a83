"""After a boot, or after somebody died or a disk forgot in the middle: the journal is carried out, and all folders
are looked at.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import PostroomError
from ...model.codec import convert
from ...model.record import Record
from ..base import Rename
from ..sqlite.renaming import rename
from ..sqlite.writing import Writing
from . import paper, steps
from .handles import sync_path
from .journal import number_of
from .reconciling import reconcile

if TYPE_CHECKING:
    from .connection import FileConnection

_log = logging.getLogger("postroom")


def recover(here: FileConnection) -> None:
    """Under the lock. It may be cut off itself: then it is done again."""
    here.journal.mend()
    entries = list(here.journal.entries())
    _finish(here, entries)
    with here.database:
        known = here.ledger.lines()
        _remember(here, [entry for entry in entries if number_of(entry) > known])
        here.ledger.forget_notes()
        if here.registry is not None:
            here.registry.forget()
        folders = dict.fromkeys([*here.places.folders(), *here.ledger.used_folders()])
        for folder in folders:
            _tidy(here.places.path(folder))
        _, later = reconcile(here, folders, after_crash=True)
    here.eyes.put_back(later)


def _tidy(path: str) -> None:
    """Nobody else is at work: what is not finished never will be. And names whose sync failed, or was never tried
    because their writer was killed, are made safe before anybody is told that they are there.
    """
    try:
        paper.check_folder(path)
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for name in names:
        if paper.is_temporary(name):
            with suppress(FileNotFoundError):
                os.unlink(f"{path}/{name}")
    sync_path(path)


def _finish(here: FileConnection, entries: list[dict[str, Any]]) -> None:
    """The steps of a commit that was begun and not done."""
    begun: list[steps.Step] = []
    for entry in entries:
        begun = steps.from_json(entry["steps"], here.places.home) if entry.get("steps") else []
        if "done" in entry:
            begun = []
    for step in begun:
        steps.do_again(step)
    for folder in dict.fromkeys(step.folders[0] for step in begun):  # new names first
        _sync(folder)
    for folder in {folder for step in begun for folder in step.folders[1:]}:
        _sync(folder)
    if begun:
        here.journal.append({"done": True}, durable=True)


def _sync(folder: str) -> None:
    """A stranger may have taken it away since, with what lay there."""
    with suppress(FileNotFoundError, NotADirectoryError):
        sync_path(folder)


def _remember(here: FileConnection, entries: list[dict[str, Any]]) -> None:
    """Records and names, where the index lost them."""
    writing = Writing(here.database, here.names)
    for entry in entries:
        for write in entry.get("writes", ()):
            try:
                _write(here, writing, write)
            except PostroomError as refused:  # of a journal with damaged lines; all else must be told
                _log.warning("%s in the journal is passed over: %s", write, refused)
        here.ledger.reach_line(number_of(entry))
    here.names.committed.clear()


def _write(here: FileConnection, writing: Writing, write: dict[str, Any]) -> None:
    if "put" in write:
        _put(here, convert(write["put"], Record))
    elif "rename" in write:
        rename(here.database, Rename(*write["rename"]))
    elif "introduce" in write:
        name, known = write["introduce"]
        writing.mailbox(name, "mailbox", known=known)
    elif "forget" in write and (number := here.number_of(write["forget"])) is not None:
        here.ledger.drop_all(number)
        writing.delete_letter(number)


def _put(here: FileConnection, record: Record) -> None:
    if record.value is None:
        here.database.execute("DELETE FROM records WHERE kind = ? AND key = ?", (record.kind, record.key))
        return
    row = (record.kind, record.key, record.revision, msgspec.json.encode(record.value))
    here.database.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)
