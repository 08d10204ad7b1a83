"""Where a socket stands, and whose it is. Two daemons never share one, and what a dead one left behind is cleared.

Beside the socket lies a lock file. Whoever holds its lock may bind; so a socket is removed only when nobody can be
behind it. The lock file stays: removing it would let two hold two of them.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from typing import TYPE_CHECKING

from ..errors import BadStore, NameTaken

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

LONGEST = 107  # bytes of a socket's path that the kernel takes
BACKLOG = 512


class Place:
    """A socket's place, held while the daemon lives."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        if len(os.fsencode(self.path)) > LONGEST:
            told = f"{self.path} is longer than a socket's path may be"
            raise BadStore(told, field="socket", hint="name a shorter one: --socket PATH")
        self._lock = -1

    def take(self) -> socket.socket:
        """The bound socket, for its owner alone."""
        folder = os.path.dirname(self.path)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            self._hold()
            self._clear()
            return self._bind()
        except OSError as error:
            self.leave()
            raise BadStore(f"cannot listen at {self.path}: {error.strerror}", field="socket") from error
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """The socket goes first, the lock last."""
        if self._lock >= 0:
            self._clear()
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _hold(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(f"{self.path}.lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(lock)
            told = f"process {holder} serves {self.path} already"
            raise NameTaken(told, field="socket", hint="stop it first, or choose another --socket") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def _clear(self) -> None:
        """Nobody is behind it: we hold the lock. Anything but a socket is somebody's file."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise BadStore(
                f"{self.path} is there and is no socket", field="socket", hint="choose another --socket"
            )
        if _answers(self.path):
            told = f"somebody serves {self.path} already, and not by our rules"
            raise NameTaken(
                told, field="socket", hint="an agent-inbox daemon? stop it, or choose another --socket"
            )
        os.unlink(self.path)

    def _bind(self) -> socket.socket:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)  # never open to others, not even for a moment
        try:
            listening.bind(self.path)
        except BaseException:
            listening.close()
            raise
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
        listening.setblocking(False)
        return listening


def _answers(path: str) -> bool:
    """Is there a living process behind this socket that does not know of our lock?"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.settimeout(1)
        try:
            knock.connect(path)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
        return True
