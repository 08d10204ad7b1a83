"""Who has a room open, and whose reading holds its log back. On Linux with names; elsewhere nobody is named."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc")
_READ_MARKS = range(123, 128)  # bytes of the log's index that a reader locks while it has a view
LONGEST_COMMAND = 60


def holders(path: Path) -> list[int]:
    """Processes that have this file open, as far as this user may see; this one too."""
    try:
        wanted = path.stat()
    except OSError:
        return []
    return sorted(pid for pid in _processes() if _has_open(pid, wanted))


def is_open_here(path: Path) -> bool:
    """Has this process a connection to it?"""
    return any(database.filename == str(path) for database in apsw.connections())


def readers(path: Path) -> list[int]:
    """Processes that hold a view of this room at this very moment."""
    found = set()
    with suppress(OSError):
        index = Path(f"{path}-shm").stat().st_ino
        for line in (_PROC / "locks").read_text(encoding="ascii", errors="replace").splitlines():
            pid, inode, first = _lock(line)
            if inode == index and first in _READ_MARKS:
                found.add(pid)
    return sorted(found)


def name_of(pid: int) -> str:
    """A process as people know it: its number, and how it was started."""
    with suppress(OSError):
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        command = " ".join(word.decode("utf-8", "replace") for word in words if word)
        shown = "".join(c if c.isprintable() else "?" for c in command)
        if shown:
            return f"{pid} ({shown[:LONGEST_COMMAND]})"
    return str(pid)


def _lock(line: str) -> tuple[int, int, int]:
    """(pid, inode, first byte) of a line of /proc/locks, zeros for a kind of lock SQLite does not take."""
    words = line.split()
    if len(words) < 8 or words[1] != "POSIX" or not words[4].isdigit():
        return 0, 0, 0
    return int(words[4]), int(words[5].rpartition(":")[2]), int(words[6])


def _processes() -> Iterator[int]:
    with suppress(OSError):
        for entry in _PROC.iterdir():
            if entry.name.isdigit():
                yield int(entry.name)


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    with suppress(OSError):  # it ended meanwhile, or is another user's
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            with suppress(OSError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False
