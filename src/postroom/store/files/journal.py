"""What must last and has no file of a design: records, and commits of more than one step.

A journal of lines, each with a checksum. A line is synced before anything of it happens; a commit of several steps
is done again from its line if it was cut off, and marked done before anybody is told. Half a line at the end
belongs to a commit that never was. From time to time the journal is written anew, with what still counts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from ..sqlite.ground import sync_file, sync_path
from . import paper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COMPACT_AT = 4 * 1024 * 1024  # bytes; and twice what it held when it was last written anew
_APPEND = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
DONE = {"done": True}  # all that was begun before is finished


class Journal:
    """Called under the room's lock, by one thread."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = f"{folder}/journal"
        self._descriptor = -1
        self._inode = -1
        self._small = 0  # how large it was when it was last written anew, as far as we know

    def append(self, entry: dict[str, Any], *, durable: bool) -> None:
        """One line more; on stable storage when this returns."""
        line = _line(entry)
        descriptor = self._opened()
        size = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            left = line
            while left := left[os.write(descriptor, left) :]:
                pass
            if durable:
                sync_file(descriptor)
        except BaseException:
            os.ftruncate(descriptor, size)
            raise

    def entries(self) -> Iterator[dict[str, Any]]:
        """All lines that are whole. What follows a torn one was never promised."""
        try:
            with open(self._path, "rb") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            entry = _entry(line)
            if entry is None:
                return
            yield entry

    def is_long(self) -> bool:
        size = os.lseek(self._opened(), 0, os.SEEK_END)
        return size > COMPACT_AT and size > 2 * self._small

    def write_anew(self, entries: Iterable[dict[str, Any]]) -> None:
        """Only this counts from now on."""
        content = b"".join(_line(entry) for entry in entries)
        paper.replace(self._folder, "journal", content, durable=True)
        sync_path(self._folder)
        self._small = len(content)

    def mend(self) -> None:
        """Cut off half a line, so that the next one can be read."""
        whole = sum(len(_line(entry)) for entry in self.entries())
        descriptor = self._opened()
        if os.lseek(descriptor, 0, os.SEEK_END) > whole:
            os.ftruncate(descriptor, whole)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _opened(self) -> int:
        """The journal that stands there now: another process may have written it anew."""
        try:
            inode = os.stat(self._path).st_ino
        except FileNotFoundError:
            inode = -1
        if self._descriptor < 0 or inode != self._inode:
            self.close()
            self._descriptor = os.open(self._path, _APPEND, 0o600)
            self._inode = os.fstat(self._descriptor).st_ino
            if inode < 0:
                sync_path(self._folder)
        return self._descriptor


def _line(entry: dict[str, Any]) -> bytes:
    text = msgspec.json.encode(entry)
    return b"%08x %s\n" % (crc32(text), text)


def _entry(line: bytes) -> dict[str, Any] | None:
    sum, _, text = line.partition(b" ")
    if sum != b"%08x" % crc32(text):
        return None
    entry: dict[str, Any] = msgspec.json.decode(text)
    return entry
