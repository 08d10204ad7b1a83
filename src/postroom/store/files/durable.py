"""One file handle and one inode set aside: where there are no more of them, mail can still be done with.

SQLite holds open what it needs; a letter in a file must be opened, and its folder to be synced. The spare handle
is let go for that, and taken again when it is over. Whoever rewrites a letter needs a second file for a moment:
the spare one is written and takes the letter's place, whose inode is free then.
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


# Files that survive: made whole under a name nobody has, moved, and made to last with their folder.
#
# Refuses to know what stands in them. The order is what keeps the promise: the content is synced before the name
# exists, and the folder is synced before anybody is told (by whoever calls; many names in one folder need one
# sync).

TEMPORARY = ".tmp"  # so ends what is not finished; no design reads it
_UNFINISHED = re.compile(r"\.[0-9a-f]{18}\.tmp")
_NAMES = (sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())  # how they are encoded
_AT_CWD = -100
_NOREPLACE = 1
_EXCHANGE = 2
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_AGAIN = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make us wait
_PASSING = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}  # says nothing about the file
_UNKNOWN_CALL = {errno.ENOSYS, errno.EINVAL}


class Stamp(NamedTuple):
    """By what a file is known to be the one that was seen."""

    inode: int
    size: int
    written: int  # nanoseconds

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        return cls(*marks_of(found))

    @property
    def time(self) -> datetime:
        """When it was written; 1970 where that is no time."""
        try:
            return datetime.fromtimestamp(self.written // 1000 / 1_000_000, UTC)
        except (ValueError, OverflowError, OSError):
            return datetime.fromtimestamp(0, UTC)


def write_new(folder: str, name: str, content: bytes, *, durable: bool) -> Stamp:
    """A file that was not there; FileExistsError if it is. Sync the folder afterwards."""
    temporary, stamp = write_aside(folder, content, durable=durable)
    try:
        rename_new(temporary, f"{folder}/{name}")
    except BaseException:
        remove(temporary)
        raise
    return stamp


def replace(folder: str, name: str, content: bytes, *, durable: bool) -> Stamp:
    """The same name with other content, at once. Sync the folder afterwards."""
    temporary, stamp = write_aside(folder, content, durable=durable)
    try:
        os.rename(temporary, f"{folder}/{name}")
    except BaseException:
        remove(temporary)
        raise
    return stamp


def replace_by(spare: str, folder: str, name: str, content: bytes, *, durable: bool) -> Stamp:
    """The same, without another file for the moment: the spare one takes its place."""
    stamp = _write(spare, _AGAIN, content, durable=durable)
    os.rename(spare, f"{folder}/{name}")
    keep_spare_file(spare)
    return stamp


def write_aside(folder: str, content: bytes, *, durable: bool, mode: int | None = None) -> tuple[str, Stamp]:
    """A whole file under a name that nobody reads. Where it cannot be finished, nothing is left. It is for us
    alone, unless a `mode` says who may read and write it.
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
        found = os.fstat(descriptor)
        return Stamp.of(found)
    finally:
        os.close(descriptor)


def is_there(path: str) -> bool:
    """As `os.path.lexists`, in half the time: nothing is told of the file, and nothing raised."""
    return os.access(path, os.F_OK, follow_symlinks=False)


def is_temporary(name: str) -> bool:
    """Is this the name of something that we did not finish?"""
    return _UNFINISHED.fullmatch(name) is not None


def rename_new(source: str, target: str) -> None:
    """Another name, if nobody has it; FileExistsError if somebody does."""
    if sys.platform == "linux":
        if _renameat2()(_AT_CWD, source.encode(*_NAMES), _AT_CWD, target.encode(*_NAMES), _NOREPLACE) == 0:
            return
        failed = ctypes.get_errno()
        if failed not in _UNKNOWN_CALL:
            raise OSError(failed, os.strerror(failed), source, None, target)
    os.link(source, target, follow_symlinks=False)  # refuses a name that is taken, too
    os.unlink(source)


def exchange(source: str, target: str) -> bool:
    """Put a file in the place of another, which then has its name. False: there was none, and none is left."""
    while True:
        try:
            if not os.path.lexists(target):
                rename_new(source, target)
                return False
            _swap(source, target)
        except FileExistsError:
            continue  # somebody made one meanwhile
        except FileNotFoundError:
            if not os.path.lexists(source):
                raise
            continue  # somebody deleted it meanwhile
        return True


def _swap(first: str, second: str) -> None:
    if sys.platform == "linux":
        if _renameat2()(_AT_CWD, first.encode(*_NAMES), _AT_CWD, second.encode(*_NAMES), _EXCHANGE) == 0:
            return
        failed = ctypes.get_errno()
        if failed not in _UNKNOWN_CALL:
            raise OSError(failed, os.strerror(failed), first, None, second)
    between = f"{first}.old"  # no such call here: for a moment there is no file
    rename_new(second, between)
    rename_new(first, second)
    os.rename(between, first)


def make_folder(folder: str) -> bool:
    """For its owner alone, and so that it lasts; with the folder of the mailbox that it is in. Was it missing?
    Where the folder of all mailboxes is gone, somebody took it away: mail in an empty one would be lost.
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
    except FileExistsError:  # somebody else made it
        check_folder(folder)
        return False
    sync_path(parent)
    return True


def check_folder(folder: str) -> None:
    """A folder, and no link to one: mail must not be led elsewhere."""
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "is no folder of its own", folder)


def read(path: str, largest: int, known: Stamp | None = None) -> tuple[bytes, Stamp]:
    """A regular file with one name and of bearable size; Unreadable says what else it is. Nothing is followed. A
    file that is `known`, and unchanged since, may have got a second name: backups by hard links make one.
    """
    try:
        descriptor = open_file(path, _LOOK)
    except OSError as refused:
        if refused.errno in _PASSING:
            raise
        if refused.errno == errno.ELOOP:
            raise Unreadable("it is a link") from None
        if isinstance(refused, FileNotFoundError):
            raise
        raise Unreadable(f"it cannot be opened: {refused.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable("it is no regular file")
        if found.st_nlink > 1 and Stamp.of(found) != known:
            raise Unreadable("it has a second name (hard link)")
        if not -(2**63) <= found.st_mtime_ns < 2**63:  # SQLite could not keep it
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


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int]:
    found = ctypes.CDLL(None, use_errno=True).renameat2
    found.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    return found
