"""One commit, from the lock queue to the answer; and batches of commits that share a transaction and a sync.

The order keeps the guarantees: take the lock, BEGIN IMMEDIATE, write, COMMIT, leave the lock, sync the log,
answer and notify. No process learns of a letter before it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import apsw
import msgspec

from ...errors import PostroomError
from ..protocol import Posted, Write, must_last, sends
from .connection import translated
from .writes import WriteTransaction

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType

    from ..notification import Notifier
    from ..protocol import Plan
    from .connection import CommitHook, Connection


class Committed(msgspec.Struct, frozen=True):
    """The result of a commit: visible in the room, but not durable before `make_safe`."""

    writes: Sequence[Write]
    posted: tuple[Posted, ...]
    must_sync: bool


def commit(conn: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
    """Run one transaction under the lock. An empty list writes nothing and syncs what others have committed."""
    lock = conn.lock
    try:
        lock.acquire()
        conn.recover()
        done = _transact(conn, writes, durable=durable)
        if done.writes or done.must_sync:
            conn.log.maintain(lock)
        return done
    finally:
        # Also when `acquire` was interrupted: to release a lock that is not held is harmless, to keep one is not.
        lock.release()


def make_safe(conn: Connection, *, must_sync: bool) -> None:
    """Sync what must last, after the lock was left."""
    if conn.on_commit is not None:
        # In a room of files the folders are synced here.
        conn.on_commit.make_safe()
    if must_sync:
        conn.log.sync(conn.lock)


def _transact(
    conn: Connection, writes: Sequence[Write] | Plan, *, durable: bool, in_need: bool = False
) -> Committed:
    """Run one transaction. On a full disk, writes that send nothing are tried again with the reserve released."""
    database, execute, on_commit, planned = conn.database, conn.names.cursor.execute, conn.on_commit, writes
    begun: CommitHook | None = None  # set once the hook has prepared something that must be undone
    try:
        execute("BEGIN IMMEDIATE")
        # A plan runs inside the transaction: nobody writes between its reads and what it decides.
        planned = writes() if callable(writes) else writes
        if conn.lock.is_short:
            _check_disk_space(conn, planned)
        writing = WriteTransaction(database, conn.names)
        if on_commit is not None:
            begun = on_commit
            on_commit.prepare(planned)
        posted = writing.apply(planned)
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
        is_full = isinstance(error, apsw.FullError) and not in_need
        if not is_full or callable(planned) or sends(planned):
            raise
    else:
        # Only after the COMMIT: a name or number of a transaction that was rolled back must not be reused.
        writing.remember()
        if on_commit is not None:
            on_commit.settle()
        return Committed(planned, posted, durable and (not writes or any(map(must_last, planned))))
    # An ack or a record on a full disk: the reserve makes room for it, once (G10).
    conn.log.release_reserve(conn.lock)
    return _transact(conn, planned, durable=durable, in_need=True)


def _check_disk_space(conn: Connection, planned: Sequence[Write]) -> None:
    """Raise FullError for letters while disk space is short. Acks free space and must go on (G10)."""
    if sends(planned):
        conn.log.check_disk_space(conn.lock)


class Local(Protocol):
    """The state of one thread."""

    batch: Batch | None


class Batch:
    """The commits of one thread in one transaction and with one sync, both at the end of the block.

    One transaction wins a fifth: eight clients of a server sent 5364 letters a second, and 4393 with a transaction
    for each commit. No answer may leave before the end of the block. Other writers wait: it must be short.
    """

    def __init__(self, local: Local, notifier: Notifier) -> None:
        self._local = local  # where a commit finds this batch
        self._notifier = notifier
        self._open: Connection | None = None  # whose lock is held for the transaction that is open
        self._writing: WriteTransaction  # in that transaction
        self._written: list[Sequence[Write]] = []  # by each commit of that transaction
        self._failure: PostroomError | None = None  # why commits that were reported as done are lost
        # More than one where a connection was dropped after an error: each has its own hold on the log.
        self._to_sync: dict[Connection, bool] = {}
        self._to_notify: list[Collection[str]] = []  # the mailboxes of each commit

    def __enter__(self) -> None:
        self._local.batch = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.batch = None
        self.end()
        if self._to_sync:
            # Each signal once: who follows the whole room is woken by the batch, not by each letter in it.
            signals = self._notifier.open_signals(*self._to_notify)
            # Also after an error in the block: the commits before it are in the room, and are synced like any
            # other (G1).
            try:
                for conn, must_sync in self._to_sync.items():
                    make_safe(conn, must_sync=must_sync)
                self._notifier.notify(signals)
            finally:
                self._notifier.close_signals(signals)
        if self._failure is not None:
            raise self._failure

    def commit(self, conn: Connection, writes: Sequence[Write] | Plan, *, durable: bool) -> Committed:
        """Write in the transaction of the batch; all or nothing, like every commit."""
        if self._open is None:
            self._begin(conn)
        execute = conn.names.cursor.execute
        execute("SAVEPOINT batched")
        try:
            planned = writes() if callable(writes) else writes
            if conn.lock.is_short:
                _check_disk_space(conn, planned)
            posted = self._writing.apply(planned)
        except BaseException:
            if conn.database.in_transaction:
                execute("ROLLBACK TO batched")
                execute("RELEASE batched")
                self._writing = WriteTransaction(conn.database, conn.names)  # it knows names that are gone
            else:  # SQLite gave up the whole transaction, because of a full or failing disk
                self.end()
            raise
        execute("RELEASE batched")
        self._written.append(planned)
        return Committed(planned, posted, durable and (not writes or any(map(must_last, planned))))

    def _begin(self, conn: Connection) -> None:
        try:
            conn.lock.acquire()
            conn.recover()
            conn.names.cursor.execute("BEGIN IMMEDIATE")
        except BaseException:
            conn.lock.release()
            raise
        self._open, self._writing = conn, WriteTransaction(conn.database, conn.names)

    def end(self) -> None:
        """End the transaction that is open. If it fails, the batch fails at its end."""
        conn, written = self._open, self._written
        if conn is None:
            return
        self._open, self._written = None, []
        try:
            try:
                conn.names.cursor.execute("COMMIT")
            except apsw.Error:
                if conn.database.in_transaction:
                    conn.database.execute("ROLLBACK")
            else:
                self._writing.remember()
                conn.log.maintain(conn.lock)
                return
        finally:
            conn.lock.release()
        # One after the other: an ack may find room on a full disk where a letter may not (G10). By their
        # preconditions they write what was reported, or fail.
        for writes in written:
            try:
                with translated(conn.path):
                    commit(conn, writes, durable=False)
            except PostroomError as failed:
                self._failure = failed

    def add(self, conn: Connection, mailboxes: Collection[str], *, must_sync: bool) -> None:
        """Take in a commit; these mailboxes are notified after the sync."""
        self._to_sync[conn] = must_sync or self._to_sync.get(conn, False)
        self._to_notify.append(mailboxes)
