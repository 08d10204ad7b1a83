"""One daemon for a room. A lock file beside it says which."""

from __future__ import annotations

import fcntl
import os

from ..errors import NameTaken
from ..store.opening import place_of

_AT = " at "  # before the socket, in what is signed


def served_at(store: str) -> str | None:
    """The socket of the daemon that serves a room now, if one does."""
    place = place_of(store)
    if place is None:
        return None
    try:
        lock = os.open(f"{os.path.realpath(place)}.serving", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 4096, 0).decode("utf-8", "replace").partition(_AT)[2] or None
    finally:
        os.close(lock)
    return None


class Held:
    """The right to serve a room, while the daemon lives."""

    def __init__(self, store: str) -> None:
        place = place_of(store)
        self._path = None if place is None else f"{os.path.realpath(place)}.serving"
        self._lock = -1

    def take(self) -> None:
        """A room in memory is nobody else's."""
        if self._path is None:
            return
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            first = os.pread(lock, 4096, 0).decode("utf-8", "replace").strip() or "another process"
            os.close(lock)
            raise NameTaken(
                f"this room is served already, by {first}", field="room", hint="stop it first"
            ) from None
        self._lock = lock
        self.sign(f"process {os.getpid()}")  # in the place of one that was killed

    def sign(self, text: str) -> None:
        """Who serves it, and where, for the next who tries."""
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, text.encode(), 0)

    def leave(self) -> None:
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1
