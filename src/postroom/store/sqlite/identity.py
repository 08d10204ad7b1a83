"""Which file stands at a path, or is open under a number, asking for nothing else.

Not `os.stat`: it asks for times too, and since Linux 6.13 a file whose times were asked for gets an exact time at
its next write, which costs a journal entry and makes the next sync a third slower (measured). It is
loaded by whoever commits a second time: the first time there is nothing to compare.
"""

from __future__ import annotations

import ctypes
import os

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_STATX_INO = 0x100
_INO_AT = 32  # its place in struct statx
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)  # Linux; macOS has no such trap


class FileAt:
    """Which file stands at a path."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        answer = ctypes.create_string_buffer(256)
        self._question = (_AT_FDCWD, os.fsencode(path), 0, _STATX_INO, answer)
        self._inode = ctypes.c_uint64.from_buffer(answer, _INO_AT)

    def inode(self) -> int:
        if _statx is None:
            return os.stat(self._path).st_ino
        if _statx(*self._question) != 0:
            raise OSError(ctypes.get_errno(), "cannot be reached", str(self._path))
        return self._inode.value


def inode_of(descriptor: int) -> int:
    """Which file is open under this number."""
    if _statx is None:
        return os.fstat(descriptor).st_ino
    answer = ctypes.create_string_buffer(256)
    if _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_INO, answer) != 0:
        raise OSError(ctypes.get_errno(), "cannot be reached")
    return ctypes.c_uint64.from_buffer(answer, _INO_AT).value
