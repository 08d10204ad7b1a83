"""One thread's connection to a room: SQLite connection, writers' lock, hold on the log, remembered names.

A connection is never shared between threads and never carried over a fork. Opening one runs under the writers'
lock: it checks the files, refuses a room that lacks confirmed changes, migrates the schema and begins a new epoch
after a boot.
"""

from __future__ import annotations

import errno
import os
from _thread import allocate_lock
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import apsw

from ...errors import BadStore, Damaged, StoreBusy, StoreFailing
from ...model.names import AT, fold
from . import ground
from .lock import WriterLock
from .queries import IS_KNOWN
from .rows import SALVAGE
from .schema import APPLICATION, SHAPE, bring_up, check_shape, version_of
from .wal import CUT_SHORT, FAILING, Log

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...errors import PostroomError
    from ..protocol import Posted, Write
    from .search import Index


count = 0  # of forks since this module was loaded; cheaper to compare than os.getpid()


def _forked() -> None:
    global count  # noqa: PLW0603 - one for the whole process
    count += 1


os.register_at_fork(after_in_child=_forked)


STEPS = 100_000  # instructions of SQLite's virtual machine between two checks for signals: some milliseconds


@contextmanager
def interruptible(database: apsw.Connection) -> Iterator[None]:
    """Let Ctrl-C end long statements: Python handles signals whenever SQLite calls back into it."""
    database.set_progress_handler(lambda: False, STEPS)
    try:
        yield
    finally:
        database.set_progress_handler(None, 0)


NEXT_NUMBER = """
SELECT max(coalesce((SELECT max(number) FROM letters), 0), coalesce((SELECT max(number) FROM changes), 0)) + 1"""


class NameCache:
    """The memory of one connection between commits: mailbox ids, and how far the room had come."""

    def __init__(self, database: apsw.Connection) -> None:
        self.cursor = database.cursor()  # for all writes: each result is read before the next statement
        self.committed: dict[str, tuple[int, bool]] = {}
        self.as_of = 0  # the next number after our last commit

    def is_placed(self, name: str) -> bool:
        """Return whether the name includes a system, or belongs to a known agent here."""
        held = self.committed.get(name)
        if AT in name or (held is not None and held[1]):
            return True
        return self.cursor.execute(IS_KNOWN, (fold(name),)).get is not None


_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
OLDEST_SQLITE = (3, 51, 3)  # before it, a write racing a checkpoint could lose committed data
SMALLEST_PAGE = 512  # bytes, in SQLite
INDEX_PART = 32 * 1024  # bytes by which SQLite maps the index of a log

_ON_PURPOSE = "If you put an older file there on purpose, stop all agents and delete {0}.lock"
NO_FILES = {errno.EMFILE, errno.ENFILE}
NO_FILES_HINT = "try again later; the limit of open files of this program may be too low (ulimit -n)"
_WRITABLE = "is the folder there and writable? Try again once it is"


class CommitHook(Protocol):
    """Further work of a commit, in the same step as the tables change. Rooms of files write their files here."""

    def prepare(self, writes: Sequence[Write]) -> None:
        """Called in the transaction, before anything is written."""

    def carry_out(self, writes: Sequence[Write], posted: Sequence[Posted]) -> None:
        """Called in the transaction, after the writes."""

    def undo(self) -> None:
        """Called after the transaction was rolled back."""

    def doubt(self) -> None:
        """Called when it is unknown whether the transaction was committed or rolled back."""

    def settle(self) -> None:
        """Called after the transaction was committed, still under the lock."""

    def make_safe(self) -> None:
        """Called after the lock was left, before anyone is notified."""


class Connection:
    """An open connection to a room; `database` may be read at any time, and written inside `lock`."""

    application = APPLICATION  # SQLite's application id, which marks the file as a room
    more_tables = ""  # SQL that creates further tables, of a subclass
    names_of_tables: tuple[str, ...] = ()  # the names of those tables
    shape = SHAPE  # of all tables
    is_derived = False  # can everything be rebuilt from elsewhere? Then the file may be deleted at any time
    on_commit: CommitHook | None = None

    def __init__(self, path: str, *, boot: str, busy_timeout: float) -> None:
        self._closing = allocate_lock()
        check_library(apsw.sqlitelibversion())
        self.path = path
        with translated(path):
            self.lock = WriterLock(f"{path}.lock", busy_timeout)
        try:
            with translated(path), self.lock:
                if os.path.lexists(path) or not self.is_derived:
                    _check_not_emptied(path)
                if not os.path.lexists(path):
                    self.lock.forget_note()  # the room was removed: this makes a new one
                ground.create(path)
                _check_index(path)
                self.database = apsw.Connection(path, flags=_FLAGS)
                configure(self.database, int(busy_timeout * 1000))
                self.read_cursor = self.database.cursor()  # for queries: each is read to its end before the next
                self.names = NameCache(self.database)
                self.log = Log(self.database, path, self.names)
                self.inode = os.stat(path).st_ino
                # Before anything is written: SQLite would overwrite what it cannot read of a damaged log (G2).
                self._check_reach()
                _prepare(self.database, path, self.application)
                is_new = bring_up(self.database, path, application=self.application)
                self.database.execute(self.more_tables)
                check_shape(self.database, path, self.shape, self.more_tables)
                # Only now: an interrupt while tables are made must not look like damage, see there.
                self.log.watch()
                self.begin(boot)
                wrote = self.database.total_changes() > 0
                if wrote:
                    self.log.maintain(self.lock)
                if is_new:
                    self._keep_tables()
            if wrote:
                # After the lock was left, like every sync: other writers need not wait for the disk.
                self.log.sync(self.lock)
        except BadStore:
            self.close()
            if self.lock.is_new:
                with suppress(OSError):  # leave nothing beside a file that is no room
                    os.unlink(f"{path}.lock")
            raise
        except BaseException:  # an interrupt must not leave the lock held
            self.close()
            raise

    def _keep_tables(self) -> None:
        """Bring new tables into the room's file before the first letter is written.

        Where that fails, the room is not opened, and the next writer rebuilds the log first.
        """
        try:
            self.database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            self.lock.mark_sync_failed()
            raise

    def _check_reach(self) -> None:
        """Refuse a room that lacks confirmed changes. Call it under the lock, before anything is written.

        SQLite reads a damaged log up to the damage, which may be nothing, and would overwrite the rest.
        """
        reached = self.lock.noted[0]
        if not reached:
            return
        try:
            number = self._number()
            if not self.log.reaches(self.lock.noted):
                self.log.check_complete()
        finally:
            self.log.close()  # opened again at the first commit: until then there is nothing to compare it with
        if number < reached:
            missing = f"the changes after {number}, up to {reached}, were confirmed and are missing"
            raise Damaged(f"{self.path} is damaged: {missing}", hint=f"{SALVAGE}. {_ON_PURPOSE.format(self.path)}")

    def _number(self) -> int:
        """Return the number of the last change in the room."""
        try:
            number: int = self.database.execute(NEXT_NUMBER).get - 1
        except apsw.SQLError:  # there are no tables
            return 0
        except apsw.Error:
            self.log.check_complete()
            raise
        return number

    @cached_property
    def index(self) -> Index:
        """The text index, opened at the first search or update of it."""
        from .search import Index  # noqa: PLC0415 - most commands do not search

        return Index(self.path, self.database)

    def begin(self, boot: str) -> None:
        """Begin an epoch if need be, also on a full disk: its mail can still be read and acknowledged."""
        try:
            with self.database:
                enter(self.database, boot)
        except apsw.FullError:
            self.log.release_reserve(self.lock)
            with self.database:
                enter(self.database, boot)

    def recover(self) -> None:
        """Make the room ready for a write. Call it under the lock, before anything is written.

        Checks that it is still the same file, rolls back an interrupted commit, and rebuilds the log after a
        failed sync.
        """
        self.log.check_index()
        self.log.check_in_place(self.path, self.inode)
        # An interrupt (Ctrl-C) between BEGIN and COMMIT left it open.
        if self.database.in_transaction:
            self.database.execute("ROLLBACK")
        if not self.log.reaches(self.lock.noted):
            self.log.check_complete()
            # No damage: the log has started over since, and the noted place belongs to its former round.
            self.lock.lower_note()
        if self.lock.sync_failed:
            self.log.rebuild(self.lock)

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Change the tables outside of a commit: under the lock, ready for a write, in one transaction."""
        with self.lock:
            self.recover()
            with self.database:
                yield self.database
            self.log.maintain(self.lock)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close everything, once.

        The thread may end just while the store is closed, and a descriptor that is closed twice may belong to
        another file by then.
        """
        if not self._closing.acquire(blocking=False):
            return
        # Through `__dict__`: opening may have failed half way, and asking for `index` would open it. The lock
        # goes last.
        for held in ("index", "log", "database", "lock"):
            if held in self.__dict__:
                self.__dict__[held].close()


def _check_not_emptied(path: str) -> None:
    """Refuse an empty file with a log: SQLite would make a new room of it and overwrite the letters in the log.

    A room has its first page before it has a log.
    """
    if _size(path) < SMALLEST_PAGE and _size(f"{path}-wal") > 0:
        raise Damaged(f"{path} is missing or empty, and its log is not", hint=SALVAGE)


def _check_index(path: str) -> None:
    """Check the log's index before this process opens the room again: see `Log.check_index`.

    The first process to open a room makes a new index.
    """
    index = f"{path}-shm"
    try:
        size = os.stat(index).st_size
    except FileNotFoundError:
        return
    if size < INDEX_PART and any(other.filename == path for other in apsw.connections()):
        os.truncate(index, INDEX_PART)
        raise StoreFailing(f"{index} was cut short while the room was open", hint=CUT_SHORT)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def check_library(version: str) -> None:
    """Refuse a SQLite that is known to lose data."""
    if tuple(map(int, version.split("."))) < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise BadStore(f"SQLite {version} is older than {needed}", field="store", hint="pip install -U apsw")


@contextmanager
def translated(path: ground.Place) -> Iterator[None]:
    """The errors of SQLite and of the system in the house's words."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise translate(error, path) from error
    except UnicodeDecodeError as error:
        raise Damaged(f"{path} is damaged: {error}", hint=SALVAGE) from None


def translate(error: apsw.Error | OSError, path: ground.Place) -> PostroomError:  # noqa: PLR0911 - read from the top
    if isinstance(error, (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)):
        return StoreBusy(f"another program holds {path}", hint="try again")
    if isinstance(error, apsw.FullError):
        return StoreFailing(f"no space left for {path}", hint="free some space and try again")
    if isinstance(error, apsw.NotADBError):
        return BadStore(f"{path} is not a room", field="store", hint="choose another file")
    if isinstance(error, apsw.CorruptError):
        return Damaged(f"{path} is damaged: {error}", hint=SALVAGE)
    if isinstance(error, (OSError, apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError)):
        if isinstance(error, OSError) and error.errno in NO_FILES:
            return StoreFailing(f"no more files can be opened: {error.strerror}", hint=NO_FILES_HINT)
        why = error.strerror if isinstance(error, OSError) else error
        place = error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else path
        return StoreFailing(f"{place} cannot be written: {why}", hint=_WRITABLE)
    if isinstance(error, (apsw.IOError, apsw.NoMemError)):
        return StoreFailing(f"{path}: {error}", hint=FAILING)
    return Damaged(f"{path}: {error}", hint=SALVAGE)


def configure(database: apsw.Connection, patience: int) -> None:
    """Set the options that are needed even if the room is damaged."""
    database.set_busy_timeout(patience)
    database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # else the last to close deletes the log
    # The file may come from anywhere: its schema must not call unsafe functions, and no SQL may write to SQLite's
    # own tables.
    database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    database.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else every new value plans its query again: 50 µs each


def _prepare(database: apsw.Connection, path: str, application: int) -> None:
    version_of(database, path, application)  # refuses another program's database before anything in it is changed
    if database.pragma("journal_mode") != "wal":
        database.pragma("journal_mode", "wal")
    database.pragma("synchronous", "normal")  # the log is synced by its writer, outside the lock
    database.pragma("temp_store", "memory")


def enter(database: apsw.Connection, boot: str) -> None:
    """Name a new room; begin a new epoch after a boot."""
    last_boot = database.execute("SELECT boot FROM room").get
    epoch = os.urandom(4).hex()
    if last_boot is None:
        # Cursors carry this name, so that a cursor of another room is recognised.
        name = os.urandom(8).hex()
        database.execute("INSERT INTO room VALUES (1, ?, ?, ?, 0)", (name, epoch, boot))
    elif last_boot != boot:
        # A power cut may have taken unsynced changes, so cursors start over. Leases count in uptime and end here.
        database.execute("UPDATE room SET epoch = ?, boot = ?", (epoch, boot))
        database.execute("UPDATE deliveries SET lease_until = 0 WHERE state = 2")
