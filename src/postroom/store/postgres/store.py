"""The store protocol on one schema of a PostgreSQL database, which any number of machines may use at once.

A commit: take the room's lock → write → commit without waiting for the disk, which leaves the lock → flush what
must last → ring → report success. For a list of writes that is one round trip (`schema/functions.sql`). A plan
runs inside such a transaction. Readers take no lock.
"""

from __future__ import annotations

from _thread import _local
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import psycopg
from msgspec.structs import replace
from psycopg import sql

from ...errors import Damaged, Resync, StoreFailing, Unreadable
from ...model import record
from ...model.names import AT, fold, system_of
from ..protocol import Post, Posted, mailboxes_to_notify, must_last
from ..queries import QueryStore, usual_claim
from ..sqlite import rows
from .address import parse
from .clock import BOOT, ServerClock
from .connection import Database
from .errors import RESTORE, LookFirst, translated
from .notification import ServerNotifier
from .queries import CURSOR, QUOTA, TAKE, WAITING_BY_SENDER, queries
from .schema import bring_up, check_server, version_of
from .writes import as_json, look, must_look

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType

    from ...clock import Clock
    from ...model.delivery import Lease
    from ...model.query import Found, Group, LetterQuery, Moment, Query
    from ...model.record import Change, Cursor
    from ...model.report import Finding, Progress
    from ..protocol import Letter, Plan, Watch, Write
    from .connection import RoomConnection, Row
    from .search import TableIndex

T = TypeVar("T")

_COMMIT = "CALL ROOM.commit($1::jsonb, $5::bytea[], $2::int, $3, $4, NULL)"
_APPLY = "SELECT ROOM.apply(?::jsonb, %b::bytea[], true)"
_RAISE = "SELECT floors, as_of FROM ROOM.raise_floors(?, ?::bigint[], ?::bigint)"
_DOUBTFUL = "the server gave up waiting for its standby: what was sent may be lost with this server"
_AGAIN = "send it again with the same key; it is never doubled"
NO_FLOORS = [0] * 8  # unread, then read; of each, the four ranks
RAISE_FLOORS = 50  # claims after which the floors of a mailbox are raised
MOST_FLOORS = 10_000  # mailboxes that a process remembers
IDLE = 5  # seconds after which the server ends a plan whose process was cut off, so that the room is free again


class _Local(_local):
    """The state of one thread."""

    connection: RoomConnection | None = None  # of the plan that is running
    batch: Batch | None = None


class PostgresStore(QueryStore):
    """A room in one schema of a PostgreSQL database."""

    vouches = True
    archives_by_sending = False
    queries = queries
    fresh_id: Callable[[str], str] | None = None  # the caller makes the ids
    take: Callable[[Query, Moment, Lease], list[Found] | None] | None

    def __init__(
        self, address: str, *, clock: Clock | None = None, durable: bool = True, busy_timeout: float = 30.0
    ) -> None:
        """Open the room, and make it if it does not exist. Without a clock, the server's is used."""
        self.address = parse(address)
        self.database = Database(self.address, busy_timeout)
        self.patience = int(busy_timeout * 1000)
        idle = f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE}s'"
        self._begin = self.database.sql(f"BEGIN; {idle}; SELECT ROOM.enter({self.patience})")
        self._commit = self.database.sql(_COMMIT).encode()
        self.notifier = ServerNotifier(self.database)
        self._local = _Local()
        self.take = self._take
        # For each mailbox, below which numbers no letter was unread, by what is read and by rank, as of a number.
        self._floors: dict[str, tuple[list[int], int, int]] = {}
        server = ServerClock(self.database)
        self.clock: Clock = clock or server
        with self.database.connect() as connection, translated():
            level = check_server(connection, durable=durable)
            self.level = level if durable else ""
            bring_up(self.database, connection)
            server.measure(connection)
            connection.execute(
                self.database.sql("SELECT ROOM.open_room(?)"), [self.clock.now().boot if clock else BOOT]
            )

    @staticmethod
    def exists(address: str) -> bool:
        """Return whether the server holds this room, and make nothing."""
        database = Database(parse(address), 0.0)
        with database.connect() as connection, translated():
            return version_of(connection, database.address.schema) > 0

    def __repr__(self) -> str:
        return f"PostgresStore({str(self.address)!r})"

    # -- connections and queries

    def query(self, statement: str, values: Any = ()) -> list[Row]:
        """Run a statement and return its rows: in the transaction of a plan that runs in this thread, or alone."""
        text = self.database.sql(statement)
        held = self._local.connection
        if held is not None:
            with translated():
                return held.execute(text, values).fetchall()
        with self.database.connection() as connection:
            return connection.execute(text, values).fetchall()

    def damaged(self, why: Exception) -> Damaged:
        return Damaged(f"the room {self.address.schema} is damaged: {why}", hint=RESTORE)

    def set_aside(self, number: int, damage: Unreadable) -> None:
        import logging  # noqa: PLC0415 - heavy, and damage is rare

        name = self.address.schema
        logging.getLogger("postroom").warning("letter %d in %s was set aside: %s", number, name, damage)
        if self._local.connection is not None:  # a plan is running: its commit includes this
            self.query("SELECT ROOM.set_aside(?)", [number])
        else:
            self._alone("SELECT ROOM.set_aside(?)", [number])

    def _alone(self, statement: str, values: Sequence[Any]) -> list[Row]:
        """Run a statement under the room's lock, in a transaction of its own."""
        with self.database.connection() as connection, connection.transaction():
            connection.execute(self.database.sql("SELECT ROOM.enter(?::int)"), [self.patience])
            return connection.execute(self.database.sql(statement), values).fetchall()

    # -- writing

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        batch = self._local.batch
        if callable(writes) or must_look(writes):
            return self._commit_plan(writes, batch)
        level = self.level if batch is None and (not writes or any(map(must_last, writes))) else ""
        if not writes:
            if batch is not None:
                batch.add((), must_flush=True)
            elif level:
                self.finish(level, [])
            return ()
        changed = _changed(writes)
        bell = self.notifier.bell(changed) if batch is None else ""
        form, bodies = as_json(writes)
        try:
            with self.database.connection() as connection:
                values = [form, b"%d" % self.patience, level.encode(), bell.encode()]
                found = connection.call(self._commit, values, bodies)
                self._check_doubt(connection)
        except LookFirst:
            return self._commit_plan(writes, batch)
        if found is None:
            return self._commit_plan(writes, batch)
        posted = _posted(writes, found)
        if batch is None:
            self.notifier.tell(changed)
        else:
            batch.add(changed, must_flush=any(map(must_last, writes)))
        return posted

    def _commit_plan(self, writes: Sequence[Write] | Plan, batch: Batch | None) -> tuple[Posted, ...]:
        """Run one transaction in which nobody else writes: look, decide, write."""
        with self.database.connection() as connection:
            try:
                connection.execute(self._begin, prepare=False)
                self._local.connection = connection
                planned = writes() if callable(writes) else writes
                final, posted = self._write(planned)
            except BaseException:
                with suppress(psycopg.Error):
                    connection.rollback()
                raise
            finally:
                self._local.connection = None
            must_flush = not writes or any(map(must_last, planned))
            if batch is None:
                self._finish(
                    connection, "COMMIT; ", self.level if must_flush else "", [_changed(final)] if final else []
                )
            else:
                connection.execute("COMMIT")
                batch.add(_changed(final), must_flush=must_flush)
        return posted

    def _write(self, writes: Sequence[Write]) -> tuple[list[Write], tuple[Posted, ...]]:
        """Make the writes under the lock. Return those that were made, and a result for each letter."""
        final: list[Write] = []
        waiting: list[Write] = []  # to be made together
        posted: list[Posted] = []

        def apply() -> None:
            if waiting:
                form, bodies = as_json(waiting)
                posted.extend(_posted(waiting, self.query(_APPLY, [form.decode(), bodies])[0][0]))
                final.extend(waiting)
                waiting.clear()

        for write in writes:
            if isinstance(write, Post):
                apply()  # it may repeat one of these, or a guard may ask for them
                result = look(self.query, write)
                if isinstance(result, Posted):
                    posted.append(result)
                    continue
                waiting.append(result)
                apply()
                if result is not write:
                    posted[-1] = replace(posted[-1], written=result)
            else:
                waiting.append(write)
        apply()
        return final, tuple(posted)

    def finish(self, level: str, changed: Sequence[Collection[str]]) -> None:
        """Flush what must last, ring for the mailboxes of these commits, and wake the waiters of this process."""
        with self.database.connection() as connection:
            self._finish(connection, "", level, changed)

    def _finish(
        self, connection: RoomConnection, before: str, level: str, changed: Sequence[Collection[str]]
    ) -> None:
        # Several statements in one round trip, each in a transaction of its own: nobody may learn of a letter
        # before it is durable.
        schema, text = self.address.schema, before
        if level:
            text += f"BEGIN; SELECT {schema}.flush('{level}'); COMMIT; "
        if changed:
            text += f"SELECT {schema}.ring({sql.Literal(self.notifier.bell(*changed)).as_string(connection)})"
        if text:
            connection.execute(text, prepare=False)
        self._check_doubt(connection)
        self.notifier.tell(*changed)

    def _check_doubt(self, connection: RoomConnection) -> None:
        if connection.doubtful:
            connection.doubtful = False
            raise StoreFailing(_DOUBTFUL, hint=_AGAIN)

    def _take(self, query: Query, moment: Moment, lease: Lease) -> list[Found] | None:
        """Claim what the usual query of a claim finds, in one round trip."""
        claim = usual_claim(query)
        if claim is None or self._local.connection is not None:
            return None
        name, now, most = claim[0], rows.micros(moment.wall), rows.micros(claim[-1])
        floors, as_of, uses = self._floors.pop(name, (NO_FLOORS, 0, 0))
        times = [moment.steady, now, most, query.limit]
        held = [lease.token, lease.holder, lease.until, lease.boot]
        values = [name, *times, *held, self.patience, floors, as_of, self.notifier.bell()]
        taken = self.query(TAKE, values)
        if taken and taken[0][0] < 0:
            return None
        found = []
        for row in taken:
            try:
                found.append(rows.found(row))
            except Unreadable as damage:
                self.set_aside(row[0], damage)
        if found:
            self.notifier.tell(())
        if uses >= RAISE_FLOORS:
            floors, as_of = self.query(_RAISE, [name, floors, as_of])[0]
            uses = 0
        if len(self._floors) < MOST_FLOORS:
            self._floors[name] = (floors, as_of, uses + 1)
        return found

    def batch(self) -> AbstractContextManager[None]:
        return Batch(self, self._local)

    # -- queries

    def count(self, query: Any, by: Group = "priority") -> Any:
        if by == "sender":
            return dict(self.query(WAITING_BY_SENDER, [fold(query.mailbox)] * 2))
        if by != "quota":
            return super().count(query, by)
        system = fold(system_of(query.mailbox)) if AT in query.mailbox else ""
        return self.query(QUOTA, [system] * 2 + [fold(query.mailbox)] * 2 + [fold(query.sender)] * 2)[0]

    def letters(self, query: LetterQuery) -> list[Letter]:
        return self.fetch(rows.letter, queries.newest_of(query) if query.newest_of else queries.letters(query))

    def search_index(self) -> TableIndex:
        from .search import TableIndex  # noqa: PLC0415 - most processes do not search

        return TableIndex(self)

    def mailbox_ids(self, mailboxes: Sequence[str]) -> list[int]:
        found = self.query("SELECT id FROM main.mailboxes WHERE name = ANY (?)", [list(mailboxes)])
        return [number for (number,) in found]

    def places(self, mailboxes: Sequence[str]) -> Sequence[str]:
        return mailboxes  # by their names: a query for their ids would be a round trip

    # -- health and copies

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
        from .examine import examine_room  # noqa: PLC0415 - rarely needed

        return examine_room(self, repair=repair, full=full, progress=progress)

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        from .backup import copy_room  # noqa: PLC0415 - rarely needed

        return copy_room(self, path, overwrite=overwrite, progress=progress)

    # -- changes and notification

    def _state(self) -> tuple[Cursor, int]:
        """Return the cursor of the latest change, and the number up to which changes were dropped."""
        while True:
            name, epoch, token, number, trimmed = self.query(CURSOR)[0]
            if token is not None:
                return record.Cursor(name, epoch + token, number), trimmed
            # The server crashed, or is another one: commits that nobody waited for are lost.
            self._alone("SELECT ROOM.wake()", [])

    def changes(self, since: Cursor, limit: int) -> tuple[list[Change], Cursor]:
        now, _ = self._state()
        if (since.store, since.epoch) != (now.store, now.epoch) or since.number > now.number:
            raise Resync
        found = self.query(*queries.changes(since.number, limit))
        after, trimmed = self._state()  # last, so that no trim and no crash goes unseen
        if since.number < trimmed or after.epoch != now.epoch:
            raise Resync
        last = found[-1][0] if found else now.number
        return [rows.change(row) for row in found], record.Cursor(now.store, now.epoch, last)

    def cursor(self) -> Cursor:
        return self._state()[0]

    def trim_changes(self, keep: int) -> int:
        dropped: int = self._alone("SELECT ROOM.trim_changes(?)", [keep])[0][0]
        return dropped

    def watch(self, mailboxes: Sequence[str]) -> Watch:
        return self.notifier.watch(mailboxes)

    def close(self) -> None:
        self.notifier.close()
        self.database.close()


def _changed(writes: Sequence[Write]) -> set[str]:
    return mailboxes_to_notify(writes, [Posted(message_id="", number=0)] * len(writes))


def _posted(writes: Sequence[Write], said: str | bytes) -> tuple[Posted, ...]:
    """Return what `apply` says of the letters among these writes."""
    found = msgspec.json.decode(said)
    posts = [write for write in writes if isinstance(write, Post)]
    return tuple(
        Posted(message_id=post.message.id, number=number, unknown=tuple(unknown or ()))
        for post, (number, unknown) in zip(posts, found, strict=True)
    )


class Batch:
    """Several commits of one thread with one flush and one bell, at the end of the block."""

    def __init__(self, store: PostgresStore, local: _Local) -> None:
        self._store = store
        self._local = local
        self._must_flush = False
        self._changed: list[Collection[str]] = []

    def __enter__(self) -> None:
        self._local.batch = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._local.batch = None
        # Also after an error in the block: the commits before it are in the room, and last like any other (G1).
        if self._changed:
            self._store.finish(self._store.level if self._must_flush else "", self._changed)

    def add(self, changed: Collection[str], *, must_flush: bool) -> None:
        self._must_flush = self._must_flush or must_flush
        self._changed.append(changed)
