"""Regular files with one name, opened, read and written. Whatever else has the name is refused: a link, a second
name of another file, a pipe, a device, a folder. Nothing is followed, and nothing is waited for.

It refuses to know what stands in them. It weighs next to nothing.
"""

from __future__ import annotations

import errno
import os
import stat

FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe is opened at once, and then refused
_UNSEEN = getattr(os, "O_NOATIME", 0)  # reading so is no reading
_REFUSALS = frozenset(
    {errno.ELOOP, errno.EISDIR, errno.ENOTEMPTY, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENAMETOOLONG}
)


class InTheWay(OSError):
    """Something of somebody's stands where a file should be, and will until it is taken away."""

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


def check(found: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InTheWay(errno.EINVAL, "it is no regular file", path)
    if found.st_nlink > 1:
        raise InTheWay(errno.EMLINK, "it has a second name (hard link)", path)


def size(path: str) -> int:
    """0 where there is no file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return 0
    check(found, path)
    return found.st_size


def is_in_the_way(path: str) -> bool:
    try:
        size(path)
    except InTheWay:
        return True
    return False


def open_plain(path: str, how: int) -> int:
    """Looked at so, a file does not count as read; another user's does."""
    try:
        try:
            file = os.open(path, how | _UNSEEN | FLAGS, 0o600)
        except PermissionError:
            file = os.open(path, how | FLAGS, 0o600)
    except OSError as refused:
        raise _in_the_way(refused, path) from None
    try:
        check(os.fstat(file), path)
    except BaseException:
        os.close(file)
        raise
    return file


def _in_the_way(refused: OSError, path: str) -> OSError:
    if refused.errno not in _REFUSALS:
        return refused
    return InTheWay(refused.errno, refused.strerror, path)


def write_lines(file: int, size: int, data: bytes) -> int:
    """At the end, whole or not at all. Where somebody died in the middle of a line, it is ended first. What size
    the file has now, unless somebody emptied it meanwhile.
    """
    if data and size and os.pread(file, 1, size - 1) not in {b"\n", b""}:
        data = b"\n" + data
    try:
        _write_all(file, data)
    except OSError:  # the disk is full
        os.ftruncate(file, size)
        raise
    return size + len(data)


def _write_all(file: int, data: bytes) -> None:
    """One call, but where the disk takes less at once."""
    while data:
        data = data[os.write(file, data) :]


def append(path: str, data: bytes) -> None:
    file = open_plain(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        write_lines(file, os.fstat(file).st_size, data)
    finally:
        os.close(file)


def replace(path: str, data: bytes) -> int:
    """A new file in the place of the old, still open. A draft that somebody left goes."""
    draft = f"{path}.new"
    try:
        if os.path.lexists(draft):
            os.unlink(draft)
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | FLAGS, 0o600)
        try:
            _write_all(file, data)
            os.rename(draft, path)
        except BaseException:
            os.close(file)
            raise
    except OSError as refused:
        raise _in_the_way(refused, path) from None
    return file


def write(path: str, data: bytes) -> None:
    """A small file: all of it, or as it was."""
    os.close(replace(path, data))


def read(path: str) -> bytes:
    """Empty where there is no file."""
    try:
        file = open_plain(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        return read_from(file)
    finally:
        os.close(file)


def read_from(file: int) -> bytes:
    pieces = []
    while piece := os.read(file, 2**20):
        pieces.append(piece)
    return b"".join(pieces)
