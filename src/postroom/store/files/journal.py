"""The journal `.postroom/journal`: records, which no layout has a file for, and commits of more than one step.

Each line is JSON with a checksum. The index stores the number `n` of the last line that it contains.

| a line | is written | what it means to `recovery` |
|---|---|---|
| `n`, `writes`, `steps` | and synced, before the first step | steps with no `done` behind them are completed |
| `n`, `writes` alone | and synced, before the index | an index that ends before `n` takes in the writes |
| `done` | once the files of all steps are synced | all lines before are complete |
| half a line at the end | by a process that was killed | it is cut off: the commit never happened |
| a damaged line elsewhere | by nobody | it is reported and skipped; the lines after it count |

A long journal is compacted to one line with all that still counts. The index has all of that and is synced first,
so that no index is older than the first line.
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


COMPACT_AT = 4 * 1024 * 1024  # bytes; and at least twice its length after the last compaction
_APPEND = os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_log = logging.getLogger("postroom")
DONE = {"done": True}  # the steps of all lines before are completed


class Journal:
    """The journal of one connection, used under the writer lock."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = f"{folder}/journal"
        self._descriptor = -1
        self._inode = -1
        self._small = -1  # the length of the first line, which holds all of the last compaction
        self.is_torn = False  # whether half a line may stand at its end

    def append(self, entry: dict[str, Any], *, durable: bool) -> int:
        """Append a line and sync it; return the length of the journal before."""
        line = _line(entry)
        descriptor = self._opened()
        size = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            left = line
            # A write may take only part, for example on a disk that is nearly full.
            while left := left[os.write(descriptor, left) :]:
                pass
            if durable:
                sync_file(descriptor)
        except BaseException:
            self.cut(size)
            raise
        return size

    def cut(self, size: int) -> None:
        """Cut the journal to this length: what follows was never confirmed."""
        # Set before the call and cleared after it: if the cut fails, the warning in the lock file must stay.
        self.is_torn = True
        os.ftruncate(self._opened(), size)
        self.is_torn = False

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield all lines that are not damaged."""
        for line in self._lines():
            entry = _entry(line)
            if entry is not None:
                yield entry

    def is_settled(self, known: int) -> bool:
        """Return whether every commit is completed, and an index that contains `known` lines has all of them.

        The last two lines tell: a commit of several steps is followed by a `done` line.
        """
        last = [_entry(line) for line in self._last_lines(2)]
        if not last:
            return True
        # Steps without a `done` line behind them: the commit was interrupted.
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
        """Return the numbers, from 1, of damaged lines, except for the last, which may be incomplete."""
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

    def replace_by(self, entries: Iterable[dict[str, Any]]) -> None:
        """Replace the journal by these entries."""
        files_durable.replace(self._folder, "journal", b"".join(_line(entry) for entry in entries), durable=True)
        sync_path(self._folder)

    def mend(self) -> None:
        """Cut off an incomplete last line, so that the next one can be read, and log damaged lines."""
        lines = self._lines()
        whole = sum(len(line) + 1 for line in lines)
        if lines and _entry(lines[-1]) is None:
            whole -= len(lines[-1]) + 1
        descriptor = self._opened()
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size > whole:
            self.cut(whole)
        elif size < whole:  # only the line break is missing
            os.write(descriptor, b"\n")
        self.is_torn = False
        for number in self.damaged():
            _log.warning("line %d of %s is damaged and was skipped", number, self._path)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _opened(self) -> int:
        """Return a descriptor of the present journal: another process may have compacted it."""
        try:
            inode = os.stat(self._path).st_ino
        except FileNotFoundError:
            inode = -1
        if self._descriptor < 0 or inode != self._inode:
            self.close()
            self._descriptor = os.open(self._path, _APPEND, 0o600)
            self._inode = os.fstat(self._descriptor).st_ino
            self._small = -1
            # A new journal: its name must last as long as its lines.
            if inode < 0:
                sync_path(self._folder)
        return self._descriptor


def number_of(entry: dict[str, Any]) -> int:
    """Return the number of a line, which the index counts; 0 if it has none."""
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


# -- compaction

_ALIASES = "SELECT a.name, m.name FROM aliases a JOIN mailboxes m ON m.id = a.mailbox"
_NAMES = "SELECT name, known FROM mailboxes ORDER BY id"
_RECORDS = "SELECT kind, key, revision, value FROM records"


def compact_if_long(conn: FileConnection) -> None:
    """Compact a long journal, under the lock between two commits; if that fails, it stays as it is."""
    if conn.journal.is_long():
        with suppress(OSError, apsw.Error, StoreFailing):
            compact(conn)


def compact(conn: FileConnection) -> None:
    """Replace the journal by one line with the present content of the index, which is synced first."""
    # `maintain` opens the log, which `sync` needs.
    conn.log.maintain(conn.lock)
    conn.log.sync(conn.lock)
    conn.journal.replace_by([{"n": conn.ledger.last_line(), "writes": list(_all(conn))}])


def _all(conn: FileConnection) -> Iterator[dict[str, Any]]:
    """Yield all writes that rebuild the index; old names first, so that no mailbox is in their way."""
    for old, name in conn.database.execute(_ALIASES).fetchall():
        yield {"rename": [old, name]}
    for name, known in conn.database.execute(_NAMES).fetchall():
        yield {"introduce": [name, bool(known)]}
    records: list[Row] = conn.database.execute(_RECORDS).fetchall()
    for kind, key, revision, value in records:
        record = {"kind": kind, "key": key, "revision": revision, "value": msgspec.json.decode(value)}
        yield {"put": record}
