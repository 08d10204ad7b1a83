"""Small files beside the rooms: locks, and files written whole or not at all, such as drafts and sessions.

A file that other programs look for, such as a unit, bears a mark. One without it is somebody else's: the commands
that write such files leave it as it is. Hooks use this module, too, so it imports next to nothing.
"""

from __future__ import annotations

import fcntl
import os

TYPE_CHECKING = False  # `typing` takes longer to load than a hook that shows nothing
if TYPE_CHECKING:
    from collections.abc import Callable


def held(path: str, mark: str = "") -> str | None:
    """Return the text of a file; empty if it is not text with our mark, None if there is nothing at its path."""
    if not os.path.lexists(path):
        return None
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):  # a link, a folder, not text: not ours
        return ""
    return text if mark in text else ""


def outcome(before: str | None, text: str) -> str:
    """Return what writing this text does, by what `held` returned before."""
    if before is None:
        return "written"
    return "unchanged" if before == text else "replaced"


def write(
    path: str, before: str | None, text: str, mode: int, place: Callable[[str, str], None] = os.replace
) -> None:
    """Write a changed file, whole or not at all. `place` gives it its name; `os.link` replaces no other file."""
    if before == text:
        return
    # In the same folder, so that the rename stays on one file system; one draft for each process.
    draft = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(draft, flags, 0o600), "w", encoding="utf-8", errors="surrogateescape") as file:
            os.fchmod(file.fileno(), mode)  # the umask may have removed permissions
            file.write(text)
        place(draft, path)
    finally:
        try:
            os.unlink(draft)
        except FileNotFoundError:
            pass


# -- locks

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a named pipe is opened without waiting


class LockFile:
    """A file that at most one process holds locked; its text says which. It is never removed: two processes could
    then hold two different ones. The system frees the lock with the process, however that ends.

    As a context it waits for the process that holds it; without a path it locks nothing.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = -1

    @property
    def is_held(self) -> bool:
        """True if this object holds the lock."""
        return self._lock >= 0

    def take(self) -> str | None:
        """Lock the file. Return None, or the text of the process that holds it."""
        lock = os.open(self.path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _text(lock)
            os.close(lock)
            return holder or "another process"
        os.ftruncate(lock, 0)  # the text of the holder before
        self._lock = lock
        return None

    def write(self, text: str) -> None:
        """Write who holds it, if this object does."""
        if self.is_held:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, text.encode(), 0)

    def leave(self) -> None:
        if self.is_held:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> None:
        if self.path:
            self._lock = os.open(self.path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __exit__(self, *how: object) -> None:
        self.leave()


def lock_holder(path: str) -> str | None:
    """Return the text of the process that holds a file locked; None if no process does. This creates nothing."""
    try:
        lock = os.open(path, os.O_RDONLY | _FLAGS)
    except OSError:
        return None
    try:
        # Shared: of two processes that check at once, neither takes the other for the holder. The text of the file
        # alone may be that of a process that was killed.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _text(lock)
    finally:
        os.close(lock)
    return None


def _text(lock: int) -> str:
    return os.pread(lock, 4096, 0).decode("utf-8", "replace").strip()
