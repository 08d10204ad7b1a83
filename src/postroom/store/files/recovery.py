"""After a boot, or after somebody died or a disk forgot in the middle: the journal is carried out, and all folders
are looked at.
"""

from __future__ import annotations

import ctypes
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from ...errors import BadStore, Damaged, PostroomError, SchemaTooNew
from ...model.codec import convert
from ...model.record import Record
from ..protocol import Rename
from ..sqlite.wal import REPLACED
from ..sqlite.writes import Writing, rename
from . import durable, transaction
from .durable import sync_path
from .journal import number_of
from .reconcile import reconcile
from .tree import INDEX, OWN_FOLDER

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
        durable.check_folder(path)
        names = os.listdir(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for name in names:
        if durable.is_temporary(name):
            with suppress(FileNotFoundError):
                os.unlink(f"{path}/{name}")
    sync_path(path)


def _finish(here: FileConnection, entries: list[dict[str, Any]]) -> None:
    """The steps of a commit that was begun and not done."""
    begun: list[transaction.Step] = []
    for entry in entries:
        begun = transaction.from_json(entry["steps"], here.places.home) if entry.get("steps") else []
        if "done" in entry:
            begun = []
    for step in begun:
        transaction.do_again(step)
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


# The index can be thrown away at any time: it is made anew from the files and the journal.


def can_help(broken: PostroomError) -> bool:
    """Is it the index that is broken, and not the place, the disk or this program?"""
    cause = broken.__cause__
    is_short = getattr(cause, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ
    is_none = isinstance(cause, apsw.NotADBError)
    return is_short or is_none or (isinstance(broken, Damaged) and not isinstance(broken, SchemaTooNew))


def was_deleted(failing: PostroomError) -> bool:
    """Did somebody delete the index while it was opened, or a part of it, so that it looks like another's?"""
    is_gone = isinstance(failing.__cause__, (FileNotFoundError, apsw.CantOpenError))
    return is_gone or failing.hint == REPLACED or isinstance(failing, BadStore)


def throw_away(root: str, inode: int | None = None) -> None:
    """Unless somebody else was quicker, and another stands there already."""
    with suppress(FileNotFoundError):
        if inode not in {None, os.stat(f"{root}/{OWN_FOLDER}/{INDEX}").st_ino}:
            return
    for end in ("-wal", "-shm", "", ".search", ".search-wal", ".search-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{root}/{OWN_FOLDER}/{INDEX}{end}")


def sync_all(root: str) -> None:
    """Everything on this disk that was written before."""
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            os.sync()
        elif syncfs(descriptor) != 0:
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed), root)
    finally:
        os.close(descriptor)
