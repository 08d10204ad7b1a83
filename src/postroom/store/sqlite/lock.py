"""The line in which writers stand: an flock, fair and bounded, that knows its holder's name.

SQLite's own waiting starves (a second and more at eight writers); here the one who leaves taps the next on the
shoulder (`turns`). The lock file also carries two warnings from writer to writer: that a sync failed, and the log
must be made whole before anyone writes again; and that space is short, so letters must wait.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ...errors import StoreBusy
from .turns import open_turns

_PID_WIDTH = 20  # the holder's pid stands at the start of the file
_WARNING_AT = _PID_WIDTH  # then one byte: "!" after a failed sync
_SHORT_AT = _WARNING_AT + 1  # and one more: "!" while the reserve is not what it should be


_LOCKS: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """One descriptor; not for two threads at once."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._turns = open_turns(self._descriptor)
        _LOCKS.add(self)
        self._timeout = timeout
        self.warned = False  # did a sync fail since the log was last made whole? Known once the lock is held
        self.is_short = False  # is the reserve spent, or too small? Known once the lock is held
        self._name = str(os.getpid()).ljust(_PID_WIDTH).encode()

    def __enter__(self) -> None:
        try:
            self.take()
        except BaseException:  # an interrupt may come at any moment: nobody must be left standing outside
            self.leave()
            raise

    def take(self) -> None:
        """Stand in line and get in. Whatever happens meanwhile, call `leave` afterwards."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._stand_in_line()
        written = os.pread(self._descriptor, _SHORT_AT + 1, 0)
        self.warned = written[_WARNING_AT:_SHORT_AT] == b"!"
        self.is_short = written[_SHORT_AT:] == b"!"
        if written[:_PID_WIDTH] != self._name:
            with suppress(OSError):  # on a full disk the name is missing, and nothing else
                os.pwrite(self._descriptor, self._name, 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Let the next one in. Harmless for one who is not in."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except BaseException:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            raise
        self._turns.tap()

    def warn(self) -> None:
        os.pwrite(self._descriptor, b"!", _WARNING_AT)

    def clear_warning(self) -> None:
        os.pwrite(self._descriptor, b" ", _WARNING_AT)

    def mark_short(self, is_short: bool) -> None:
        """Under the lock: letters must wait, or need not any more."""
        if is_short != self.is_short:
            os.pwrite(self._descriptor, b"!" if is_short else b" ", _SHORT_AT)
            self.is_short = is_short

    def close(self) -> None:
        if self._descriptor >= 0:  # once: by the second time the number may name a stranger's file
            self._turns.close()
            os.close(self._descriptor)
            self._descriptor = -1

    def _stand_in_line(self) -> None:
        end = time.monotonic() + self._timeout
        while True:
            turn = self._turns.read()
            self._turns.expect()  # before the try: whoever has the lock then will tap; and others may wait behind
            try:
                return fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                left = end - time.monotonic()
            if left <= 0:
                raise StoreBusy(self._complaint(), hint="try again; if it hangs, look at that process")
            self._turns.wait(turn, left)

    def _complaint(self) -> str:
        holder = os.pread(self._descriptor, _PID_WIDTH, 0).decode("ascii", "replace").strip() or "unknown"
        return f"the room is held by process {holder} for more than {self._timeout:g} s"


def _let_go() -> None:
    """In a forked child: a lock belongs to all who have its descriptor, so a child that keeps one would keep the
    room locked after its parent was killed.
    """
    for lock in list(_LOCKS):
        lock.close()


os.register_at_fork(after_in_child=_let_go)
