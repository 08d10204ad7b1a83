"""One commit, from the lock queue to the answer; and batches of commits that share one sync.

The order keeps the guarantees: take the lock, BEGIN IMMEDIATE, write, COMMIT, leave the lock, sync the log,
answer and notify. No process learns of a letter before it is durable.

A writer that holds the lock also writes the letters that waiting writers laid into the tray ("carries" them). A
letter that cannot be carried, or whose carrier was killed, is posted by its own writer, which then gets the
error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
from msgspec.structs import replace

from ...errors import PostroomError, StoreFailing
from ..protocol import Posted, Undone, Write, mailboxes_to_notify, must_last, sends
from .writes import WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from ..notification import ProcessNotifier
    from ..protocol import Plan
    from .connection import CommitHook, Connection
    from .tray import Laid, Parcel


class Committed(msgspec.Struct, frozen=True):
    """The result of a commit: visible in the room, but not durable before `make_safe`."""

    writes: Sequence[Write]
    posted: tuple[Posted, ...]
    must_sync: bool = False
    carried: Sequence[tuple[int, bytes]] = ()  # the answers to letters of others, by slot


def commit(conn: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
    """Write under the lock, or let the writer that holds the lock write it."""
    laid: Laid | None = None
    inside = True  # also when unsure: to release a lock that is not held is harmless, to keep one is not
    try:
        if not conn.lock.try_acquire():
            conn.lock.check_hurry()
            # A commit hook belongs to this process: no other writer can run it.
            from . import tray  # noqa: PLC0415 - mmap and ctypes: only for writers that meet

            laid = None if conn.on_commit else tray.lay(conn.lock.tray, writes, durable=durable)
            inside = conn.lock.wait_turn() if laid is None else laid.wait_turn(conn.lock)
        if laid is not None and laid.posted is not None:
            return Committed(laid.writes, laid.posted)
        conn.recover()
        done = _write(conn, writes, durable=durable)
        conn.commits += 1
        return done if laid is None else replace(done, posted=laid.corrected(done.posted))
    finally:
        if inside:
            conn.lock.release()


def make_safe(conn: Connection, done: Committed) -> None:
    """Sync what must last, after the lock was left, and answer the writers whose letters were carried."""
    try:
        if conn.on_commit is not None:
            # In a room of files the folders are synced here.
            conn.on_commit.make_safe()
        if done.must_sync:
            conn.log.sync(conn.lock)
    except BaseException:
        turn_back(conn, done.carried)
        raise
    for slot, answer in done.carried:
        conn.lock.tray.reply(slot, answer)


# -- under the lock


def _write(conn: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
    parcels = conn.lock.tray.take() if conn.lock.is_laid else ()
    try:
        done = _transact(conn, writes, _open(parcels) if parcels else (), durable=durable)
    except (NotCarried, apsw.FullError):
        if not parcels:
            raise
        turn_back(conn, parcels)
        done = _transact(conn, writes, (), durable=durable)
    except BaseException:
        turn_back(conn, parcels)
        raise
    if done.must_sync:
        conn.log.start_writeback(conn.lock)
    if done.writes or done.carried:
        conn.log.maintain(conn.lock)
    return done


def _transact(
    conn: Connection,
    writes: Sequence[Write] | Plan,
    parcels: Sequence[tuple[int, Parcel]],
    *,
    durable: bool,
    in_need: bool = False,
) -> Committed:
    """Run one transaction. On a full disk, writes that send nothing are tried again with the reserve released."""
    database, execute, on_commit, planned = conn.database, conn.names.cursor.execute, conn.on_commit, writes
    begun: CommitHook | None = None  # set once the hook has prepared something that must be undone
    try:
        execute("BEGIN IMMEDIATE")
        # A plan runs inside the transaction: nobody writes between its reads and what it decides.
        planned = writes() if callable(writes) else writes
        # While disk space is short only letters are refused: acks free space and must go on (G10).
        if conn.lock.is_short and (parcels or sends(planned)):
            conn.log.check_disk_space(conn.lock)
        writing = WriteTransaction(database, conn.names)
        if on_commit is not None:
            begun = on_commit
            on_commit.prepare(planned)
        posted = writing.apply(planned)
        carried = _carry(writing, parcels) if parcels else ()
        if on_commit is not None:
            # Files change before the COMMIT. A crash in between leaves the warning in the lock file, and the next
            # process compares all folders with the index.
            on_commit.carry_out(planned, posted)
        execute("COMMIT")
    except BaseException as error:
        is_known = database.in_transaction or isinstance(error, apsw.Error)  # else the commit may have happened
        if database.in_transaction:
            database.execute("ROLLBACK")
        if begun is not None:
            (begun.undo if is_known else begun.doubt)()
        is_full = isinstance(error, apsw.FullError) and not in_need and not parcels
        if not is_full or callable(planned) or sends(planned):
            raise
    else:
        # Only after the COMMIT: a name or number of a transaction that was rolled back must not be reused.
        writing.remember(alone=True)
        if on_commit is not None:
            on_commit.settle()
        must_sync = (durable and any(map(must_last, planned))) or (bool(parcels) and _any_durable(parcels))
        return Committed(planned, posted, must_sync, carried)
    # An ack or a record on a full disk: the reserve makes room for it, once (G10).
    conn.log.release_reserve(conn.lock)
    return _transact(conn, planned, (), durable=durable, in_need=True)


class NotCarried(Exception):
    """A letter of another writer cannot be written in this transaction; that writer must post it itself."""


def _open(parcels: Sequence[tuple[int, bytes]]) -> list[tuple[int, Parcel]]:
    try:
        from .tray import unpack  # noqa: PLC0415 - mmap and ctypes: only for writers that meet

        return [(slot, unpack(parcel)) for slot, parcel in parcels]
    except msgspec.DecodeError as strange:  # laid out by another version of this program
        raise NotCarried from strange


def _carry(writing: WriteTransaction, parcels: Sequence[tuple[int, Parcel]]) -> list[tuple[int, bytes]]:
    """Write the letters of other writers, and return the answers for `make_safe` to give."""
    try:
        return [(slot, parcel.answer(writing.apply(parcel.writes()))) for slot, parcel in parcels]
    except (PostroomError, apsw.Error) as refused:
        raise NotCarried from refused


def _any_durable(parcels: Sequence[tuple[int, Parcel]]) -> bool:
    return any(parcel.durable for _, parcel in parcels)


def turn_back(conn: Connection, parcels: Sequence[tuple[int, bytes]]) -> None:
    """Tell other writers that their letters were not written: they post them themselves."""
    for slot, _ in parcels:
        conn.lock.tray.reply(slot, None)


# -- several commits, one sync


class Batch:
    """The commits of one thread that share one sync, at the end of the block and whatever happens in it.

    `joined` puts them into as few transactions as possible.
    """

    def __init__(
        self, notifier: ProcessNotifier, local: Any, open_signals: Callable[[set[str]], list[int]], *, joined: bool
    ) -> None:
        self._notifier = notifier
        self._open_signals = open_signals
        self._local = local  # the thread's state, where a commit finds this batch
        self._joined = joined
        self._joint: Joint | None = None
        self._open: list[tuple[Connection, Committed]] = []  # in the transaction that is still open
        self._kept: list[tuple[Connection, Committed]] = []  # committed, to be synced
        self._signals: list[int] = []
        self._failed: BaseException | None = None  # Undone if nothing at all was written

    def __enter__(self) -> None:
        self._local.batch = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.batch = None
        try:
            self.end_transaction()
        finally:
            # Also after an error in the block: the commits before it are in the room, and are synced like any
            # other (G1).
            self._make_safe()
        if self._failed is not None:  # a transaction failed inside the block
            raise self._failed

    def commit(self, conn: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
        if self._joint is not None and self._joint.is_full:
            self.end_transaction()
        if self._failed is not None:
            raise self._failed
        if self._joint is None and self._joined:
            self._joint = Joint.begin(conn)
        if self._joint is not None:
            done = self._joint.commit(writes, durable=durable)
            self._open.append((conn, done))
        else:
            done = commit(conn, writes, durable=durable)
            self._kept.append((conn, done))
            self._signals += self._open_signals(mailboxes_to_notify(done.writes, done.posted))
        return done

    def end_transaction(self) -> None:
        """Commit the open transaction, if any: its letters are visible from then on."""
        joint, self._joint = self._joint, None
        if joint is not None:
            done, self._open = self._open, []
            try:
                joint.end()
            except BaseException as error:
                # "Nothing was written" is only true if no earlier transaction of this block was committed.
                is_known = isinstance(error, Undone) and not self._kept
                self._failed = error if is_known else StoreFailing("not all of it could be written")
                raise self._failed from error
            # The letters are visible by now: a watch that starts later finds them by its first look.
            self._kept += done
            self._signals += self._open_signals(
                {name for _, one in done for name in mailboxes_to_notify(one.writes, one.posted)}
            )

    def _make_safe(self) -> None:
        """Sync once per log, then answer and notify. A connection that was dropped in between has its own log."""
        try:
            last = {conn: done for conn, done in self._kept if done.must_sync}
            for conn, done in last.items():
                make_safe(conn, replace(done, carried=()) if done.carried else done)
        except BaseException:
            for conn, done in self._kept:
                turn_back(conn, done.carried)
            raise
        else:
            for conn, done in self._kept:
                if done.carried:
                    make_safe(conn, replace(done, must_sync=False))
            # After the sync: nobody is notified of a letter that a power cut could still take (G1).
            self._notifier.notify(self._signals)
        finally:
            self._notifier.close_signals(self._signals)


# -- several commits, one transaction

MOST = 16  # commits in one transaction; other writers wait for all of them


class Joint:
    """One open transaction for several commits, with the writers' lock held; call `end` whatever happens.

    Each commit is all or nothing (a savepoint). When the transaction ends, all of them are in the room, or none.
    """

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._execute = conn.names.cursor.execute
        self._is_lost = False
        self._must_sync = False
        self.commits = 0

    @classmethod
    def begin(cls, conn: Connection) -> Joint | None:
        """Begin, or return None if another writer is in or there is more to do than to write."""
        lock, is_open = conn.lock, False
        if conn.on_commit is not None:
            return None
        try:
            if not lock.try_acquire() or lock.is_laid or lock.is_short or lock.sync_failed:
                return None
            conn.recover()
            conn.names.cursor.execute("BEGIN IMMEDIATE")
            is_open = True
            return cls(conn)
        finally:
            if not is_open:
                lock.release()

    @property
    def is_full(self) -> bool:
        return self._is_lost or self.commits >= MOST

    def commit(self, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
        """Write under a savepoint; the result holds if the transaction ends well."""
        database, writing = (
            self._conn.database,
            WriteTransaction(self._conn.database, self._conn.names),
        )
        self._execute("SAVEPOINT one")
        try:
            planned = writes() if callable(writes) else writes
            posted = writing.apply(planned)
            self._execute("RELEASE one")
        except BaseException:
            self._is_lost = not database.in_transaction  # some errors roll back the whole transaction
            if not self._is_lost:
                self._execute("ROLLBACK TO one; RELEASE one")
            raise
        writing.remember(alone=True)
        self.commits += 1
        self._conn.commits += 1
        must_sync = durable and any(map(must_last, planned))
        self._must_sync = self._must_sync or must_sync
        return Committed(planned, posted, must_sync)

    def end(self) -> None:
        """Commit, and release the lock; Undone if nothing was written."""
        conn = self._conn
        try:
            if not self._is_lost:
                self._commit()
                if self._must_sync:
                    conn.log.start_writeback(conn.lock)
                conn.log.maintain(conn.lock)
        except BaseException:
            conn.names.forget()
            raise
        finally:
            conn.lock.release()
        if self._is_lost:
            conn.names.forget()
            raise Undone

    def _commit(self) -> None:
        try:
            self._execute("COMMIT")
        except apsw.Error as error:
            if self._conn.database.in_transaction:
                self._conn.database.execute("ROLLBACK")
            raise Undone from error
