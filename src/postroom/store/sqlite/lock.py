"""The writers' lock of a room: an flock, fair and bounded, whose file names its holder.

SQLite's own waiting starves (a second and more at eight writers). Here each waiting writer tries again after a
short random pause, so no writer is ahead for long. Two flags in the lock file go from writer to writer: a sync
failed, and the log must be rebuilt before the next write; and disk space is short, so letters are refused. The
file also holds the note of how far the room reached (`note`).
"""

from __future__ import annotations

import fcntl
import os
import time
from _weakrefset import WeakSet  # `weakref` is slow to import
from contextlib import suppress
from typing import TYPE_CHECKING

from ...constants import WARNING_AT
from ...errors import StoreBusy
from . import note

if TYPE_CHECKING:
    from types import TracebackType

    from .ground import Place


_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB
_PID_WIDTH = 20  # the holder's pid stands at the start of the file; then bytes:
_SHORT_AT = 21  # "!" while the reserve is not what it should be
_END = 22  # the other bytes before the note, and those behind it, belonged to earlier versions

# Seconds between two tries. A writer that has waited for EAGER_AFTER tries more often than one that has just come.
# Measured with eight writers: the slowest sends 0.9 of what the fastest sends, and the worst send takes 20 ms
# where SQLite's own waiting takes 2 s. Pauses of 10 to 100 µs leave less time to work (a tenth fewer letters), and
# those of 2 to 10 ms leave the disk idle (a fifth fewer, and the slowest sends 0.6).
SHORTEST, LONGEST = 0.0001, 0.0005
EAGER_AFTER, EAGER = 0.003, 0.0001
# A wait beyond PATIENT is for a long commit, or one of hundreds of writers: tries become rarer, down to one in
# RAREST seconds, else they would leave no time to work.
PATIENT, RAREST = 0.1, 0.005


_LOCKS: WeakSet[WriterLock] = WeakSet()


class WriterLock:
    """The lock of all writers of a room, through one descriptor; not for two threads at once."""

    def __init__(self, path: Place, timeout: float) -> None:
        self._path = path
        self.is_new = not os.path.lexists(path)
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        _LOCKS.add(self)
        self.timeout = timeout
        # The next three are read when the lock is taken.
        self.sync_failed = False  # did a sync fail since the log was last rebuilt?
        self.is_short = False  # is the reserve released, or too small?
        self.noted = note.NOTHING  # how far did the room reach when a letter was last confirmed?
        self._head = b"?"  # the holder's name and the flags, as they were read last
        self._note = b""  # `noted`, as bytes
        self._failure_unwritten = False  # did a sync fail, and could that not be written?
        self._name = str(os.getpid()).ljust(_PID_WIDTH).encode()

    def is_in_place(self) -> bool:
        """Return whether the file still stands at its path; else other writers may use another lock."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except OSError:
            return False

    def __enter__(self) -> None:
        try:
            self.acquire()
        except BaseException:  # an interrupt may come at any moment, and a held lock would stop all writers
            self.release()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def acquire(self) -> None:
        """Take the lock, waiting for it if need be. Whatever happens meanwhile, call `release` afterwards."""
        try:
            fcntl.flock(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            self._wait()
        # One read for the holder's name, the flags and the note: every commit passes here.
        read = os.pread(self._descriptor, note.END, 0)
        if read[:_END] != self._head:
            self._take_in(read[:_END])
        if read[note.AT :] != self._note:
            self._note = read[note.AT :]
            self.noted = note.unpack(self._note)
        # Where the disk refused the mark, only this process knows of the failed sync: it rebuilds the log itself.
        self.sync_failed = self._failure_unwritten or read[WARNING_AT:_SHORT_AT] == b"!"

    def _wait(self) -> None:
        began = time.monotonic()
        while True:
            waited = time.monotonic() - began
            longest = LONGEST if waited < EAGER_AFTER else min(max(EAGER, waited - PATIENT), RAREST)
            self._check_timeout(self.timeout - waited)
            time.sleep(SHORTEST + (longest - SHORTEST) * os.urandom(1)[0] / 255)
            try:
                fcntl.flock(self._descriptor, _AT_ONCE)
            except BlockingIOError:
                continue
            return

    def _check_timeout(self, left: float) -> None:
        """Raise StoreBusy, naming the holder, once no time is left."""
        if left <= 0:
            holder = os.pread(self._descriptor, _PID_WIDTH, 0).decode("ascii", "replace").strip() or "unknown"
            raise StoreBusy(
                f"the room is held by process {holder} for more than {self.timeout:g} s",
                hint="try again; if it hangs, look at that process",
            )

    def _take_in(self, head: bytes) -> None:
        """Take in what other writers wrote into the file, and write our name there."""
        self.is_short = head[_SHORT_AT:] == b"!"
        with suppress(OSError):  # on a full disk the name is missing, and nothing else
            os.pwrite(self._descriptor, self._name, 0)
        self._head = self._name + head[_PID_WIDTH:]

    def release(self) -> None:
        """Release the lock. Harmless if it is not held."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except BaseException:  # an interrupt just before the call: the lock must not stay held
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            raise

    def note(self, number: int, place: int, salts: bytes) -> None:
        """Record after a sync that the room reaches this far.

        Of two writers that race here the earlier one may write last. Then the note promises a little less until
        the next commit, and never more than is there.
        """
        held = os.pread(self._descriptor, note.LENGTH, note.AT)
        if held != self._note and note.unpack(held)[0] > number:
            return
        self.noted = number, place, salts
        self._note = note.pack(self.noted)
        try:  # noqa: SIM105 - every send passes here: `suppress` takes longer than what it guards
            os.pwrite(self._descriptor, self._note, note.AT)
        except OSError:
            pass  # the letter is durable all the same

    def lower_note(self) -> None:
        """Keep only the number of the note, under the lock: the log has started over."""
        self.note(self.noted[0], 0, b"")

    def forget_note(self) -> None:
        """Delete the note, under the lock, before a new room is made here. Synced: it must not return."""
        if self.noted[0]:
            os.pwrite(self._descriptor, bytes(note.LENGTH), note.AT)
            os.fsync(self._descriptor)
            self.noted = note.NOTHING

    def mark_sync_failed(self) -> None:
        """Tell the next writer that the log must be rebuilt before anything is written."""
        self._failure_unwritten = True  # until it is written
        os.pwrite(self._descriptor, b"!", WARNING_AT)
        self._failure_unwritten = False

    def clear_sync_failed(self) -> None:
        os.pwrite(self._descriptor, b"\0", WARNING_AT)
        self._failure_unwritten = False

    def mark_short(self, is_short: bool) -> None:
        """Record under the lock whether disk space is short: then letters are refused."""
        if is_short != self.is_short:
            os.pwrite(self._descriptor, b"!" if is_short else b"\0", _SHORT_AT)
            self.is_short = is_short

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:  # once, also with two threads: later the number may name another file
            os.close(descriptor)


def _close_after_fork() -> None:
    """Close all locks in a forked child.

    An flock belongs to all processes that have its descriptor: a child that kept one would keep the room locked
    after its parent was killed.
    """
    for lock in list(_LOCKS):
        lock.close()


os.register_at_fork(after_in_child=_close_after_fork)
