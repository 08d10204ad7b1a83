"""The line in which writers stand: an flock, fair and bounded, that knows its holder's name.

SQLite's own waiting starves (a second and more at eight writers); here the one who leaves taps the next on the
shoulder (`turns`). The lock file also carries one warning from writer to writer: that a sync failed, and the log
must be made whole before anyone writes again.
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
from .tray import NoTray, Tray, open_tray
from .turns import open_turns

_PID_WIDTH = 20  # the holder's pid stands at the start of the file
_WARNING_AT = _PID_WIDTH  # then one byte: "!" after a failed sync


_LOCKS: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """One descriptor; not for two threads at once."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._turns = open_turns(self.descriptor)
        self.tray: Tray | NoTray = NoTray()
        _LOCKS.add(self)
        self.timeout = timeout
        self.warned = False  # did a sync fail since the log was last made whole? Known once the lock is held
        self._name = str(os.getpid()).ljust(_PID_WIDTH).encode()

    def __enter__(self) -> None:
        try:
            self.take()
        except BaseException:  # an interrupt may come at any moment: nobody must be left standing outside
            self.leave()
            raise

    def take(self) -> None:
        """Stand in line and get in. Whatever happens meanwhile, call `leave` afterwards."""
        if not self.take_at_once():
            self.stand_in_line()

    def take_at_once(self) -> bool:
        """Get in if nobody is. Whatever happens meanwhile, call `leave` afterwards."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self._sign_in()
        return True

    def stand_in_line(self) -> bool:
        """Wait, and get in. Whatever happens meanwhile, call `leave` afterwards."""
        end = time.monotonic() + self.timeout
        while True:
            turn = self._turns.read()
            self._turns.expect()  # before the try: whoever has the lock then will tap; and others may wait behind
            if self.take_at_once():
                return True
            left = end - time.monotonic()
            self.check_patience(left)
            self._turns.wait(turn, left)

    def check_patience(self, left: float) -> None:
        """After standing in line: is there time left to stand there?"""
        if left <= 0:
            holder = os.pread(self.descriptor, _PID_WIDTH, 0).decode("ascii", "replace").strip() or "unknown"
            held = f"the room is held by process {holder} for more than {self.timeout:g} s"
            raise StoreBusy(held, hint="try again; if it hangs, look at that process")

    def _sign_in(self) -> None:
        written = os.pread(self.descriptor, _PID_WIDTH + 1, 0)
        self.warned = written[_WARNING_AT:] == b"!"
        if written[:_PID_WIDTH] != self._name:
            with suppress(OSError):  # on a full disk the name is missing, and nothing else
                os.pwrite(self.descriptor, self._name, 0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Let the next one in. Harmless for one who is not in."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
        except BaseException:
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            raise
        self._turns.tap()

    def set_up_tray(self) -> None:
        """Under the lock: let others carry our letters, and carry theirs."""
        self.tray = open_tray(self.descriptor)

    def warn(self) -> None:
        os.pwrite(self.descriptor, b"!", _WARNING_AT)

    def clear_warning(self) -> None:
        os.pwrite(self.descriptor, b" ", _WARNING_AT)

    def close(self) -> None:
        if self.descriptor >= 0:  # once: by the second time the number may name a stranger's file
            self._turns.close()
            self.tray.close()
            os.close(self.descriptor)
            self.descriptor = -1


def _let_go() -> None:
    """In a forked child: a lock belongs to all who have its descriptor, so a child that keeps one would keep the
    room locked after its parent was killed.
    """
    for lock in list(_LOCKS):
        lock.close()


os.register_at_fork(after_in_child=_let_go)
