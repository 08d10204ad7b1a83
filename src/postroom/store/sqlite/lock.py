"""The lock queue of writers: an flock, fair and bounded, that knows its holder's name.

SQLite's own waiting starves (a second and more at eight writers). Here the writer that leaves wakes the next one
(`Turns`), after it has written the commits that waiting writers laid into the tray. Both lie in the lock file. It
also carries two warnings from writer to writer: a sync failed, so the log must be made whole before anyone writes
again; and space is short, so messages must wait. And it carries the note of how far the room reached (`note`).
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
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
LAID_AT = 22  # 1 if anybody laid something out since somebody last looked
WAITING_AT = 23  # 1 if anybody waits for its turn
TURN_AT = 24  # then a word: whose turn it is
TRAY_AT = 64  # then the tray; between both lies the note (`note.AT`)
_NOBODY = bytes(2)  # has laid anything out, nor waits


_LOCKS: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """One descriptor; not for two threads at once."""

    def __init__(self, path: Place, timeout: float) -> None:
        self._path = path
        self.is_new = not os.path.lexists(path)
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        self._turns: Turns | Pauses | None = None  # both are opened by those who meet somebody; most never do
        self._tray: Tray | NoTray | None = None
        _LOCKS.add(self)
        self.timeout = timeout
        self.hurries = False  # is nobody waited for?
        self.warned = False  # did a sync fail since the log was last made whole? Known once the lock is held
        self.is_short = False  # is the reserve spent, or too small? Known at the same time
        self.is_laid = False  # does something lie in the tray? Known at the same time
        self.is_alone = False  # was nobody else in since we were, and does nobody wait? Known at the same time
        self.noted = note.NOTHING  # how far did the room reach when a letter was last confirmed? Likewise
        self._note = b""  # the same, as it is written
        self._owes_warning = False  # did a sync fail, and could that not be written?
        self._name = str(os.getpid()).ljust(_PID_WIDTH).encode()
        self._usual = self._name + bytes(TURN_AT - _PID_WIDTH)  # what is read by one who was in last, and alone

    def is_in_place(self) -> bool:
        """Or was its file deleted? Then others may stand in another line."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except OSError:
            return False

    def __enter__(self) -> None:
        try:
            self.take()
        except BaseException:  # an interrupt may come at any moment: nobody must be left standing outside
            self.leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def take(self) -> None:
        """Stand in line and get in. Whatever happens meanwhile, call `leave` afterwards."""
        if not self.take_at_once():
            self.stand_in_line()

    def take_at_once(self) -> bool:
        """Get in if nobody is. Whatever happens meanwhile, call `leave` afterwards."""
        try:
            fcntl.flock(self._descriptor, _AT_ONCE)
        except BlockingIOError:
            return False
        read = os.pread(self._descriptor, note.END, 0)
        written = read[:TURN_AT]
        self.is_alone = written == self._usual
        if self.is_alone:
            self.warned = self.is_short = self.is_laid = False
        else:
            self._sign_in(written)
        if read[note.AT :] != self._note:
            self._note = read[note.AT :]
            self.noted = note.unpack(self._note)
        if self._owes_warning:
            self.warned = True
        return True

    def _sign_in(self, written: bytes) -> None:
        self.warned = written[WARNING_AT:_SHORT_AT] == b"!"
        self.is_short = written[_SHORT_AT:LAID_AT] == b"!"
        self.is_laid = any(written[LAID_AT:WAITING_AT])
        with suppress(OSError):  # on a full disk the name is missing, and nothing else
            if len(written) < TURN_AT:
                os.pwrite(self._descriptor, bytes(TURN_AT - len(written)), len(written))
            if written[:_PID_WIDTH] != self._name:
                os.pwrite(self._descriptor, self._name, 0)

    def stand_in_line(self) -> bool:
        """Wait, and get in. Whatever happens meanwhile, call `leave` afterwards."""
        self.check_hurry()
        from .tray import LONG_NAP, NAP  # noqa: PLC0415 - mmap and ctypes: only for writers that meet

        end, turns, nap = time.monotonic() + self.timeout, self._line(), NAP
        while True:
            turn = turns.read()
            turns.expect()  # before the try: whoever has the lock then will tap; and others may wait behind
            if self.take_at_once():
                return True
            left = end - time.monotonic()
            self.check_patience(left)
            turns.wait(turn, min(left, nap))
            nap = min(2 * nap, LONG_NAP)  # hundreds who ask every few milliseconds leave no time to work

    def check_hurry(self) -> None:
        """Somebody is in: one who waits for nobody goes."""
        if self.hurries:
            raise StoreBusy("somebody is in the room", hint="try again")

    def check_patience(self, left: float) -> None:
        """One who stands in line: is there time left to stand there?"""
        if left <= 0:
            holder = os.pread(self._descriptor, _PID_WIDTH, 0).decode("ascii", "replace").strip() or "unknown"
            held = f"the room is held by process {holder} for more than {self.timeout:g} s"
            raise StoreBusy(held, hint="try again; if it hangs, look at that process")

    def leave(self) -> None:
        """Let the next one in. Harmless for one who is not in."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except BaseException:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            raise
        signs = os.pread(self._descriptor, 2, LAID_AT)  # not before: who comes later finds it free
        if signs != _NOBODY and any(signs):
            self._wake(*signs)

    def _wake(self, is_laid: int, is_waiting: int = 0) -> None:
        """Who laid something out and who waits in line: one of each, and the quicker one gets in."""
        if is_waiting:
            self._line().tap()
        if is_laid:
            self.tray.call()

    def note(self, number: int, place: int, salts: bytes) -> None:
        """After a sync: the room reaches this far. Of two writers who cross here the earlier one may write last.
        Then the note promises a little less until the next commit, and never more than is there.
        """
        held = os.pread(self._descriptor, note.LENGTH, note.AT)
        if held != self._note and note.unpack(held).number > number:
            return
        self.noted = note.Note(number, place, salts)
        self._note = self.noted.pack()
        try:  # noqa: SIM105 - every send passes here: `suppress` takes longer than what it guards
            os.pwrite(self._descriptor, self._note, note.AT)
        except OSError:
            pass  # the letter is safe: a note that cannot be written is not its sender's trouble

    def lower_note(self) -> None:
        """Under the lock: the log has started over. Of the note only the number still holds."""
        self.note(self.noted.number, 0, b"")

    def forget_note(self) -> None:
        """Under the lock, before another room comes to this place. Synced: an older note must not come back."""
        if self.noted.number:
            os.pwrite(self._descriptor, bytes(note.LENGTH), note.AT)
            os.fsync(self._descriptor)
            self.noted = note.NOTHING

    def warn(self) -> None:
        self._owes_warning = True  # until it is written
        os.pwrite(self._descriptor, b"!", WARNING_AT)
        self._owes_warning = False

    def clear_warning(self) -> None:
        os.pwrite(self._descriptor, b"\0", WARNING_AT)
        self._owes_warning = False

    def mark_short(self, is_short: bool) -> None:
        """Under the lock: letters must wait, or need not any more."""
        if is_short != self.is_short:
            os.pwrite(self._descriptor, b"!" if is_short else b"\0", _SHORT_AT)
            self.is_short = is_short

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:  # once, also of two threads: later the number may name a stranger's file
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


def _let_go() -> None:
    """In a forked child: a lock belongs to all who have its descriptor, so a child that keeps one would keep the
    room locked after its parent was killed.
    """
    for lock in list(_LOCKS):
        lock.close()


os.register_at_fork(after_in_child=_let_go)
