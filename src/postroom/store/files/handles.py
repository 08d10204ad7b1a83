"""One file handle and one inode set aside: where there are no more of them, mail can still be done with.

SQLite holds open what it needs; a letter in a file must be opened, and its folder to be synced. The spare handle
is let go for that, and taken again when it is over. Whoever rewrites a letter needs a second file for a moment:
the spare one is written and takes the letter's place, whose inode is free then.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

_NO_MORE = {errno.EMFILE, errno.ENFILE}
_SPARE = os.O_RDONLY | os.O_CLOEXEC
_EMPTY = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Handle:
    held = -1

    def hold(self) -> None:
        with suppress(OSError):
            self.held = os.open("/", _SPARE)

    def let_go(self) -> bool:
        held, self.held = self.held, -1
        if held >= 0:
            os.close(held)
        return held >= 0


_handle = _Handle()


def open_file(path: str, flags: int, mode: int = 0o777) -> int:
    """As `os.open`; with the spare handle, if there is no other. Close it before the next."""
    if _handle.held < 0:
        _handle.hold()
    try:
        return os.open(path, flags, mode)
    except OSError as refused:
        if refused.errno not in _NO_MORE or not _handle.let_go():
            raise
    return os.open(path, flags, mode)


def sync_path(path: str) -> None:
    """A file that nobody has open, or a folder, is on stable storage when this returns."""
    descriptor = open_file(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keep_spare_file(path: str) -> None:
    """Where there is no inode for it, there will be later."""
    with suppress(OSError):
        os.close(open_file(path, _EMPTY, 0o600))
