"""The health of a room's files, seen from outside, and the processes that have it open.

The room itself is not opened, so the checks work on one that cannot be opened, too. Processes are named on Linux
only.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from ...model.report import error, note, ok, warning
from . import ground
from .schema import APPLICATION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...model.report import Finding


_PROC = Path("/proc")
_READ_MARKS = range(123, 128)  # bytes of the log's index that a reader locks while it has a view
LONGEST_COMMAND = 60


def holders(path: Path) -> list[int]:
    """Return the processes that have this file open, as far as this user may see, with this one."""
    try:
        wanted = path.stat()
    except OSError:
        return []
    return sorted(pid for pid in _processes() if _has_open(pid, wanted))


def is_open_here(path: Path) -> bool:
    """Return whether this process has a connection to the room."""
    return any(database.filename == str(path) for database in apsw.connections())


def readers(path: Path) -> list[int]:
    """Return the processes that hold a read transaction on this room right now."""
    found = set()
    with suppress(OSError):
        index = Path(f"{path}-shm").stat().st_ino
        for line in (_PROC / "locks").read_text(encoding="ascii", errors="replace").splitlines():
            pid, inode, first = _lock(line)
            if inode == index and first in _READ_MARKS:
                found.add(pid)
    return sorted(found)


def name_of(pid: int) -> str:
    """Return the process id and the command line, for people."""
    with suppress(OSError):
        words = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        command = " ".join(word.decode("utf-8", "replace") for word in words if word)
        shown = "".join(c if c.isprintable() else "?" for c in command)
        if shown:
            return f"{pid} ({shown[:LONGEST_COMMAND]})"
    return str(pid)


def _lock(line: str) -> tuple[int, int, int]:
    """Return (pid, inode, first byte) of a line of /proc/locks; zeros for a kind of lock SQLite does not take."""
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


# -- the health of the files

OTHERS = 0o077  # the bits that let other users in
VOLATILE = frozenset({"tmpfs", "ramfs"})
LITTLE_SPACE = 100 * 1024 * 1024  # bytes
NO_SPACE = 10 * 1024 * 1024
MANY_SIGNALS = 10_000
_MARK_AT, _HEAD = 68, 72  # position of the application id in a SQLite file
FILES = ("", "-wal", "-shm", ".lock", ".reserve", ".bells")  # the endings of a room's files
SEARCH = ".search"  # how the endings of the text index begin; it may be deleted at any time


def belongs_to(room: Path, path: Path) -> bool:
    """Return whether this is one of the files of a room: nothing else may be written there."""
    own, request = os.path.realpath(room), os.path.realpath(path)
    return request in {own + end for end in FILES} or request.startswith(
        (f"{own}{SEARCH}", f"{own}.bells{os.sep}")
    )


def is_room_file(path: Path) -> bool:
    """Return whether the file says that it is a room. Not for one that this process has open."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return head.startswith(b"SQLite format 3\0") and head[_MARK_AT:_HEAD] == APPLICATION.to_bytes(4, "big")


def examine_place(path: Path, *, repair: bool) -> Iterator[Finding]:
    """Run the checks that do not open the room."""
    try:
        yield from _files(path, repair=repair)
        for check in (_folder, _file_system, _space, _notification):
            yield from check(path)
    except OSError as broken:
        yield error("place", f"{path} cannot be reached: {broken.strerror}", "is the disk there, and yours?")


def _files(path: Path, *, repair: bool) -> Iterator[Finding]:
    """Check that the room's files are there, and readable by their owner alone."""
    open_to_others, fine = [], True
    for file in _room_files(path):
        found = file.lstat()
        if stat.S_ISLNK(found.st_mode):
            fine = False
            yield error("permissions", f"{file.name} is a symbolic link", "put the real file there")
        elif found.st_uid != os.geteuid():
            fine = False
            hint = "run as that user, or give the room's files to this one"
            yield error("permissions", f"{file.name} belongs to uid {found.st_uid}, not to {os.geteuid()}", hint)
        elif found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            fine = False
            yield error("permissions", f"{file.name} has a second name (hard link)", "remove the other name")
        elif stat.S_IMODE(found.st_mode) & OTHERS:
            open_to_others.append(file)
    if open_to_others:
        yield _closed(open_to_others, repair=repair)
    elif fine:
        yield ok("permissions", "the room's files are for their owner alone")


def _closed(files: list[Path], *, repair: bool) -> Finding:
    names = ", ".join(file.name for file in files[:10])
    if not repair:
        return warning("permissions", f"other users may open: {names}", "repair=True closes them")
    for file in files:
        file.chmod(stat.S_IMODE(file.lstat().st_mode) & ~OTHERS)  # by name: opening would drop SQLite's locks
    return warning("permissions", f"other users could open: {names}", repaired=True)


def _folder(path: Path) -> Iterator[Finding]:
    """Check the folder's mode, but never change it: it may be shared on purpose."""
    found = path.parent.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o022 and not mode & stat.S_ISVTX:
        what = f"other users may write in {path.parent} ({mode:04o}): they could remove the room's files"
        yield warning("folder", what, f"chmod go-w {path.parent}")
    elif found.st_uid not in {os.geteuid(), 0}:
        yield warning("folder", f"{path.parent} belongs to uid {found.st_uid}", "use a folder of your own")
    elif mode & OTHERS:
        yield note("folder", f"{path.parent} is shared ({mode:04o}): others see the room's files, not the mail")
    else:
        yield ok("folder", f"{path.parent} is for its owner alone")


def _file_system(path: Path) -> Iterator[Finding]:
    kind = ground.file_system(path.parent)
    if kind in ground.NETWORK:
        yield error("file system", f"{kind}: locks cannot be trusted over a network", "use a local disk")
    elif kind in VOLATILE:
        yield warning("file system", f"{kind}: all mail is gone after a reboot", "use a disk")
    elif kind == "overlay":
        yield note("file system", "overlay: in a container, mail ends with it", "use a volume")
    else:
        yield ok("file system", kind or "unknown to this system")


def _space(path: Path) -> Iterator[Finding]:
    there = os.statvfs(path.parent)
    free = there.f_bavail * there.f_frsize
    hint = "make space; see 'Retention' in docs/operations.md"
    if free < NO_SPACE:
        yield error("space", f"{free:,} bytes are free", hint)
    elif free < LITTLE_SPACE:
        yield warning("space", f"only {free:,} bytes are free", hint)
    else:
        yield ok("space", f"{free:,} bytes are free; the room has {_size(path):,}")


def _notification(path: Path) -> Iterator[Finding]:
    folder = Path(f"{path}.bells")
    if not folder.exists():
        yield ok("bells", "no process has waited here yet")
    elif not folder.is_dir() or not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        yield error(
            "bells",
            f"{folder.name} cannot be used: nobody can wait here",
            "correct its owner and mode (chown, chmod)",
        )
    else:
        with os.scandir(folder) as signals:
            count = sum(1 for _ in signals)
        if count > MANY_SIGNALS:
            yield note("bells", f"{count} signal files", f"with all agents stopped, delete {folder.name}")
        else:
            yield ok("bells", f"{count} signal files")


def _room_files(path: Path) -> list[Path]:
    files = [Path(f"{path}{end}") for end in FILES]
    with suppress(OSError):
        files += sorted(Path(f"{path}.bells").iterdir())[:MANY_SIGNALS]
    return [file for file in files if os.path.lexists(file)]


def _size(path: Path) -> int:
    return sum(file.lstat().st_size for file in _room_files(path)[:4] if not file.is_dir())
