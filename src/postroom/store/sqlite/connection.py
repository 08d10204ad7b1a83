"""How many forks this process is away from the one that loaded us. Asking for its id takes a call each time."""

from __future__ import annotations

import os
import time
from _thread import allocate_lock
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import apsw

from ...errors import BadStore, Damaged, StoreBusy, StoreFailing
from ...model.names import AT, fold
from ...model.record import FORGOTTEN, GUARD, ROUTE, SPENT
from . import ground, queries, search
from .lock import WriterLock
from .rows import SALVAGE
from .schema import APPLICATION, SHAPE, bring_up, check_shape, version_of
from .wal import CUT_SHORT, FAILING, REPLACED, Log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ...errors import PostroomError
    from ..protocol import Posted, Write
    from .search import Index


count = 0


def _forked() -> None:
    global count  # noqa: PLW0603 - one for the whole process
    count += 1


os.register_at_fork(after_in_child=_forked)


# Did any file in the room's folder come, go or change places with another?
#
# The folder's own time tells, in one question. To ask after each of the room's files by its path takes three
# times
# as long, and every commit wants to know.

_SECOND = 1_000_000_000  # nanoseconds
# A time may be as coarse as a tick of the kernel: what is done within one leaves the same time. Once the time is
# older than that, whatever comes next leaves another one.
_SETTLED = _SECOND // 10


class Folder:
    """What was looked over in it is still there as long as `is_untouched`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = self._trusted = (0, 0)

    def is_untouched(self) -> bool:
        """Since `trust`. If not, look everything over, then trust it again."""
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        self._seen = (found.st_mtime_ns, found.st_ino)
        return self._seen == self._trusted

    def trust(self) -> None:
        """All that counts in it was just looked over, after `is_untouched` was asked."""
        changed = self._seen[0]
        is_coarse = changed % _SECOND == 0  # a file system that knows no more than seconds
        if not is_coarse and time.time_ns() - changed > _SETTLED:
            self._trusted = self._seen


# Statements that take long let signals in: without this, Ctrl-C waits until SQLite is done.

STEPS = 100_000  # of SQLite's machine between two looks: some milliseconds


@contextmanager
def interruptible(database: apsw.Connection) -> Iterator[None]:
    """Python looks for signals whenever it is called; what they raise ends the statement, and leaves here."""
    database.set_progress_handler(lambda: False, STEPS)
    try:
        yield
    finally:
        database.set_progress_handler(None, 0)


# What one connection remembers of the room between two commits, so that it need not ask again.

NEXT_NUMBER = """
SELECT max(coalesce((SELECT max(number) FROM letters), 0), coalesce((SELECT max(number) FROM changes), 0)) + 1"""
# In a bare room none of these is there: nothing can be in the way of a letter but a letter.
IN_THE_WAY = (FORGOTTEN, GUARD, SPENT)
IS_LED = f"EXISTS (SELECT 1 FROM records WHERE kind = '{ROUTE}')"  # is anybody known to be elsewhere?
LOOK = f"{NEXT_NUMBER}, NOT EXISTS (SELECT 1 FROM records WHERE kind IN {IN_THE_WAY}), {IS_LED}"
_UNKNOWN = (-1, -1)


class Names:
    """Mailbox names ⇄ numbers, as they were committed; and, while nobody else writes, the next number."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database
        self.cursor = database.cursor()  # for all that is written: each answer is read before the next question
        self.committed: dict[str, tuple[int, bool]] = {}
        self.as_of = 0  # while this is the next number, nobody else has written since, and all of it holds
        self.is_bare: bool | None = None  # as of then. Once it is not, every letter asks for itself
        self.is_led = False  # as of then
        self.seal = _UNKNOWN

    def note(self, number: int, *, is_bare: bool, is_led: bool, alone: bool) -> None:
        """Committed; this is the next number. `alone`: nothing else was written in that transaction."""
        self.as_of = number
        self.is_bare, self.is_led = is_bare, is_led
        self.seal = self.sealed() if alone else _UNKNOWN

    def forget(self) -> None:
        """What was noted was not committed after all."""
        self.committed.clear()
        self.as_of, self.is_bare, self.seal = 0, None, _UNKNOWN

    def is_placed(self, name: str) -> bool:
        """Does it say a system, or is somebody here known by it?"""
        held = self.committed.get(name)
        if AT in name or (held is not None and held[1]):
            return True
        return self.cursor.execute(queries.IS_KNOWN, (fold(name),)).get is not None

    def sealed(self) -> tuple[int, int]:
        """In a transaction: while it is the same as the seal, the number that was noted is still the next one. It
        is another one after every write: of others, says SQLite's version; of ours, its count of changes.
        """
        return self._database.data_version(), self._database.total_changes()


# One thread's way into the room: a SQLite connection, its place in the writers' line, its hold on the log.
#
# Never shared between threads, never carried over a fork.

_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
OLDEST_SQLITE = (3, 51, 3)  # before it, a write racing a checkpoint could lose committed data
SMALLEST_PAGE = 512  # bytes, in SQLite
INDEX_PART = 32 * 1024  # bytes by which SQLite maps the index of a log

_ON_PURPOSE = "If you put an older file there on purpose, stop all agents and delete {0}.lock"
_WRITABLE = "is the folder there and writable? Try again once it is"


class Beside(Protocol):
    """What else a commit does, in the same step as the index changes."""

    def prepare(self, writes: Sequence[Write]) -> None:
        """In the transaction, before anything is written."""
        ...

    def carry_out(self, writes: Sequence[Write], posted: Sequence[Posted]) -> None:
        """In the transaction, after it."""
        ...

    def undo(self) -> None:
        """The transaction was rolled back."""
        ...

    def doubt(self) -> None:
        """Nobody knows which of both."""
        ...

    def settle(self) -> None:
        """It was committed."""
        ...

    def make_safe(self) -> None:
        """The room was left."""
        ...


class Connection:
    """Open and ready; `database` may be read at any time, and written inside `lock`."""

    application = APPLICATION  # marks the file as what it is
    more_tables = ""  # that stand beside the room's
    names_of_tables: tuple[str, ...] = ()  # and what they are called
    shape = SHAPE  # of all of them
    is_derived = False  # can all of it be made anew from elsewhere? Then its file may be deleted at any time
    beside: Beside | None = None
    commits = 0  # of this connection

    def __init__(self, path: str, *, boot: str, busy_timeout: float) -> None:
        self._closing = allocate_lock()
        check_library(apsw.sqlitelibversion())
        self._path = path
        self._patience = int(busy_timeout * 1000)  # milliseconds
        self._folder = Folder(os.path.dirname(path))
        with translated(path):
            self.lock = WriterLock(f"{path}.lock", busy_timeout)
        try:
            with translated(path), self.lock:
                if os.path.lexists(path) or not self.is_derived:
                    _check_not_emptied(path)
                if not os.path.lexists(path):
                    self.lock.forget_note()  # somebody removed the room: what comes now is a new one
                ground.create(path)
                _check_index(path)
                self.database = apsw.Connection(path, flags=_FLAGS)
                _configure(self.database, self._patience)
                self.asking = self.database.cursor()  # for questions: each is answered before the next
                self.names = Names(self.database)  # the numbers of this room's mailboxes, and of no other's
                self.log = Log(self.database, path, self.names)
                self._inode = os.stat(path).st_ino
                self._check_reach()
                _prepare(self.database, path, self.application)
                is_new = bring_up(self.database, path, application=self.application)
                self.database.execute(self.more_tables)
                check_shape(self.database, path, self.shape, self.more_tables)
                self.log.watch()
                self._enter(boot)
                wrote = self.database.total_changes() > 0
                if wrote:
                    self.log.tend(self.lock)
                if is_new:
                    self._keep_tables()
            if wrote:
                self.log.sync(self.lock)
        except BaseException as refused:
            self.close()
            if isinstance(refused, BadStore) and self.lock.is_new:
                with suppress(OSError):  # beside a file of somebody else nothing is left
                    os.unlink(f"{path}.lock")
            raise

    def _keep_tables(self) -> None:
        """Bring new tables into the room's file before the first letter is written. Where that fails, the room is
        not opened, and whoever writes next makes the log whole first.
        """
        try:
            self.database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            self.lock.warn()
            raise

    def _check_reach(self) -> None:
        """Under the lock, before anything is written: is all there that was confirmed? Of a damaged log SQLite
        reads what lies before the damage, which may be nothing, and would write over the rest.
        """
        noted = self.lock.noted
        if not noted.number:
            return
        try:
            number = self._number()
            if not self.log.reaches(noted):
                self.log.check_whole()
        finally:
            self.log.close()  # opened anew for the first commit: until then there is nothing to compare it with
        if number < noted.number:
            missing = f"the changes after {number}, up to {noted.number}, were confirmed and are missing"
            raise Damaged(
                f"{self._path} is damaged: {missing}", hint=f"{SALVAGE}. {_ON_PURPOSE.format(self._path)}"
            )

    def _number(self) -> int:
        """Of the last change in the room."""
        try:
            number: int = self.database.execute(NEXT_NUMBER).get - 1
        except apsw.SQLError:  # there are no tables
            return 0
        except apsw.Error:
            self.log.check_whole()
            raise
        return number

    @cached_property
    def index(self) -> Index:
        """The index of words; made for whoever searches, or helps to fill it."""
        return search.Index(self._path, self.database)

    def _enter(self, boot: str) -> None:
        """Also after a boot with a full disk: whoever has mail there can be done with it."""
        try:
            with self.database:
                _enter(self.database, boot)
        except apsw.FullError:
            self.log.relieve(self.lock)
            with self.database:
                _enter(self.database, boot)

    def hurried(self) -> Hurry:
        """Wait for nobody meanwhile: neither for who is in by our lock, nor for a stranger who has SQLite's."""
        return Hurry(self, self._patience)

    def mend(self) -> None:
        """Under the lock, before anything is written: it is the same room still, nothing is left of an
        interrupted commit, and after a failed sync the log is made whole.
        """
        self.log.check_index()
        if not self._folder.is_untouched():
            self._check_same()
        if self.database.in_transaction:
            self.database.execute("ROLLBACK")
        if not self.log.reaches(self.lock.noted):
            self.log.check_whole()
            self.lock.lower_note()
        if self.lock.warned:
            self.log.make_whole(self.lock)

    def _check_same(self) -> None:
        try:
            same = os.stat(self._path).st_ino == self._inode
            both = self.log.check()
        except OSError:
            same = both = False
        if not same:
            raise StoreFailing("the room's file was replaced or deleted", hint=REPLACED)
        if both:
            self._folder.trust()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Once, though its thread may end just while the store is closed: a handle that is closed twice may be
        somebody else's by then.
        """
        if not self._closing.acquire(blocking=False):
            return
        for held in ("index", "log", "database", "lock"):
            if held in self.__dict__:
                self.__dict__[held].close()


class Hurry:
    """Written out: every call at a desk passes here, and a generator takes 1.4 µs in place of 0.6."""

    def __init__(self, here: Connection, patience: int) -> None:
        self._here = here
        self._patience = patience  # milliseconds, for who is in no hurry
        self._before = here.commits
        self._was_hurried = here.lock.hurries

    def __enter__(self) -> Callable[[], bool]:
        self._here.lock.hurries = True
        self._here.database.set_busy_timeout(0)
        return self._has_committed

    def __exit__(self, *_: object) -> None:
        self._here.lock.hurries = self._was_hurried
        if not self._was_hurried:
            self._here.database.set_busy_timeout(self._patience)

    def _has_committed(self) -> bool:
        return self._here.commits != self._before


def _check_not_emptied(path: str) -> None:
    """A room has its first page before it has a log. Of a file without one SQLite would make a new room, and write
    over the letters in the log.
    """
    if _size(path) < SMALLEST_PAGE and _size(f"{path}-wal") > 0:
        raise Damaged(f"{path} is missing or empty, and its log is not", hint=SALVAGE)


def _check_index(path: str) -> None:
    """Before this process opens the room once more: see `Log.check_index`. The first opener makes a new one."""
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
        why = error.strerror if isinstance(error, OSError) else error
        place = error.filename if isinstance(error, OSError) and isinstance(error.filename, str) else path
        return StoreFailing(f"{place} cannot be written: {why}", hint=_WRITABLE)
    if isinstance(error, (apsw.IOError, apsw.NoMemError)):
        return StoreFailing(f"{path}: {error}", hint=FAILING)
    return Damaged(f"{path}: {error}", hint=SALVAGE)


def _configure(database: apsw.Connection, patience: int) -> None:
    """Set the options that are needed even if the room is damaged."""
    database.set_busy_timeout(patience)
    database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # else the last to close deletes the log
    database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    database.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    database.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else every new value plans its query anew: 50 µs each


def _prepare(database: apsw.Connection, path: str, application: int) -> None:
    version_of(database, path, application)  # a stranger's database is refused before anything in it is changed
    if database.pragma("journal_mode") != "wal":
        database.pragma("journal_mode", "wal")
    database.pragma("synchronous", "normal")  # the log is synced by its writer, outside the lock
    database.pragma("temp_store", "memory")


def _enter(database: apsw.Connection, boot: str) -> None:
    """The first to enter names the room; the first after a boot begins a new epoch."""
    last_boot = database.execute("SELECT boot FROM room").get
    epoch = os.urandom(4).hex()
    if last_boot is None:
        name = os.urandom(8).hex()
        database.execute("INSERT INTO room VALUES (1, ?, ?, ?, 0)", (name, epoch, boot))
    elif last_boot != boot:
        database.execute("UPDATE room SET epoch = ?, boot = ?", (epoch, boot))
        database.execute("UPDATE deliveries SET lease_until = 0 WHERE state = 2")  # no lease outlives a boot
