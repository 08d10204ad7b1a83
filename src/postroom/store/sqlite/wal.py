"""The disk begins to write before anybody waits for it (Linux): what is done in between takes no time of its own.

Only a hint, which promises nothing. What was not written by then, the sync writes; what could not be, it tells.
Loaded by whoever syncs again and again.
"""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import apsw

from ...errors import Damaged, StoreFailing
from . import ground
from .ground import sync_file, sync_path
from .rows import SALVAGE

if TYPE_CHECKING:
    from .connection import Names
    from .ground import FileAt
    from .lock import WriterLock
    from .note import Note


_BEGIN_TO_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_call = getattr(ctypes.CDLL(None), "sync_file_range", None)
if _call is not None:
    _call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)


def begin_to_write(descriptor: int) -> None:
    """All of the file that waits to be written."""
    if _call is not None:
        _call(descriptor, 0, 0, _BEGIN_TO_WRITE)


# Space set aside for a full disk: letters must not take the last of it, so that mail can still be done with.
#
# A file of the log's size and a little more. Once the disk is full, it is given up: then the main file can take
# in
# the whole log, the log starts over in the space it has, and acks go on. Letters wait until it is there again.

MARGIN = 512 * 1024  # more than the log: what a good many acks add to the room

_allocate = getattr(os, "posix_fallocate", None)  # Linux; elsewhere zeros are written
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class Reserve:
    """Looked after under the writers' lock; opened only when it must change."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}.reserve"

    def keep(self, log_size: int) -> None:
        """Set aside what a log of this size needs. OSError where that cannot be done; see `is_full`."""
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            held = os.fstat(descriptor).st_size
            if held < log_size + MARGIN:
                _allot(descriptor, held, log_size + MARGIN)
        finally:
            os.close(descriptor)

    def spend(self) -> None:
        """Give it up, if it is there."""
        with suppress(OSError):
            descriptor = os.open(self._path, _FLAGS, 0o600)  # not by its name: that may be a link to another file
            try:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)


def is_full(failed: OSError) -> bool:
    """Was there no space, or did something else go wrong, which says nothing about space?"""
    return failed.errno in {errno.ENOSPC, errno.EDQUOT}


def _allot(descriptor: int, held: int, size: int) -> None:
    """Blocks, not a promise of blocks: a file of holes would set nothing aside."""
    try:
        if _allocate is None:
            os.pwrite(descriptor, bytes(size - held), held)
        else:
            _allocate(descriptor, held, size - held)
    except OSError:
        os.ftruncate(descriptor, held)  # the little that it got is of more use to others
        raise


# The write-ahead log: what was committed is safe once this file is synced.
#
# Overwriting blocks that exist is about twice as fast as growing a file, so the log is filled with zeros ahead
# of its use, and it is never deleted. Checkpoints run under the writers' lock: then no writer races one.

PAGE = 4096
FRAME = PAGE + 24
CHECKPOINT_PAGES = 2000  # about 8 MB of log
STEP = 512 * 1024  # how much the log is filled ahead, until it is as large as it gets
FAILING = "is the disk failing? If it goes on, postroom doctor tells"
CUT_SHORT = "leave the files of an open room alone; it is made anew: try again"
REPLACED = "the room was deleted or moved while it was open; try again"
LARGEST = 32 + FRAME * (CHECKPOINT_PAGES + 64)
SOME = 8  # syncs, after which one more is likely
_HEAD, _FRAME_HEAD, _SALTS = 32, 24, 8  # bytes in SQLite's format: of the log, of each frame, and of its salts
_ONLY_A_HANDLE: int = getattr(os, "O_PATH", 0)  # Linux
_SALTS_AT, _FRAME_SALTS_AT = 16, 8  # where they stand in the one and in the other


class Log:
    """One connection's hold on the room's log. `pages` is how full it was after the last commit."""

    def __init__(self, database: apsw.Connection, path: str, names: Names) -> None:
        self._database = database
        self._names = names
        self._path = f"{path}-wal"
        self._at: FileAt | None = None  # made for the second commit
        self._reserve = Reserve(path)
        self._covered = -1  # the size of log up to which we have looked after the reserve
        self._descriptor = -1
        self._index = -1  # of the log, for its size alone
        self._index_path = f"{path}-shm"
        self._index_size = 0
        self._has_name = False  # is it certain that the file's name outlasts a power cut?
        self._frame = 0  # bytes of one frame; asked for when first needed
        self._inode = -1
        self._next_checkpoint = CHECKPOINT_PAGES
        self._calm = range(0)  # while it holds this many pages, there is nothing to do
        self._syncs = 0
        self.pages = 0

    def _committed(self, _database: apsw.Connection, _name: str, pages: int) -> int:
        self.pages = pages
        return apsw.SQLITE_OK

    def check(self) -> bool:
        """Under the lock, before anything is written: is the log still the file that SQLite writes to? False
        while there is nothing to compare.
        """
        if self._descriptor < 0:
            return False
        at = self._at or self._look()
        if self._inode < 0:
            self._inode = ground.inode_of(self._descriptor)
        if at.inode() != self._inode:
            raise StoreFailing(f"{self._path} was replaced by another file", hint=REPLACED)
        return True

    def tend(self, lock: WriterLock) -> None:
        """After a commit, under the lock: fill ahead; checkpoint when it is full."""
        if self.pages in self._calm and not lock.is_short:
            return
        if self._descriptor < 0:
            self._open()
        if not self._has_name:
            sync_path(os.path.dirname(self._path))
            self._has_name = True
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        used = 32 + FRAME * self.pages
        is_near_its_end = used + STEP // 2 > size
        if is_near_its_end and size < LARGEST and not lock.is_short:
            self._fill(size, lock)
        elif size > self._covered:
            self._set_aside(size, lock)
        if self.pages < CHECKPOINT_PAGES:
            self._next_checkpoint = CHECKPOINT_PAGES  # the log started over: whoever held it back is gone
        if self.pages >= self._next_checkpoint or (is_near_its_end and lock.is_short):
            self._checkpoint(lock)  # when short of space too: it must not grow into what was set aside
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        self._calm = range(self.pages, min((size - STEP // 2 - 32) // FRAME, self._next_checkpoint))

    def hasten(self, lock: WriterLock) -> None:
        """After a commit that will be synced, under the lock: the disk may begin. Not where others want to get in:
        they would wait for it, too. Nor for one who commits once or twice: it takes longer to load than it saves.
        """
        if lock.is_alone and self._syncs > SOME:
            begin_to_write(self._descriptor)

    def check_room(self, lock: WriterLock) -> None:
        """Under the lock, before letters are written: FullError while the rest of the disk is not for them."""
        if lock.is_short and not self._set_aside(os.stat(self._path).st_size, lock):
            raise apsw.FullError

    def relieve(self, lock: WriterLock) -> None:
        """Under the lock, on a full disk: give up the reserve, and let the log start over in the space it has."""
        lock.mark_short(True)
        self._reserve.spend()
        self._checkpoint(lock)

    def sync(self, lock: WriterLock) -> None:
        """After the lock was left: make what was committed survive a power cut.

        A failed sync is never retried: the kernel may have dropped the pages. The next writer is warned.
        """
        self._syncs += 1
        try:
            sync_file(self._descriptor)
        except OSError as failed:
            with suppress(OSError):  # a disk that is read-only by now takes no warning: we remember it
                lock.warn()
            raise StoreFailing(f"the disk did not take the letter: {failed.strerror}", hint=FAILING) from None
        if self.pages:
            place = self._salts_of(self.pages)
            number = self._names.as_of - 1 if self._names.as_of else lock.noted.number
            lock.note(number, place, os.pread(self._descriptor, _SALTS, place))

    def watch(self) -> None:
        """Once the tables are there: learn after each commit how full the log is, and open a handle on its index.

        Not sooner: an interrupt (Ctrl-C) inside the hook fails the statement with a bare SQL error, and the
        statements that make the tables have nobody who can tell that from damage. The handle can neither read nor
        write: to close one that can would drop the locks that SQLite holds on this file for the whole process.
        """
        self._database.set_wal_hook(self._committed)
        if not _ONLY_A_HANDLE:  # macOS
            return
        with suppress(OSError):
            self._index = os.open(self._index_path, _ONLY_A_HANDLE | os.O_NOFOLLOW | os.O_CLOEXEC)

    def check_index(self) -> None:
        """Before SQLite looks into the index of the log: StoreFailing, if somebody has cut that file short. SQLite
        maps it into memory, and to touch a page that is no longer there would end the process (SIGBUS). The file
        gets its size back, and SQLite makes the index anew from the log. A cut after this check is not noticed.
        """
        if self._index < 0:
            return
        size = os.fstat(self._index).st_size
        if size < self._index_size:
            os.truncate(self._index_path, self._index_size)
            raise StoreFailing(f"{self._index_path} was cut short while the room was open", hint=CUT_SHORT)
        self._index_size = size

    def reaches(self, noted: Note) -> bool:
        """Does the log still hold the last frame that was confirmed? If not, `check_whole` tells what that means:
        the log may also have started over.
        """
        if not noted.place:
            return True
        if self._descriptor < 0:
            self._open()
        return os.pread(self._descriptor, _SALTS, noted.place) == noted.salts

    def check_whole(self) -> None:
        """Damaged, if the file lacks frames that SQLite believes to be in it: somebody emptied it, cut it short,
        or put another one in its place while the room was open.
        """
        frames, _ = self._database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        if frames <= 0:
            return
        with suppress(FileNotFoundError):
            if self._descriptor < 0:
                self._open()
            salts = os.pread(self._descriptor, _SALTS, _SALTS_AT)
            if any(salts) and os.pread(self._descriptor, _SALTS, self._salts_of(frames)) == salts:
                return
        raise Damaged(f"{self._path} was emptied, cut short or replaced while the room was open", hint=SALVAGE)

    def _salts_of(self, frame: int) -> int:
        """Where a frame names the salts of the log's present round."""
        if not self._frame:
            self._frame = _FRAME_HEAD + self._database.pragma("page_size")
        return _HEAD + (frame - 1) * self._frame + _FRAME_SALTS_AT

    def make_whole(self, lock: WriterLock) -> None:
        """After a failed sync, under the lock: bring everything into the main file and start a new log.

        The emptied log is synced too, else a crash could lay its old half over the newer main file.
        """
        try:
            self._database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._open()
            os.fsync(self._descriptor)
            sync_path(os.path.dirname(self._path))
        except (apsw.Error, OSError) as failed:
            raise StoreFailing(f"an earlier sync failed and the log cannot be mended yet: {failed}") from None
        lock.clear_warning()

    def close(self) -> None:
        self._close_log()
        if self._index >= 0:
            os.close(self._index)
            self._index = -1

    def _close_log(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open(self) -> None:
        self._close_log()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        self._calm = range(0)
        self._inode = -1  # asked for when there is something to compare it with
        self._has_name = False

    def _look(self) -> FileAt:
        self._at = ground.FileAt(self._path)
        return self._at

    def _fill(self, size: int, lock: WriterLock) -> None:
        ahead = min(STEP, LARGEST - size)
        if self._set_aside(size + ahead, lock):
            with suppress(OSError):  # the disk is full or failing: only speed is lost here, the sync will tell
                os.pwrite(self._descriptor, bytes(ahead), size)

    def _set_aside(self, size: int, lock: WriterLock) -> bool:
        """The reserve grows with the log, and before it. If it cannot, letters wait from now on."""
        self._covered = size
        try:
            self._reserve.keep(size)
        except OSError as failed:
            if is_full(failed):
                lock.mark_short(True)
                return False
        else:
            lock.mark_short(False)
        return True

    def _checkpoint(self, lock: WriterLock) -> None:
        try:
            frames, done = self._database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.BusyError, apsw.FullError):  # nothing of the log is lost by that
            frames, done = self.pages, 0
        except apsw.Error:
            lock.warn()  # the letter is committed; whether it is safe, the sync decides
            return
        # A reader that holds an old view keeps the log from starting over: do not try again at every commit.
        held = frames > done
        self._next_checkpoint = self.pages + CHECKPOINT_PAGES // 4 if held else CHECKPOINT_PAGES
