"""One commit, from the lock queue to the answer; and batches of commits that share one sync.

The order keeps the guarantees: take the lock, BEGIN IMMEDIATE, write, COMMIT, leave the lock, sync the log,
answer and notify. No process learns of a letter before it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import apsw
import msgspec

from ..protocol import Posted, Write, must_last, sends
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
        # While disk space is short only letters are refused: acks free space and must go on (G10).
        if conn.lock.is_short and sends(planned):
            conn.log.check_disk_space(conn.lock)
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


class Local(Protocol):
    """The state of one thread."""

    batch: Batch | None


class Batch:
    """The commits of one thread that share one sync, at the end of the block and whatever happens in it."""

    def __init__(self, local: Local, notifier: Notifier) -> None:
        self._local = local  # where a commit finds this batch
        self._notifier = notifier
        # More than one where a connection was dropped after an error: each has its own hold on the log.
        self._to_sync: dict[Connection, bool] = {}
        self._to_notify: list[Collection[str]] = []  # the mailboxes of each commit

    def __enter__(self) -> None:
        self._local.batch = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.batch = None
        if not self._to_sync:
            return
        # Each signal once: who follows the whole room is woken by the batch, not by each letter in it.
        signals = self._notifier.open_signals(*self._to_notify)
        # Also after an error in the block: the commits before it are in the room, and are synced like any other
        # (G1).
        try:
            for conn, must_sync in self._to_sync.items():
                make_safe(conn, must_sync=must_sync)
            self._notifier.notify(signals)
        finally:
            self._notifier.close_signals(signals)

    def add(self, conn: Connection, mailboxes: Collection[str], *, must_sync: bool) -> None:
        """Take in a commit that is visible by now; these mailboxes are notified after the sync."""
        self._to_sync[conn] = must_sync or self._to_sync.get(conn, False)
        self._to_notify.append(mailboxes)
