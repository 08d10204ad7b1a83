"""The way to a SQLite file: a connection for each thread, and questions whose answers are sound or set aside."""

from __future__ import annotations

import os
import weakref
from _thread import _local
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
import msgspec

from ...errors import Damaged, Resync, StoreFailing, Unreadable
from ...model import record
from ...model.message import Priority
from ...model.names import AT, fold
from ...model.record import Record
from ..notification import EVERYONE, MANY, ROOM, ProcessNotifier
from ..protocol import Undone, rung_by
from . import backup, examine, ground, queries, rows
from . import commit as sqlite_commit
from . import connection as sqlite_connection
from . import search as sqlite_search
from . import writes as sqlite_writes
from .commit import commit, make_safe
from .connection import NEXT_NUMBER, Connection, translate, translated
from .search import Lookout
from .writes import BY_KEY, WAITING, place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from ...model.query import Found, LetterQuery, Moment, Query, SearchQuery
    from ...model.record import Change, Cursor
    from ...model.report import Finding, Progress, Tally, Traffic
    from ..protocol import Letter, Plan, Posted, Watch, Write
    from .commit import Committed, Gathering
    from .queries import Statement


T = TypeVar("T")
_ABANDONED: list[object] = []  # connections of a parent process: never touched, so never closed, after a fork


class _Local(_local):
    """What each thread has for itself."""

    # Found in the class, and not missed: a missing attribute is an error made and thrown away, at every commit.
    connection: Connection | None = None
    gathering: Gathering | None = None


class Access:
    """What the store builds on."""

    def __init__(self, path: ground.Place, *, boot: str, busy_timeout: float) -> None:
        self.path = ground.prepare(path)
        self._boot = boot
        self._busy_timeout = busy_timeout
        self._local = _Local()
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()  # one goes when its thread ends
        self._forks = sqlite_connection.count

    def _here(self) -> Connection:
        """This thread's connection, opened on first use."""
        if self._forks != sqlite_connection.count:
            _ABANDONED.append([*self._open, self._local])
            self._local, self._open, self._forks = _Local(), weakref.WeakSet(), sqlite_connection.count
        connection = self._local.connection
        if connection is None:
            connection = self._connect()
            self._local.connection = connection
            self._open.add(connection)
        return connection

    def _connect(self) -> Connection:
        return Connection(self.path, boot=self._boot, busy_timeout=self._busy_timeout)

    def _drop(self, here: Connection) -> None:
        """Forget this thread's connection; closed when nobody uses it any more."""
        if self._local.connection is here:
            self._local.connection = None

    def _ask(self, sql: str, values: list[Any]) -> list[rows.Row]:
        """All rows at once: nothing holds a view of the room open while anyone thinks or waits."""
        here = self._here()
        here.log.check_index()
        try:
            return here.asking.execute(sql, values).fetchall()
        except apsw.Error as error:
            if isinstance(error, (apsw.IOError, apsw.CorruptError, apsw.NotADBError)):
                here.log.check_whole()
            raise translate(error, self.path) from error
        except UnicodeDecodeError as error:
            here.asking = here.database.cursor()  # the other has not come to its end
            raise self._damaged(error) from None

    def _damaged(self, why: Exception) -> Damaged:
        return Damaged(f"{self.path} is damaged: {why}", hint=rows.SALVAGE)

    def _names(self, sql: str) -> list[str]:
        found = [name for (name,) in self._ask(sql, [])]
        if not all(isinstance(name, str) for name in found):
            raise self._damaged(TypeError("a mailbox has lost its name"))
        return sorted(found)

    def _sound(self, make: Callable[[rows.Row], T], *questions: Statement) -> list[T]:
        """The answers as values. A damaged letter is set aside, and the questions are asked again without it."""
        tried: set[int] = set()
        while True:
            sound, damaged = [], []
            for sql, values in questions:
                for row in self._ask(sql, values):
                    try:
                        sound.append(make(row))
                    except Unreadable as damage:
                        damaged.append((row[0], damage))
            if not damaged:
                return sound
            for number, why in damaged:
                if number in tried:  # it cannot be set aside: what finds it is damaged too
                    raise self._damaged(why)
                self._set_aside(number, why)
            tried |= {number for number, _ in damaged}

    def _set_aside(self, number: int, damage: Unreadable) -> None:
        here = self._here()
        import logging  # noqa: PLC0415 - heavy, and damage is rare

        logging.getLogger("postroom").warning("letter %d in %s was set aside: %s", number, self.path, damage)
        if here.database.in_transaction:  # a plan is looking: its commit carries this along
            sqlite_writes.quarantine(here.database, number)
            return
        try:
            with here.lock, here.database:
                sqlite_writes.quarantine(here.database, number)
        except apsw.Error as error:  # more is damaged than this letter
            raise translate(error, self.path) from error

    def _numbers(self, mailboxes: Sequence[str]) -> list[int]:
        committed, known = self._here().names.committed, []
        for name in mailboxes:
            held = committed.get(name)
            if held is None:
                break
            known.append(held[0])
        else:
            return known
        marks = ", ".join("?" * len(mailboxes))
        sql = f"SELECT id, name FROM mailboxes WHERE folded IN ({marks})"
        return [number for number, name in self._ask(sql, [*map(fold, mailboxes)]) if name in mailboxes]

    def _close_connections(self) -> None:
        for connection in list(self._open):
            connection.close()
        self._open.clear()
        self._local = _Local()


# The store protocol on one SQLite file: a connection per thread, commits in line, answers all at once.

RECORD = "SELECT key, revision, value FROM records WHERE kind = ? AND key = ?"
RECORDS = "SELECT key, revision, value FROM records WHERE kind = ? ORDER BY key"
_MAILBOX = """
SELECT id FROM mailboxes WHERE folded = ?1 UNION ALL SELECT mailbox FROM aliases WHERE folded = ?1"""
SPELLING = """
SELECT name FROM mailboxes WHERE folded = ?1
UNION ALL SELECT m.name FROM aliases a JOIN mailboxes m ON m.id = a.mailbox WHERE a.folded = ?1"""


class SqliteStore(Access):
    """A room in a file. Any number of threads and processes may hold one at once."""

    vouches = True
    archives_by_sending = False

    def __init__(self, path: ground.Place, *, boot: str, durable: bool = True, busy_timeout: float = 30.0) -> None:
        super().__init__(path, boot=boot, busy_timeout=busy_timeout)
        self._durable = durable
        self._bells = ProcessNotifier(f"{self.path}.bells")
        self._lookout = Lookout()
        self._here()  # a room that cannot be opened is refused now, not at the first letter

    def fresh_id(self, sender: str) -> str | None:  # noqa: ARG002 - the same for everyone
        return None

    # -- writing

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        if not writes:
            return ()
        here = self._here()
        gathering = self._local.gathering
        try:
            if gathering is not None:
                done = gathering.commit(here, writes, durable=self._durable)
            else:
                done = commit(here, writes, durable=self._durable)
        except StoreFailing:
            if gathering is not None:  # what is dropped must not keep the lock from what comes after it
                with suppress(Undone, StoreFailing):  # told again at the end of it
                    gathering.end_transaction()
            self._drop(here)  # the next try finds the room anew
            raise
        except (apsw.Error, OSError) as error:
            raise translate(error, self.path) from error
        except UnicodeDecodeError as error:
            raise self._damaged(error) from None
        if gathering is None:
            self._make_safe(here, done)
        posted = done.posted
        if posted and self._lookout.is_due(posted[-1].number, len(posted)):
            self._settle()
            sqlite_search.help_along(here.index, self._ask)
        return posted

    def _make_safe(self, here: Connection, done: Committed) -> None:
        bells = self._grasp(rung_by(done.writes, done.posted))
        try:
            if done.must_sync or done.carried or here.beside:
                make_safe(here, done)
            if bells:
                self._bells.ring(bells)
        finally:
            if bells:
                self._bells.let_go(bells)

    def _settle(self) -> None:
        """What this thread gathers is in the room from here on: for whoever looks at it by another way, or needs
        the writers' lock.
        """
        gathering = self._local.gathering
        if gathering is not None:
            gathering.end_transaction()

    def gathered(self, *, joined: bool = False) -> AbstractContextManager[None]:
        return sqlite_commit.Gathering(self._bells, self._local, self._grasp, joined=joined)

    def hurried(self) -> AbstractContextManager[Callable[[], bool]]:
        return self._here().hurried()

    def sync(self) -> None:
        self._settle()
        here = self._here()
        if self._durable:
            with here.lock:
                here.mend()
                here.log.tend(here.lock)
            here.log.sync(here.lock)

    def _grasp(self, mailboxes: set[str]) -> list[int]:
        """Before the sync, while the code is warm; they are rung after it."""
        return self._bells.grasp((ROOM, EVERYONE) if len(mailboxes) > MANY else (ROOM, *mailboxes))

    # -- asking

    def get(self, ids: Sequence[str]) -> dict[str, Letter]:
        marks = ", ".join("?" * len(ids))
        sql = f"SELECT number, sum, body FROM letters WHERE id IN ({marks})"
        return {letter.message.id: letter for letter in self._sound(rows.letter, (sql, list(ids)))}

    def sent(self, sender: str, key: str) -> Letter | None:
        found = self._sound(rows.letter, (BY_KEY, [fold(sender), sender, key]))
        return found[0] if found else None

    def find(self, query: Query) -> list[Found]:
        if query.order == "priority" and query.mailbox is not None and query.limit is not None:
            return self._with_seen(self._sound(rows.found_apart, queries.find_apart(query)[0]), query)
        fresh = queries.find_fresh(query)
        if fresh is not None:
            with suppress(rows.NotFresh):
                found = self._sound(partial(rows.found_fresh, query.mailbox or ""), fresh)
                return sorted(found, key=attrgetter("delivery.number")) if query.order == "age" else found
        request = [queries.find(query)]
        if query.after is not None:
            request.append(queries.find_late(query))
        found = self._sound(rows.found, *request) if query.mailbox is not None else self._find_everywhere(request)
        if query.after is None:
            return found
        return sorted(found, key=lambda f: f.delivery.arrived or f.delivery.number)[: query.limit]

    def _find_everywhere(self, request: list[Statement]) -> list[Found]:
        """A letter may lie in thousands of mailboxes: it is read once, not with each of them."""
        bare = [queries.bare(one) for one in request]
        numbers = {row[0] for one in bare for row in self._ask(*one)}
        sql = "SELECT number, sum, body FROM letters WHERE number IN (SELECT value FROM json_each(?))"
        several = self._sound(rows.letter, (sql, [msgspec.json.encode(sorted(numbers)).decode()]))
        letters = {letter.number: letter.message for letter in several}
        found = self._sound(partial(rows.found_among, letters), *bare)
        return [one for one in found if one is not None]

    def offered(self, query: Query, moment: Moment) -> list[Found] | None:
        at = query.mailbox or ""
        held = self._here().names.committed.get(at)
        request = None if held is None else queries.find_offered(query, moment, held[0])
        if request is None:
            return None if self.overdue(moment, (at,), 1) else self.find(query)
        first = self._sound(rows.found_apart, request)
        is_late = first[0][2] if first else self.overdue(moment, (at,), 1)
        return None if is_late else self._with_seen(first, query)

    def _with_seen(self, first: list[tuple[Found, bool, bool]], query: Query) -> list[Found]:
        """The index holds read and unread mail apart: the top of each, merged, is far cheaper than one sort."""
        top = [found for found, _, _ in first]
        if first and not first[0][1]:
            return top
        both = [*top, *self._sound(rows.found, queries.find_apart(query)[1])]
        apart = {found.delivery.number: found for found in both}  # what was read in between counts once
        return sorted(apart.values(), key=lambda f: (-f.delivery.priority, f.delivery.number))[: query.limit]

    def count(self, query: Query) -> dict[Priority, int]:
        counted = {rows.priority_of(rank): number for rank, number in self._ask(*queries.count(query))}
        return dict.fromkeys(Priority, 0) | counted

    def letters(self, query: LetterQuery) -> list[Letter]:
        return self._sound(rows.letter, queries.letters(query))

    def count_letters(self, query: LetterQuery) -> int:
        number: int = self._ask(*queries.count_letters(query))[0][0]
        return number

    def ids(self, beginning: str, party: str | None, limit: int) -> list[str]:
        return [id for (id,) in self._ask(*queries.ids(beginning, party, limit))]

    def search(self, query: SearchQuery, reader: str | None, limit: int) -> list[Letter]:
        self._settle()  # the index looks by itself
        party = None if reader is None else self._numbers((reader,))
        if party == []:
            return []
        search = sqlite_search.Search(query, reader, None if party is None else party[0])
        return search.find(self._here().index, self._ask, self._sound, limit)

    def keep_index(self) -> int:
        self._settle()
        return sqlite_search.catch_up(self._here().index, self._ask)

    def threads(self, party: str | None, limit: int) -> list[str]:
        return [thread for thread, _ in self._ask(*queries.threads(party, limit))]

    def conversations(self, party: str | None, scope: str | None, limit: int) -> list[str]:
        return [queries.catch_all(row) for row in self._ask(*queries.conversations(party, scope, limit))]

    def overdue(self, moment: Moment, mailboxes: Sequence[str] | None, limit: int) -> list[Found]:
        numbers = None if mailboxes is None else self._numbers(mailboxes)
        if numbers == []:
            return []
        keys = dict.fromkeys(self._ask(*queries.overdue(moment, numbers, limit)))
        if not keys:
            return []
        return self._sound(rows.found, *((queries.ONE, list(key)) for key in keys))

    def next_timer(self, moment: Moment, mailboxes: Sequence[str]) -> float | None:
        numbers = self._numbers(mailboxes)
        if not numbers:
            return None
        lease, *walls = self._ask(*queries.next_timer(moment, numbers))[0]
        waits = [] if lease is None else [lease - moment.steady]
        now = rows.micros(moment.wall) or 0
        waits += [(wall - now) / 1_000_000 for wall in walls if wall is not None]
        return min(waits, default=None)

    def records(self, kind: str, key: str | None = None) -> list[Record]:
        found = self._ask(RECORDS, [kind]) if key is None else self._ask(RECORD, [kind, key])
        if not found:
            return []
        try:
            return [Record(kind=kind, key=k, revision=r, value=msgspec.json.decode(v)) for k, r, v in found]
        except (msgspec.DecodeError, ValueError, TypeError) as broken:
            raise self._damaged(broken) from None

    def keys(self, kind: str) -> list[str]:
        return [key for (key,) in self._ask("SELECT key FROM records WHERE kind = ? ORDER BY key", [kind])]

    def quarantined(self) -> list[str]:
        return [id for (id,) in self._ask("SELECT id FROM quarantine ORDER BY number", [])]

    def spelling(self, name: str) -> str | None:
        if AT in name and name in self._here().names.committed:  # who is elsewhere is not called otherwise later
            return name
        found = self._ask(SPELLING, [fold(name)])
        return found[0][0] if found else None

    def mailboxes(self) -> list[str]:
        return self._names("SELECT name FROM mailboxes")

    def known(self) -> list[str]:
        return self._names(queries.KNOWN)

    def is_known(self, name: str) -> bool:
        return self._ask(queries.IS_KNOWN, [fold(name)]) != []

    def strangers(self) -> dict[str, int]:
        return dict(self._ask(queries.STRANGERS, []))

    def outgoing(self, due: datetime | None, most: datetime | None = None) -> dict[str, int]:
        return dict(self._ask(*queries.outgoing(due, most)))

    def waiting(self, mailbox: str, sender: str) -> tuple[int, int]:
        request = [place_of(mailbox, self._mailbox(mailbox)), self._mailbox(sender)]
        total, own = self._ask(WAITING, request)[0]
        return total, own

    def tally(self, mailbox: str | None) -> list[Tally]:
        return queries.tallies(self._ask(*queries.tally(mailbox)))

    def count_deliveries(self) -> int:
        number: int = self._ask(queries.DELIVERIES, [])[0][0]
        return number

    def traffic(self, since: Cursor, after: datetime) -> Traffic:
        self.changes(since, 1)  # can it still be told?
        until = self.cursor()
        return queries.traffic_of(until, *(self._ask(*q) for q in queries.traffic(since, until, after)))

    def _mailbox(self, name: str) -> int:
        """Its number; -1 if there is none."""
        found = self._ask(_MAILBOX, [fold(name)])
        return found[0][0] if found else -1

    # -- care

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
        self._settle()
        here = self._here()
        return examine.examine_room(
            here, self.path, durable=self._durable, repair=repair, full=full, progress=progress
        )

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        self._settle()
        source = self._connect()
        try:
            with translated(self.path):
                return backup.copy_room(
                    source.database,
                    path,
                    overwrite=overwrite,
                    progress=progress,
                    more_tables=source.names_of_tables,
                )
        finally:
            source.close()

    # -- changes and bells

    def changes(self, since: Cursor, limit: int) -> tuple[list[Change], Cursor]:
        now = self.cursor()
        if (since.store, since.epoch) != (now.store, now.epoch) or since.number > now.number:
            raise Resync
        found = self._ask(queries.CHANGES, [since.number, limit])
        trimmed = self._ask("SELECT trimmed FROM room", [])[0][0]  # asked last: no trim in between goes unseen
        try:
            if since.number < trimmed:
                raise Resync
            changes = [rows.change(row) for row in found]
        except rows.UNLIKELY as broken:
            raise self._damaged(broken) from None
        last = found[-1][0] if found else now.number
        return changes, record.Cursor(now.store, now.epoch, last)

    def cursor(self) -> Cursor:
        name, epoch, following = self._ask(f"SELECT name, epoch, ({NEXT_NUMBER}) FROM room", [])[0]
        return record.Cursor(name, epoch, following - 1)

    def renew_epoch(self) -> None:
        self._settle()
        here = self._here()
        try:
            with here.lock:
                here.mend()
                here.database.execute("UPDATE room SET epoch = ?", (os.urandom(4).hex(),))
                here.log.tend(here.lock)
        except apsw.Error as error:
            raise translate(error, self.path) from error
        here.log.sync(here.lock)

    def trim_changes(self, keep: int) -> int:
        self._settle()
        here = self._here()
        try:
            with here.lock:
                here.mend()
                newest = here.database.execute(
                    "SELECT number FROM changes ORDER BY number DESC LIMIT 1 OFFSET ?", (max(keep, 1),)
                ).get
                if newest is None:
                    return 0
                with here.database:
                    here.database.execute("UPDATE room SET trimmed = ?", (newest,))
                    here.database.execute("DELETE FROM changes WHERE number <= ?", (newest,))
        except apsw.Error as error:
            raise translate(error, self.path) from error
        return here.database.changes()

    def watch(self, mailboxes: Sequence[str]) -> Watch:
        try:
            return self._bells.watch(mailboxes)
        except OSError as error:
            raise translate(error, error.filename or self.path) from error

    def close(self) -> None:
        self._close_connections()
        self._bells.close()
