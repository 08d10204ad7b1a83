"""The writers' lock of a room: an flock, fair and bounded, whose file names its holder.

SQLite's own waiting starves (a second and more at eight writers). Here a writer that leaves wakes the next one
(`Turns`), after it has written what waiting writers laid into the tray. Both lie in the lock file. Two flags go
from writer to writer: a sync failed, and the log must be rebuilt before the next write; and disk space is short,
so letters are refused. The file also holds the note of how far the room reached (`note`).
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
    from .tray import NoTray, Pauses, Tray, Turns


_AT_ONCE = fcntl.LOCK_EX | fcntl.LOCK_NB
_PID_WIDTH = 20  # the holder's pid stands at the start of the file; then bytes:
_SHORT_AT = 21  # "!" while the reserve is not what it should be
LAID_AT = 22  # 1 if something was laid into the tray since a writer last looked
WAITING_AT = 23  # 1 if a writer waits for its turn
TURN_AT = 24  # then a word: whose turn it is
TRAY_AT = 64  # then the tray; between both lies the note (`note.AT`)
_NOBODY = bytes(2)  # both flags while no writer waits


_LOCKS: WeakSet[WriterLock] = WeakSet()


class WriterLock:
    """The lock of all writers of a room, through one descriptor; not for two threads at once."""

    def __init__(self, path: Place, timeout: float) -> None:
        self._path = path
        self.is_new = not os.path.lexists(path)
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._turns: Turns | Pauses | None = None  # both are opened only when another writer is met
        self._tray: Tray | NoTray | None = None
        _LOCKS.add(self)
        self.timeout = timeout
        self.hurries = False  # raise StoreBusy instead of waiting?
        # The next five are read when the lock is taken.
        self.sync_failed = False  # did a sync fail since the log was last rebuilt?
        self.is_short = False  # is the reserve released, or too small?
        self.is_laid = False  # does something lie in the tray?
        self.is_alone = False  # did no other writer hold the lock since we did, and does none wait?
        self.noted = note.NOTHING  # how far did the room reach when a letter was last confirmed?
        self._note = b""  # `noted`, as bytes
        self._failure_unwritten = False  # did a sync fail, and could that not be written?
        self._name = str(os.getpid()).ljust(_PID_WIDTH).encode()
        # The start of the file if we were the last holder and no other writer waits.
        self._usual = self._name + bytes(TURN_AT - _PID_WIDTH)

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
        if not self.try_acquire():
            self.wait_turn()

    def try_acquire(self) -> bool:
        """Take the lock if it is free. Whatever happens meanwhile, call `release` afterwards."""
        try:
            fcntl.flock(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            return False
        # One read for the holder's name, the flags and the note: every commit passes here.
        read = os.pread(self._descriptor, note.END, 0)
        written = read[:TURN_AT]
        self.is_alone = written == self._usual
        if self.is_alone:
            self.sync_failed = self.is_short = self.is_laid = False
        else:
            self._read_flags(written)
        if read[note.AT :] != self._note:
            self._note = read[note.AT :]
            self.noted = note.unpack(self._note)
        # The disk refused the mark, so only this process knows of the failed sync: it rebuilds the log itself.
        if self._failure_unwritten:
            self.sync_failed = True
        return True

    def _read_flags(self, written: bytes) -> None:
        self.sync_failed = written[WARNING_AT:_SHORT_AT] == b"!"
        self.is_short = written[_SHORT_AT:LAID_AT] == b"!"
        self.is_laid = any(written[LAID_AT:WAITING_AT])
        with suppress(OSError):  # on a full disk the name is missing, and nothing else
            if len(written) < TURN_AT:
                os.pwrite(self._descriptor, bytes(TURN_AT - len(written)), len(written))
            if written[:_PID_WIDTH] != self._name:
                os.pwrite(self._descriptor, self._name, 0)

    def wait_turn(self) -> bool:
        """Wait for the lock. Whatever happens meanwhile, call `release` afterwards."""
        self.check_hurry()
        from .tray import LONG_NAP, NAP  # noqa: PLC0415 - mmap and ctypes: only for writers that meet

        end, turns, nap = time.monotonic() + self.timeout, self._line(), NAP
        while True:
            turn = turns.read()
            turns.expect()  # before the try: the holder at that moment will wake us
            if self.try_acquire():
                return True
            left = end - time.monotonic()
            self.check_timeout(left)
            turns.wait(turn, min(left, nap))
            nap = min(2 * nap, LONG_NAP)  # hundreds that try every few milliseconds leave no time to work

    def check_hurry(self) -> None:
        """Raise StoreBusy if this writer must not wait."""
        if self.hurries:
            raise StoreBusy("another process is in the room", hint="try again")

    def check_timeout(self, left: float) -> None:
        """Raise StoreBusy, naming the holder, once no time is left."""
        if left <= 0:
            holder = os.pread(self._descriptor, _PID_WIDTH, 0).decode("ascii", "replace").strip() or "unknown"
            held = f"the room is held by process {holder} for more than {self.timeout:g} s"
            raise StoreBusy(held, hint="try again; if it hangs, look at that process")

    def release(self) -> None:
        """Release the lock and wake the next writer. Harmless if the lock is not held."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except BaseException:  # an interrupt just before the call: the lock must not stay held
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            raise
        signs = os.pread(self._descriptor, 2, LAID_AT)  # after the unlock: a writer that comes later finds it free
        if signs != _NOBODY and any(signs):
            self._wake(*signs)

    def _wake(self, is_laid: int, is_waiting: int = 0) -> None:
        """Wake one writer with a letter in the tray and one in the queue; the quicker one gets the lock."""
        if is_waiting:
            self._line().tap()
        if is_laid:
            self.tray.call()

    def note(self, number: int, place: int, salts: bytes) -> None:
        """Record after a sync that the room reaches this far.

        Of two writers that race here the earlier one may write last. Then the note promises a little less until
        the next commit, and never more than is there.
        """
        held = os.pread(self._descriptor, note.LENGTH, note.AT)
        if held != self._note and note.unpack(held).number > number:
            return
        self.noted = note.Note(number, place, salts)
        self._note = self.noted.pack()
        try:  # noqa: SIM105 - every send passes here: `suppress` takes longer than what it guards
            os.pwrite(self._descriptor, self._note, note.AT)
        except OSError:
            pass  # the letter is durable all the same

    def lower_note(self) -> None:
        """Keep only the number of the note, under the lock: the log has started over."""
        self.note(self.noted.number, 0, b"")

    def forget_note(self) -> None:
        """Delete the note, under the lock, before a new room is made here. Synced: it must not return."""
        if self.noted.number:
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
            turns, self._turns = self._turns, None
            tray, self._tray = self._tray, None
            for held in (turns, tray):
                if held is not None:
                    held.close()
            os.close(descriptor)

    @property
    def tray(self) -> Tray | NoTray:
        if self._tray is None:
            from .tray import open_tray  # noqa: PLC0415 - mmap and ctypes: only for writers that meet

            self._tray = open_tray(self._descriptor)
        return self._tray

    def _line(self) -> Turns | Pauses:
        if self._turns is None:
            from .tray import open_turns  # noqa: PLC0415 - mmap and ctypes: only for writers that meet

            self._turns = open_turns(self._descriptor)
        return self._turns


def _close_after_fork() -> None:
    """Close all locks in a forked child.

    An flock belongs to all processes that have its descriptor: a child that kept one would keep the room locked
    after its parent was killed.
    """
    for lock in list(_LOCKS):
        lock.close()


os.register_at_fork(after_in_child=_close_after_fork)
