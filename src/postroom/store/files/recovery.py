"""Recovery after a boot or a crash: complete the journal, sync all folders, and reconcile them with the index.

The warning in the lock file, or a journal that is ahead of the index, says that it is needed. What it finds, and
what becomes of it:

| cut off after | on the disk | recovery |
|---|---|---|
| the warning was set | nothing new | finds nothing to do |
| half of the journal line | half a line | cuts it off: the commit never happened |
| the journal line | a line with steps, no `done` behind it | completes the steps and writes `done` |
| some of the steps | the same, and some files | the same: a step that is done already is left alone |
| `done`, or a commit of one step | all files, an older index | takes in the records of the line and the files |
| the commit of the index | all | finds nothing to do |
| the boot, or a disk that forgot | any of these | the same; every folder is synced before any reader |

The index may be deleted at any time: recovery rebuilds it from the files and the journal.
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
from ..sqlite.writes import WriteTransaction, rename
from . import durable, transaction
from .durable import sync_path
from .journal import DONE, number_of
from .reconcile import reconcile
from .tree import INDEX, OWN_FOLDER

if TYPE_CHECKING:
    from .connection import FileConnection


_log = logging.getLogger("postroom")


def recover(conn: FileConnection) -> None:
    """Recover under the writer lock. If it is interrupted itself, it is repeated from the start."""
    # First, else the lines that recovery appends would follow half a line and be unreadable.
    conn.journal.mend()
    entries = list(conn.journal.entries())
    # Files before the index: reconciliation below takes the files as they are for the truth.
    _finish(conn, entries)
    with conn.database:
        known = conn.ledger.last_line()
        later = [entry for entry in entries if number_of(entry) > known]
        _remember(conn, later)
        # A folder's time may be of before the crash while its content is not: read them all.
        conn.ledger.clear_folder_times()
        if conn.registry is not None:
            conn.registry.forget()
        folders = dict.fromkeys([*conn.tree.folders(), *conn.ledger.used_folders()])
        for folder in folders:
            _tidy(conn.tree.path(folder))
        steps = [step for entry in later for step in entry.get("steps", ()) if "name" in step]
        places = [(step[at], step["name"]) for step in steps for at in ("folder", "former") if at in step]
        _, retry = reconcile(conn, folders, after_crash=True, journaled=frozenset(places))
    conn.watcher.put_back(retry)


def _tidy(path: str) -> None:
    """Remove unfinished files, whose writers are dead, and sync the folder.

    A name whose sync failed, or whose writer was killed before it, is made durable before any reader sees it (G1).
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


def _finish(conn: FileConnection, entries: list[dict[str, Any]]) -> None:
    """Complete the steps of an interrupted commit."""
    begun: list[transaction.Step] = []
    for entry in entries:
        # Only the last line can be open: the next commit begins after a `done` line or a recovery.
        begun = transaction.from_json(entry["steps"], conn.tree.home) if entry.get("steps") else []
        if "done" in entry:
            begun = []
    for step in begun:
        transaction.do_again(step)
    # New names first, so that one copy of each letter always lasts.
    for folder in dict.fromkeys(step.folders[0] for step in begun):
        _sync(folder)
    for folder in {folder for step in begun for folder in step.folders[1:]}:
        _sync(folder)
    if begun:
        conn.journal.append(DONE, durable=True)


def _sync(folder: str) -> None:
    """Sync a folder, unless another program has removed it since."""
    with suppress(FileNotFoundError, NotADirectoryError):
        sync_path(folder)


def _remember(conn: FileConnection, entries: list[dict[str, Any]]) -> None:
    """Apply journal entries that the index does not contain."""
    writing = WriteTransaction(conn.database, conn.names)
    for entry in entries:
        for write in entry.get("writes", ()):
            try:
                _write(conn, writing, write)
            except PostroomError as refused:  # it may depend on a damaged line; the rest still counts
                _log.warning("%s in the journal is skipped: %s", write, refused)
        conn.ledger.reach_line(number_of(entry))
    # The entries may have renamed mailboxes, so remembered ids no longer hold.
    conn.names.committed.clear()


def _write(conn: FileConnection, writing: WriteTransaction, write: dict[str, Any]) -> None:
    if "put" in write:
        _put(conn, convert(write["put"], Record))
    elif "rename" in write:
        rename(conn.database, Rename(*write["rename"]))
    elif "introduce" in write:
        name, known = write["introduce"]
        writing.mailbox(name, "mailbox", known=known)
    elif "forget" in write and (number := conn.number_of(write["forget"])) is not None:
        conn.ledger.drop_files_of(number)
        writing.delete_letter(number)


def _put(conn: FileConnection, record: Record) -> None:
    if record.value is None:
        conn.database.execute("DELETE FROM records WHERE kind = ? AND key = ?", (record.kind, record.key))
        return
    row = (record.kind, record.key, record.revision, msgspec.json.encode(record.value))
    conn.database.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", row)


# -- deleting the index


def is_index_broken(broken: PostroomError) -> bool:
    """Return whether the index itself is damaged, and not its folder, the disk or this version of Postroom."""
    cause = broken.__cause__
    is_short = getattr(cause, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ
    is_none = isinstance(cause, apsw.NotADBError)
    return is_short or is_none or (isinstance(broken, Damaged) and not isinstance(broken, SchemaTooNew))


def was_deleted(failing: PostroomError) -> bool:
    """Return whether the index, or one of its files, was deleted while it was opened."""
    is_gone = isinstance(failing.__cause__, (FileNotFoundError, apsw.CantOpenError))
    return is_gone or failing.hint == REPLACED or isinstance(failing, BadStore)


def delete_index(root: str, inode: int | None = None) -> None:
    """Delete the index files, unless another process has already put a new index in their place."""
    with suppress(FileNotFoundError):
        # Two processes may find the same damage: the slower one must not delete the index the other has rebuilt.
        if inode not in {None, os.stat(f"{root}/{OWN_FOLDER}/{INDEX}").st_ino}:
            return
    # The log before the file: a log that is left beside a new file would be replayed into it.
    for end in ("-wal", "-shm", "", ".search", ".search-wal", ".search-shm"):
        with suppress(FileNotFoundError):
            os.unlink(f"{root}/{OWN_FOLDER}/{INDEX}{end}")


def sync_all(root: str) -> None:
    """Sync everything that was written to the disk of this folder."""
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            # macOS has no syncfs.
            os.sync()
        elif syncfs(descriptor) != 0:
            failed = ctypes.get_errno()
            raise OSError(failed, os.strerror(failed), root)
    finally:
        os.close(descriptor)
