"""The write-ahead log and the disk reserve: what was committed is durable once the log is synced.

Overwriting existing blocks is about twice as fast as growing a file, so the log is filled with zeros ahead of
its use, and it is never deleted. Checkpoints run under the writers' lock: then no writer races one. A failed
sync is never retried, because the kernel may have dropped the pages; the next writer rebuilds the log first.

The reserve is a file a little larger than the log. Letters must not take the last space of the disk. Once the
disk is full, the reserve is released: then the main file can take in the whole log, the log starts over in the
space it has, and acks go on. Letters are refused until the reserve is back.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import apsw

from ...errors import Damaged, StoreFailing
from .ground import sync_file, sync_path
from .rows import SALVAGE

if TYPE_CHECKING:
    from .connection import NameCache
    from .lock import WriterLock
    from .note import Note


# -- the reserve

MARGIN = 512 * 1024  # beyond the size of the log: enough for many acks

_allocate = getattr(os, "posix_fallocate", None)  # Linux; elsewhere zeros are written
_FLAGS = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class Reserve:
    """The reserve of one room, changed under the writers' lock and opened only when it must change."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}.reserve"

    def ensure(self, log_size: int) -> None:
        """Reserve what a log of this size needs; OSError where that cannot be done (see `is_full`)."""
        descriptor = os.open(self._path, _FLAGS, 0o600)
        try:
            held = os.fstat(descriptor).st_size
            if held < log_size + MARGIN:
                _allocate_blocks(descriptor, held, log_size + MARGIN)
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Give the space back to the disk."""
        with suppress(OSError):
            descriptor = os.open(self._path, _FLAGS, 0o600)  # not by its name: that may be a link to another file
            try:
                os.ftruncate(descriptor, 0)
            finally:
                os.close(descriptor)


def is_full(failed: OSError) -> bool:
    """Return whether a call failed for want of disk space."""
    return failed.errno in {errno.ENOSPC, errno.EDQUOT}


def _allocate_blocks(descriptor: int, held: int, size: int) -> None:
    """Allocate real blocks: a sparse file would reserve nothing."""
    try:
        if _allocate is None:
            os.pwrite(descriptor, bytes(size - held), held)
        else:
            _allocate(descriptor, held, size - held)
    except OSError:
        os.ftruncate(descriptor, held)  # a part of the space is of more use to others
        raise


# -- the log

PAGE = 4096
FRAME = PAGE + 24
CHECKPOINT_PAGES = 2000  # about 8 MB of log
STEP = 512 * 1024  # how much the log is filled ahead, until it is as large as it gets
FAILING = "is the disk failing? If it goes on, postroom doctor tells"
CUT_SHORT = "leave the files of an open room alone; the file is made again: try again"
REPLACED = "the room was deleted or moved while it was open; try again"
# Beyond the mark at which a checkpoint is due, so that the commit which passes it still overwrites zeros.
LARGEST = 32 + FRAME * (CHECKPOINT_PAGES + 64)
_HEAD, _FRAME_HEAD, _SALTS = 32, 24, 8  # bytes in SQLite's format: of the log, of each frame, and of its salts
_ONLY_A_HANDLE: int = getattr(os, "O_PATH", 0)  # Linux
_PATH_OF_DESCRIPTOR = "/proc/self/fd/{}"  # Linux
_SALTS_AT, _FRAME_SALTS_AT = 16, 8  # where they stand in the one and in the other


class Log:
    """One connection's hold on the room's log. `pages` is how full it was after the last commit."""

    def __init__(self, database: apsw.Connection, path: str, names: NameCache) -> None:
        self._database = database
        self._name_cache = names
        self._path = f"{path}-wal"
        self._reserve = Reserve(path)
        self._covered = -1  # the size of log that the reserve was made for
        self._descriptor = -1
        self._link = ""  # a link to the descriptor's file, on Linux
        self._target = ""  # where it led when the log was opened
        self._index = -1  # descriptor of the log's index, for its size alone
        self._index_path = f"{path}-shm"
        self._index_size = 0
        self._has_name = False  # was the folder synced, so that the file's name survives a power cut?
        self._frame = 0  # bytes of one frame; read when first needed
        self._next_checkpoint = CHECKPOINT_PAGES
        self._calm = range(0)  # numbers of pages at which `maintain` has nothing to do
        self.pages = 0

    def _committed(self, _database: apsw.Connection, _name: str, pages: int) -> int:
        self.pages = pages
        return apsw.SQLITE_OK

    def check_in_place(self, room: str, inode: int) -> None:
        """Raise StoreFailing if the room's file or its log was replaced or deleted; call it under the lock.

        A `stat` of the log would ask for its exact time. Since Linux 6.13 the next write must then journal a new
        one, and the next sync takes twice as long: measured, a send a quarter longer.
        """
        try:
            same = os.stat(room).st_ino == inode
            if self._link:
                same = (
                    same and os.readlink(self._link) == self._target
                )  # else another path, or "(deleted)" behind it
            elif self._descriptor >= 0:
                same = same and os.path.samestat(os.stat(self._path), os.fstat(self._descriptor))
        except OSError:
            same = False
        if not same:
            raise StoreFailing("the room's file was replaced or deleted", hint=REPLACED)

    def maintain(self, lock: WriterLock) -> None:
        """Fill the log ahead, keep the reserve, checkpoint a full log; call it after a commit, under the lock."""
        if self.pages in self._calm and not lock.is_short:
            return
        if self._descriptor < 0:
            self._open()
        # Without the folder's sync a power cut could take the name of a synced log, and all mail in it (G1).
        if not self._has_name:
            sync_path(os.path.dirname(self._path))
            self._has_name = True
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        used = 32 + FRAME * self.pages
        is_near_its_end = used + STEP // 2 > size
        if is_near_its_end and size < LARGEST and not lock.is_short:
            self._fill(size, lock)
        elif size > self._covered:
            self._grow_reserve(size, lock)
        if self.pages < CHECKPOINT_PAGES:
            self._next_checkpoint = CHECKPOINT_PAGES  # the log started over: the reader that held it back is gone
        if self.pages >= self._next_checkpoint or (is_near_its_end and lock.is_short):
            self._checkpoint(lock)  # when short of space too: the log must not grow into the reserve
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        self._calm = range(self.pages, min((size - STEP // 2 - 32) // FRAME, self._next_checkpoint))

    def check_disk_space(self, lock: WriterLock) -> None:
        """Raise FullError while the reserve cannot be kept; call it under the lock, before letters are written."""
        if lock.is_short and not self._grow_reserve(os.stat(self._path).st_size, lock):
            raise apsw.FullError

    def release_reserve(self, lock: WriterLock) -> None:
        """Release the reserve on a full disk, and let the log start over in the space it has; under the lock."""
        lock.mark_short(True)
        self._reserve.release()
        self._checkpoint(lock)

    def sync(self, lock: WriterLock) -> None:
        """Make what was committed survive a power cut; call it after the lock was left.

        A failed sync is never retried: the kernel may have dropped the pages. The next writer rebuilds the log.
        """
        try:
            sync_file(self._descriptor)
        except OSError as failed:
            with suppress(OSError):  # a disk that is read-only by now cannot record it: the lock remembers it
                lock.mark_sync_failed()
            raise StoreFailing(f"the disk did not take the letter: {failed.strerror}", hint=FAILING) from None
        # Noted after the sync, never before: a log that does not reach the note has lost confirmed mail (G2).
        if self.pages:
            place = self._salts_of(self.pages)
            number = self._name_cache.as_of - 1 if self._name_cache.as_of else lock.noted[0]
            lock.note(number, place, os.pread(self._descriptor, _SALTS, place))

    def watch(self) -> None:
        """Learn after each commit how full the log is, and open a descriptor of its index.

        Call it once the tables are there, not sooner: an interrupt (Ctrl-C) inside the hook fails the statement
        with a bare SQL error, which cannot be told from damage while the tables are made. The descriptor can
        neither read nor write (O_PATH): to close one that can would drop the POSIX locks that SQLite holds on this
        file for the whole process.
        """
        self._database.set_wal_hook(self._committed)
        if not _ONLY_A_HANDLE:  # macOS
            return
        with suppress(OSError):
            self._index = os.open(self._index_path, _ONLY_A_HANDLE | os.O_NOFOLLOW | os.O_CLOEXEC)

    def check_index(self) -> None:
        """Raise StoreFailing if another program has cut the log's index short; call it before SQLite reads it.

        SQLite maps that file into memory, and touching a page that is no longer there would end the process
        (SIGBUS). The file gets its size back, and SQLite rebuilds the index from the log. A cut after this check
        is not noticed.
        """
        if self._index < 0:
            return
        size = os.fstat(self._index).st_size
        if size < self._index_size:
            os.truncate(self._index_path, self._index_size)
            raise StoreFailing(f"{self._index_path} was cut short while the room was open", hint=CUT_SHORT)
        self._index_size = size

    def reaches(self, noted: Note) -> bool:
        """Return whether the log still holds the last confirmed frame.

        If not, `check_complete` decides whether that is damage: the log may also have started over.
        """
        _, place, salts = noted
        if not place:
            return True
        if self._descriptor < 0:
            self._open()
        return os.pread(self._descriptor, _SALTS, place) == salts

    def check_complete(self) -> None:
        """Raise Damaged if the file lacks frames that SQLite believes to be in it.

        Then another program emptied it, cut it short or replaced it while the room was open.
        """
        # NOOP copies nothing; it returns how many frames SQLite counts in the log.
        frames, _ = self._database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        if frames <= 0:
            return
        with suppress(FileNotFoundError):
            if self._descriptor < 0:
                self._open()
            salts = os.pread(self._descriptor, _SALTS, _SALTS_AT)
            # The head of the log and all frames of one round carry the same salts.
            if any(salts) and os.pread(self._descriptor, _SALTS, self._salts_of(frames)) == salts:
                return
        raise Damaged(f"{self._path} was emptied, cut short or replaced while the room was open", hint=SALVAGE)

    def _salts_of(self, frame: int) -> int:
        """Return the position of a frame's salts, which differ between rounds of the log."""
        if not self._frame:
            self._frame = _FRAME_HEAD + self._database.pragma("page_size")
        return _HEAD + (frame - 1) * self._frame + _FRAME_SALTS_AT

    def rebuild(self, lock: WriterLock) -> None:
        """Bring everything into the main file and start a new log, after a failed sync, under the lock.

        The emptied log is synced too, else a crash could replay its old half over the newer main file.
        """
        try:
            self._database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            self._open()
            os.fsync(self._descriptor)
            sync_path(os.path.dirname(self._path))
        except (apsw.Error, OSError) as failed:
            raise StoreFailing(f"an earlier sync failed and the log cannot be mended yet: {failed}") from None
        lock.clear_sync_failed()

    def close(self) -> None:
        self._close_log()
        if self._index >= 0:
            os.close(self._index)
            self._index = -1

    def _close_log(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self._link = -1, ""

    def _open(self) -> None:
        self._close_log()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        with suppress(OSError):  # without /proc
            link = _PATH_OF_DESCRIPTOR.format(self._descriptor)
            self._target, self._link = os.readlink(link), link
        self._calm = range(0)
        self._has_name = False

    def _fill(self, size: int, lock: WriterLock) -> None:
        ahead = min(STEP, LARGEST - size)
        if self._grow_reserve(size + ahead, lock):
            with suppress(OSError):  # on a full or failing disk only speed is lost here; the sync will fail
                os.pwrite(self._descriptor, bytes(ahead), size)

    def _grow_reserve(self, size: int, lock: WriterLock) -> bool:
        """Grow the reserve with the log, and before it. If that fails, letters are refused from now on."""
        self._covered = size
        try:
            self._reserve.ensure(size)
        except OSError as failed:
            if is_full(failed):
                lock.mark_short(True)
                return False
        else:
            lock.mark_short(False)
        return True

    def _checkpoint(self, lock: WriterLock) -> None:
        try:
            # PASSIVE waits for no reader: a checkpoint must not hold up the writers behind us.
            frames, done = self._database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except (apsw.BusyError, apsw.FullError):  # nothing of the log is lost
            frames, done = self.pages, 0
        except apsw.Error:
            lock.mark_sync_failed()  # the letter is committed; whether it is durable, the sync decides
            return
        # A reader that holds an old view keeps the log from starting over: do not try again at every commit.
        held = frames > done
        self._next_checkpoint = self.pages + CHECKPOINT_PAGES // 4 if held else CHECKPOINT_PAGES
