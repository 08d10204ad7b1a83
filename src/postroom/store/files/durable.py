"""Durable file operations: files are written completely before they get their name, then renamed and synced.

Nothing here knows what a file contains. The order keeps the promise (G1): content is synced before the name
exists, and the caller syncs the folder before success is reported (many names in one folder need one sync).

One file handle and one inode are kept in reserve, so that mail can still be acknowledged when the process has no
handle or the disk no inode left. SQLite keeps its files open, but a letter file must be opened, and its folder too
to be synced: the spare handle is closed for that. A rewrite needs a second file for a moment: the spare file is
written and takes the place of the letter file, whose inode is then free.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import sys
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ...errors import Unreadable
from ..sqlite.ground import sync_file
from .tree import marks_of

if TYPE_CHECKING:
    from collections.abc import Callable


_NO_HANDLES = {errno.EMFILE, errno.ENFILE}
_SPARE = os.O_RDONLY | os.O_CLOEXEC
_EMPTY = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class _SpareHandle:
    held = -1

    def hold(self) -> None:
        with suppress(OSError):
            self.held = os.open("/", _SPARE)

    def let_go(self) -> bool:
        held, self.held = self.held, -1
        if held >= 0:
            os.close(held)
        return held >= 0


_handle = _SpareHandle()


def open_file(path: str, flags: int, mode: int = 0o777) -> int:
    """Open a file like `os.open`, in place of the spare handle if no other is left. Close it before the next."""
    if _handle.held < 0:
        _handle.hold()
    try:
        return os.open(path, flags, mode)
    except OSError as refused:
        if refused.errno not in _NO_HANDLES or not _handle.let_go():
            raise
    return os.open(path, flags, mode)


def sync_path(path: str) -> None:
    """Bring a folder, or a file that is not open here, to stable storage."""
    descriptor = open_file(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def keep_spare_file(path: str) -> None:
    """Create the spare file, if there is an inode for it."""
    with suppress(OSError):
        os.close(open_file(path, _EMPTY, 0o600))


# -- reading and writing

TEMPORARY = ".tmp"  # the ending of unfinished files; no layout reads such names
_UNFINISHED = re.compile(r"\.[0-9a-f]{18}\.tmp")
_NAMES = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())  # how file names are encoded
_AT_CWD = -100
_NOREPLACE = 1
_EXCHANGE = 2
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_AGAIN = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not block
_TRANSIENT = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # these say nothing about the file
_UNKNOWN_CALL = {errno.ENOSYS, errno.EINVAL}


class Stamp(NamedTuple):
    """The values of a file that change when its content does: inode, size and modification time."""

    inode: int
    size: int
    written: int  # nanoseconds

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(*marks_of(found))

    @property
    def time(self) -> datetime:
        """Return when the file was written; 1970 if that is out of range."""
        try:
            return datetime.fromtimestamp(self.written // 1000 / 1_000_000, UTC)
        except (ValueError, OverflowError, OSError):
            return datetime.fromtimestamp(0, UTC)


def write_new(folder: str, name: str, content: bytes, *, durable: bool) -> Stamp:
    """Create a file; raise FileExistsError if it exists. The caller syncs the folder."""
    return _write_aside(folder, content, lambda path: rename_new(path, f"{folder}/{name}"), durable=durable)


def replace(folder: str, name: str, content: bytes, *, durable: bool) -> Stamp:
    """Replace the content of a file atomically. The caller syncs the folder."""
    return _write_aside(folder, content, lambda path: os.rename(path, f"{folder}/{name}"), durable=durable)


def _write_aside(folder: str, content: bytes, rename: Callable[[str], None], *, durable: bool) -> Stamp:
    """Write a complete file under a temporary name, then rename it."""
    temporary, stamp = write_temporary(folder, content, durable=durable)
    try:
        rename(temporary)
    except BaseException:
        remove(temporary)
        raise
    return stamp


def replace_using_spare(spare: str, folder: str, name: str, content: bytes, *, durable: bool) -> Stamp:
    """Replace a file like `replace`, but with the spare file instead of a new one."""
    stamp = _write(spare, _AGAIN, content, durable=durable)
    os.rename(spare, f"{folder}/{name}")
    keep_spare_file(spare)
    return stamp


def write_temporary(folder: str, content: bytes, *, durable: bool, mode: int | None = None) -> tuple[str, Stamp]:
    """Write a complete file under a temporary name; leave nothing behind on failure.

    Only the owner may read and write it, unless `mode` says otherwise.
    """
    path = f"{folder}/.{os.urandom(9).hex()}{TEMPORARY}"
    try:
        return path, _write(path, _NEW, content, durable=durable, mode=mode)
    except FileExistsError:
        raise
    except BaseException:
        remove(path)
        raise


def _write(path: str, flags: int, content: bytes, *, durable: bool, mode: int | None = None) -> Stamp:
    descriptor = open_file(path, flags, 0o600)
    try:
        if mode is not None:
            os.fchmod(descriptor, mode)
        left = content
        while left := left[os.write(descriptor, left) :]:
            pass
        if durable:
            sync_file(descriptor)
        return Stamp.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)


def is_temporary(name: str) -> bool:
    """Return whether this is the name of one of our unfinished files."""
    return _UNFINISHED.fullmatch(name) is not None


def rename_new(source: str, target: str) -> None:
    """Rename a file; raise FileExistsError if the new name is taken."""
    if not _renameat2(source, target, _NOREPLACE):
        os.link(source, target, follow_symlinks=False)  # refuses a taken name as well
        os.unlink(source)


def exchange(source: str, target: str) -> bool:
    """Swap two files atomically; if there is no `target`, rename `source` to it and return False."""
    while True:
        try:
            if not os.path.lexists(target):
                rename_new(source, target)
                return False
            _swap(source, target)
        except FileExistsError:
            continue  # another process created the target meanwhile
        except FileNotFoundError:
            if not os.path.lexists(source):
                raise
            continue  # another process deleted the target meanwhile
        return True


def _swap(first: str, second: str) -> None:
    if not _renameat2(first, second, _EXCHANGE):
        between = f"{first}.old"  # without that system call there is no file for a moment
        rename_new(second, between)
        rename_new(first, second)
        os.rename(between, first)


def _renameat2(source: str, target: str, flags: int) -> bool:
    """Rename with these flags; return False on macOS, and on file systems that do not know them."""
    if sys.platform != "linux":
        return False
    if _system_call()(_AT_CWD, source.encode(*_NAMES), _AT_CWD, target.encode(*_NAMES), flags) == 0:
        return True
    failed = ctypes.get_errno()
    if failed not in _UNKNOWN_CALL:
        raise OSError(failed, os.strerror(failed), source, None, target)
    return False


@cache
def _system_call() -> Callable[[int, bytes, int, bytes, int], int]:
    # Python has no binding for it, and os.rename replaces a file in silence.
    found = ctypes.CDLL(None, use_errno=True).renameat2
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return found


def make_folder(folder: str) -> bool:
    """Create a folder for its owner alone, with its parent, and sync it; return whether it was missing.

    The folder above both is never created: if it is gone, someone took it away, and mail in an empty one in its
    place would be lost.
    """
    parent = folder.rpartition("/")[0]
    try:
        check_folder(parent)
    except FileNotFoundError:
        _make_missing(parent, parent.rpartition("/")[0])
    try:
        check_folder(folder)
    except FileNotFoundError:
        return _make_missing(folder, parent)
    return False


def _make_missing(folder: str, parent: str) -> bool:
    try:
        os.mkdir(folder, mode=0o700)
    except FileExistsError:  # another process created it
        check_folder(folder)
        return False
    # Once per folder: a synced file in a folder whose own name is lost is lost, too (G1).
    sync_path(parent)
    return True


def check_folder(folder: str) -> None:
    """Raise unless this is a folder and not a link to one, which would lead mail elsewhere."""
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is not a folder, or is a link", folder)


def read(path: str, largest: int, known: Stamp | None = None) -> tuple[bytes, Stamp]:
    """Read a regular file with one name and at most `largest` bytes; raise Unreadable otherwise.

    Links are not followed. A file with the stamp `known` may have a second name: backups by hard links make one.
    """
    try:
        descriptor = open_file(path, _LOOK)
    except OSError as refused:
        if refused.errno in _TRANSIENT:
            raise
        if refused.errno == errno.ELOOP:
            raise Unreadable("it is a link") from None
        if isinstance(refused, FileNotFoundError):
            raise
        raise Unreadable(f"it cannot be opened: {refused.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is not a regular file")
        # The owner of the second name could change the letter after it was checked.
        if found.st_nlink > 1 and Stamp.of(found) != known:
            raise Unreadable("it has a second name (hard link)")
        if not -(2**63) <= found.st_mtime_ns < 2**63:  # SQLite could not store it
            raise Unreadable("its modification time is out of range: touch it and put it back")
        if found.st_size > largest:
            raise Unreadable(f"it is {found.st_size} bytes, the limit is {largest}")
        return os.read(descriptor, found.st_size + 1), Stamp.of(found)
    except OSError as failed:
        raise Unreadable(f"it cannot be read: {failed.strerror}") from None
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
