"""The index can be thrown away at any time: it is made anew from the files and the journal."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import apsw

from ...errors import BadStore, Damaged, SchemaTooNew
from ..sqlite.wal import REPLACED
from .tree import INDEX, OWN_FOLDER

if TYPE_CHECKING:
    from ...errors import PostroomError


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
