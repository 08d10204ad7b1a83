"""The store protocol on one SQLite file.

Each thread has its own connection; none is carried over a fork. Commits go through the lock queue (`commit`).
Queries read all rows at once, so no view of the room stays open, and a letter whose checksum is wrong is moved
into quarantine while the query is repeated without it.
"""

from __future__ import annotations

from _thread import _local
from _weakrefset import WeakSet  # `weakref` is slow to import
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from ...clock import SystemClock
from ...errors import Damaged, Resync, StoreFailing, Unreadable
from ...model import record
from ...model.names import fold
from ...model.query import LetterQuery
from ..notification import ProcessNotifier
from ..protocol import mailboxes_to_notify
from ..queries import FAR, MEANT, QueryStore
from . import connection as sqlite_connection
from . import ground, rows
from . import writes as sqlite_writes
from .commit import Batch, commit
from .connection import NEXT_NUMBER, Connection, translate, translated
from .queries import WINDOW, bare, is_of_one_agent, queries
from .writes import WAITING, WAITING_BY_SENDER, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ...clock import Clock
    from ...model.delivery import Lease
    from ...model.query import Found, Group, Moment, Query
    from ...model.record import Change, Cursor
    from ...model.report import Finding, Progress
    from ..notification import Notifier
    from ..protocol import Letter, Plan, Posted, Watch, Write
    from ..queries import Statement
    from .search import Index


T = TypeVar("T")
_ABANDONED: list[object] = []  # connections of a parent process: never touched, so never closed, after a fork


class _Local(_local):
    """The state of one thread."""

    # Defaults in the class: a missing attribute would raise and drop an AttributeError at every commit.
    connection: Connection | None = None
    batch: Batch | None = None


class SqliteStore(QueryStore):
    """A room in one file, which any number of threads and processes may have open at once."""

    vouches = True
    archives_by_sending = False
    queries = queries
    fresh_id: Callable[[str], str] | None = None  # the caller makes the ids
    take: Callable[[Query, Moment, Lease], list[Found] | None] | None = None  # another look costs nothing here

    def __init__(
        self,
        path: ground.Place,
        *,
        clock: Clock | None = None,
        durable: bool = True,
        busy_timeout: float = 30.0,
        notifier: Notifier | None = None,
    ) -> None:
        """Open the room, and make it if it does not exist. A room that is no file has a notifier of its own."""
        self.path = ground.prepare(path) if notifier is None else str(path)
        self.clock = clock or SystemClock()
        self.boot = self.clock.now().boot
        self.busy_timeout = busy_timeout
        self.notifier = notifier or ProcessNotifier(f"{self.path}.bells")
        self._local = _Local()
        self._open: WeakSet[Connection] = WeakSet()  # a connection goes when its thread ends
        self._forks = sqlite_connection.count
        self._durable = durable
        self.connection()  # a room that cannot be opened is refused now, not at the first letter

    # -- connections and queries

    # The next seven methods are public for a store that keeps its letters elsewhere and has this one as its index:
    # `files.store` overrides `connect`, `query`, `fetch` and `set_aside`.

    def connection(self) -> Connection:
        """Return this thread's connection, opened on first use."""
        if self._forks != sqlite_connection.count:  # SQLite's connections must not be used or closed after a fork
            _ABANDONED.append([*self._open, self._local])
            self._local, self._open, self._forks = _Local(), WeakSet(), sqlite_connection.count
        connection = self._local.connection
        if connection is None:
            connection = self.connect()
            self._local.connection = connection
            self._open.add(connection)
        return connection

    def connect(self) -> Connection:
        """Open another connection."""
        return Connection(self.path, boot=self.boot, busy_timeout=self.busy_timeout)

    def drop(self, conn: Connection) -> None:
        """Forget this thread's connection; it is closed with its last reference."""
        if self._local.connection is conn:
            self._local.connection = None

    def query(self, sql: str, values: list[Any]) -> list[rows.Row]:
        """Return all rows at once, so that no reader keeps the log from starting over."""
        conn = self.connection()
        # Before every read: a shortened index would end the whole process (SIGBUS).
        conn.log.check_index()
        try:
            return conn.read_cursor.execute(sql, values).fetchall()
        except apsw.Error as error:
            # A log that another program cut short gives these errors too, and then deserves its own message.
            if isinstance(error, (apsw.IOError, apsw.CorruptError, apsw.NotADBError)):
                conn.log.check_complete()
            raise translate(error, self.path) from error
        except UnicodeDecodeError as error:
            conn.read_cursor = conn.database.cursor()  # the old one is still in the middle of its rows
            raise self.damaged(error) from None

    def damaged(self, why: Exception) -> Damaged:
        """Return the error for a damaged room."""
        return Damaged(f"{self.path} is damaged: {why}", hint=rows.SALVAGE)

    def set_aside(self, number: int, damage: Unreadable) -> None:
        """Move a damaged letter into quarantine."""
        conn = self.connection()
        import logging  # noqa: PLC0415 - heavy, and damage is rare

        logging.getLogger("postroom").warning("letter %d in %s was set aside: %s", number, self.path, damage)
        if conn.database.in_transaction:  # a plan is running: its commit includes this
            sqlite_writes.quarantine(conn.database, number)
            return
        try:
            with conn.writing() as database:
                sqlite_writes.quarantine(database, number)
        except apsw.Error as error:  # more is damaged than this letter
            raise translate(error, self.path) from error

    def mailbox_ids(self, mailboxes: Sequence[str]) -> list[int]:
        """Return the ids of those mailboxes that exist, from memory if all were seen before."""
        committed, known = self.connection().names.committed, []
        for name in mailboxes:
            held = committed.get(name)
            if held is None:
                break
            known.append(held[0])
        else:
            return known
        marks = ", ".join("?" * len(mailboxes))
        sql = f"SELECT id, name FROM mailboxes WHERE folded IN ({marks})"
        return [number for number, name in self.query(sql, [*map(fold, mailboxes)]) if name in mailboxes]

    places = mailbox_ids

    # -- writing

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        conn, batch = self.connection(), self._local.batch
        step = commit if batch is None else batch.commit
        try:
            done = step(conn, writes, durable=self._durable)
        except StoreFailing:
            if batch is not None:
                batch.end()
            self.drop(conn)  # the next commit opens the room again
            raise
        except (apsw.Error, OSError) as error:
            raise translate(error, self.path) from error
        except UnicodeDecodeError as error:
            raise self.damaged(error) from None
        posted = done.posted
        mailboxes = mailboxes_to_notify(done.writes, posted)
        if batch is not None:
            batch.add(conn, mailboxes, must_sync=done.must_sync)
        else:
            # Opened before the sync: a watch that begins later finds the letter by its first look.
            signals = self.notifier.open_signals(mailboxes)
            # Sync, then notify: no process may learn of a letter that a power cut could still take back.
            try:
                if conn.on_commit is not None:
                    conn.on_commit.make_safe()  # in a room of files the folders are synced here
                if done.must_sync:
                    conn.log.sync(conn.lock)
                if signals:
                    self.notifier.notify(signals)
            finally:
                if signals:
                    self.notifier.close_signals(signals)
        return posted

    def batch(self) -> AbstractContextManager[None]:
        return Batch(self._local, self.notifier)

    # -- queries

    def find_all(self, query: Query, request: list[Statement]) -> list[Found]:
        """Return deliveries; of all mailboxes by reading each letter once: it may lie in thousands of them."""
        if query.mailbox is not None:
            return self.fetch(rows.found, *request)
        without_letters = [bare(one) for one in request]
        held = [row for one in without_letters for row in self.query(*one)]
        several = self.fetch(rows.letter, queries.by_number(sorted({row[0] for row in held})))
        among = partial(rows.found_among, {letter.number: letter.message for letter in several})
        try:
            found = [*map(among, held)]
        except Unreadable:  # `fetch` sets it aside
            found = self.fetch(among, *without_letters)
        return [one for one in found if one is not None]

    def count(self, query: Any, by: Group = "priority") -> Any:
        if by == "quota":
            places = [place_of(query.mailbox, self._mailbox(query.mailbox)), self._mailbox(query.sender)]
            return tuple(self.query(WAITING, places)[0])
        if by == "sender":
            return dict(self.query(WAITING_BY_SENDER, [self._mailbox(query.mailbox)]))
        if isinstance(query, LetterQuery) and is_of_one_agent(query):
            return self.query(*queries.count_letters(query, self._own_letters(query, FAR)))[0][0]
        return super().count(query, by)

    def letters(self, query: LetterQuery) -> list[Letter]:
        find = self._newest if query.newest_of else self._letters
        if not is_of_one_agent(query):
            return find(query, None)
        if query.limit is not None and (query.newest_of or query.order == "newest"):
            own = self._own_letters(query, WINDOW)
            found = find(query, own)
            if len(found) >= query.limit or len(own) < WINDOW:
                return found
        return find(query, self._own_letters(query, FAR))

    def _letters(self, query: LetterQuery, among: list[int] | None) -> list[Letter]:
        return self.fetch(rows.letter, queries.letters(query, among))

    def _newest(self, query: LetterQuery, among: list[int] | None) -> list[Letter]:
        found = self.query(*queries.newest_of(query, among))
        if among is None and (query.limit is None or len(found) < query.limit):
            found = self.query(*queries.newest_of(query, window=False))
        return self.fetch(rows.letter, queries.by_number([number for (number,) in found]))

    def _own_letters(self, query: LetterQuery, most: int) -> list[int]:
        """Return the numbers of the newest letters of an agent, and maybe of a few that are not its own.

        The text index names most of them; the others are looked up. Where other programs write, all are: a letter
        may come to a further mailbox after it was indexed.
        """
        from .search import own_letters  # noqa: PLC0415 - most processes do not search

        party = self.mailbox_ids((query.party or query.sender or "",))
        before = FAR if query.before is None else query.before
        if not party:
            return []
        index = self.connection().index if self.vouches else None
        return own_letters(index, self.query, party[0], before, most)

    def search_index(self) -> Index:
        return self.connection().index

    def _mailbox(self, name: str) -> int:
        """Return the mailbox's id, or -1 if there is none."""
        found = self.query(MEANT, [fold(name)] * 2)
        return found[0][0] if found else -1

    # -- health and copies

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
        conn = self.connection()
        from .examine import examine_room  # noqa: PLC0415 - rarely needed, and heavy

        return examine_room(conn, self.path, durable=self._durable, repair=repair, full=full, progress=progress)

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        from .backup import copy_room  # noqa: PLC0415 - rarely needed, and heavy

        # A connection of its own: the copy is one long read transaction.
        source = self.connect()
        try:
            with translated(self.path):
                return copy_room(
                    source.database,
                    path,
                    overwrite=overwrite,
                    progress=progress,
                    more_tables=source.names_of_tables,
                )
        finally:
            source.close()

    # -- changes and notification

    def changes(self, since: Cursor, limit: int) -> tuple[list[Change], Cursor]:
        now = self.cursor()
        if (since.store, since.epoch) != (now.store, now.epoch) or since.number > now.number:
            raise Resync
        found = self.query(*queries.changes(since.number, limit))
        trimmed = self.query("SELECT trimmed FROM room", [])[0][0]  # last, so that no trim goes unseen
        try:
            if since.number < trimmed:
                raise Resync
            changes = [rows.change(row) for row in found]
        except rows.UNLIKELY as broken:
            raise self.damaged(broken) from None
        last = found[-1][0] if found else now.number
        return changes, record.Cursor(now.store, now.epoch, last)

    def cursor(self) -> Cursor:
        name, epoch, following = self.query(f"SELECT name, epoch, ({NEXT_NUMBER}) FROM room", [])[0]
        return record.Cursor(name, epoch, following - 1)

    def trim_changes(self, keep: int) -> int:
        newest = "SELECT number FROM changes ORDER BY number DESC LIMIT 1 OFFSET ?"
        # Both in one transaction: a cursor older than `trimmed` must get Resync, never a gap.
        with translated(self.path), self.connection().writing() as database:
            for (number,) in database.execute(newest, (keep,)).fetchall():
                database.execute("UPDATE room SET trimmed = ?", (number,))
                database.execute("DELETE FROM changes WHERE number <= ?", (number,))
                return database.changes()
        return 0

    def watch(self, mailboxes: Sequence[str]) -> Watch:
        try:
            return self.notifier.watch(mailboxes)
        except OSError as error:
            raise translate(error, error.filename or self.path) from error

    def close(self) -> None:
        for connection in list(self._open):
            connection.close()
        self._open.clear()
        self._local = _Local()
        self.notifier.close()
