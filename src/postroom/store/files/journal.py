"""What must last and has no file of a design: records, and commits of more than one step.

A journal of lines, each with a checksum. A line is synced before anything of it happens; a commit of several steps
is done again from its line if it was cut off, and marked done before anybody is told. Half a line at the end
belongs to a commit that never was; a damaged one in the middle is reported, and those behind it count. From time
to time the journal is written anew, with what still counts (`compacting`).
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

import apsw
import msgspec

from ...errors import StoreFailing
from ..sqlite.ground import sync_file
from . import durable as files_durable
from .durable import sync_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..sqlite.rows import Row
    from .connection import FileConnection


COMPACT_AT = 4 * 1024 * 1024  # bytes; and twice what it held when it was last written anew
_APPEND = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger("postroom")
DONE = {"done": True}  # all that was begun before is finished


class Journal:
    """Called under the room's lock, by one thread."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = f"{folder}/journal"
        self._descriptor = -1
        self._inode = -1
        self._small = -1  # how long its first line is: all that counted when it was last written anew
        self.is_torn = False  # does half a line stand at its end?

    def append(self, entry: dict[str, Any], *, durable: bool) -> int:
        """One line more; on stable storage when this returns. How long it was before."""
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
            self.cut(size)
            raise
        return size

    def cut(self, size: int) -> None:
        """What was written behind this was never promised."""
        self.is_torn = True
        os.ftruncate(self._opened(), size)
        self.is_torn = False

    def entries(self) -> Iterator[dict[str, Any]]:
        """All lines that are whole."""
        for line in self._lines():
            entry = _entry(line)
            if entry is not None:
                yield entry

    def is_settled(self, known: int) -> bool:
        """Is every commit in it finished, and has an index that knows so many lines all that it says? Its last two
        lines tell: a commit of several steps is followed by a line that says it is done.
        """
        last = [_entry(line) for line in self._last_lines(2)]
        if not last:
            return True
        if last[-1] is None or last[-1].get("steps"):
            return False
        return all(number_of(entry) <= known for entry in last if entry is not None)

    def _last_lines(self, count: int) -> list[bytes]:
        try:
            with open(self._path, "rb") as file:
                size, step = file.seek(0, os.SEEK_END), 1 << 14
                while True:
                    start = file.seek(max(0, size - step))
                    lines = file.read().split(b"\n")
                    if start == 0 or len(lines) > count + 1:
                        break
                    step *= 4
        except FileNotFoundError:
            return []
        end = [] if lines[-1] == b"" else lines[-1:]  # half a line
        return [*lines[:-1][-count:], *end]

    def damaged(self) -> list[int]:
        """The lines that cannot be read, counted from 1; but for the end, which may be half of one."""
        lines = self._lines()
        return [number for number, line in enumerate(lines[:-1], 1) if _entry(line) is None]

    def _lines(self) -> list[bytes]:
        try:
            with open(self._path, "rb") as file:
                return file.read().removesuffix(b"\n").split(b"\n")
        except FileNotFoundError:
            return []

    def is_long(self) -> bool:
        size = os.lseek(self._opened(), 0, os.SEEK_END)
        return size > COMPACT_AT and size > 2 * self._first_line()

    def _first_line(self) -> int:
        if self._small < 0:
            with open(self._path, "rb") as file:
                self._small = len(file.readline())
        return self._small

    def write_anew(self, entries: Iterable[dict[str, Any]]) -> None:
        """Only this counts from now on."""
        content = b"".join(_line(entry) for entry in entries)
        files_durable.replace(self._folder, "journal", content, durable=True)
        sync_path(self._folder)

    def mend(self) -> None:
        """Cut off what is no line at its end, so that the next one can be read. Report what is damaged before."""
        lines = self._lines()
        whole = sum(len(line) + 1 for line in lines)
        if lines and _entry(lines[-1]) is None:
            whole -= len(lines[-1]) + 1
        descriptor = self._opened()
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size > whole:
            self.cut(whole)
        elif size < whole:  # all of the last line but its end
            os.write(descriptor, b"\n")
        self.is_torn = False
        for number in self.damaged():
            _log.warning("line %d of %s is damaged, and was passed over", number, self._path)

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
            self._small = -1
            if inode < 0:
                sync_path(self._folder)
        return self._descriptor


def number_of(entry: dict[str, Any]) -> int:
    """The number of a line, which the index counts; 0 if it has none."""
    number = entry.get("n", 0)
    return number if isinstance(number, int) else 0


def _line(entry: dict[str, Any]) -> bytes:
    text = msgspec.json.encode(entry)
    return b"%08x %s\n" % (crc32(text), text)


def _entry(line: bytes) -> dict[str, Any] | None:
    sum, _, text = line.partition(b" ")
    if sum != b"%08x" % crc32(text):
        return None
    try:
        entry = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    return entry if isinstance(entry, dict) else None


# A long journal is written anew: of all that happened, only what came of it.
#
# The index has that, and is synced first: so nobody ever finds one that is older than the journal's beginning.

_ALIASES = "SELECT a.name, m.name FROM aliases a JOIN mailboxes m ON m.id = a.mailbox"
_NAMES = "SELECT name, known FROM mailboxes ORDER BY id"
_RECORDS = "SELECT kind, key, revision, value FROM records"


def compact_if_long(here: FileConnection) -> None:
    """Under the lock, between two commits. Where it cannot be done, the journal stays as it is."""
    if here.journal.is_long():
        with suppress(OSError, apsw.Error, StoreFailing):
            compact(here)


def compact(here: FileConnection) -> None:
    here.log.tend(here.lock)
    here.log.sync(here.lock)
    here.journal.write_anew([{"n": here.ledger.lines(), "writes": list(_all(here))}])


def _all(here: FileConnection) -> Iterator[dict[str, Any]]:
    """Old names first: where the index is made anew they find nobody in their way."""
    for old, name in here.database.execute(_ALIASES).fetchall():
        yield {"rename": [old, name]}
    for name, known in here.database.execute(_NAMES).fetchall():
        yield {"introduce": [name, bool(known)]}
    records: list[Row] = here.database.execute(_RECORDS).fetchall()
    for kind, key, revision, value in records:
        record = {"kind": kind, "key": key, "revision": revision, "value": msgspec.json.decode(value)}
        yield {"put": record}
