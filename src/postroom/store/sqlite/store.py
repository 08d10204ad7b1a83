"""The store protocol on one SQLite file: a connection per thread, commits in line, answers all at once."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

import apsw
import msgspec

from ... import model
from ...errors import Resync, StoreFailing
from ...model.message import Priority
from ...model.names import AT, fold
from ...model.record import Record
from .. import sqlite
from ..base import Undone, rung_by
from ..bells import EVERYONE, MANY, ROOM, DoorBells
from . import rows
from .access import Access
from .committing import commit, make_safe
from .connection import translate, translated
from .lookout import Lookout
from .names import NEXT_NUMBER
from .waiting import WAITING, place_of
from .writing import BY_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from ...model.change import Change, Cursor
    from ...model.health import Finding, Progress
    from ...model.query import Found, LetterQuery, Moment, Query
    from ...model.search import SearchQuery
    from ...model.stats import Tally, Traffic
    from ..base import Letter, Plan, Posted, Watch, Write
    from . import ground
    from .asking import Statement
    from .committing import Committed
    from .connection import Connection

T = TypeVar("T")
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
        self._bells = DoorBells(f"{self.path}.bells")
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
            sqlite.searching.help_along(here.index, self._ask)
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
        return sqlite.gathering.Gathering(self._bells, self._local, self._grasp, joined=joined)

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
            return self._with_seen(self._sound(rows.found_apart, sqlite.asking.find_apart(query)[0]), query)
        fresh = sqlite.asking.find_fresh(query)
        if fresh is not None:
            with suppress(rows.NotFresh):
                found = self._sound(partial(rows.found_fresh, query.mailbox or ""), fresh)
                return sorted(found, key=attrgetter("delivery.number")) if query.order == "age" else found
        asked = [sqlite.asking.find(query)]
        if query.after is not None:
            asked.append(sqlite.asking.find_late(query))
        found = self._sound(rows.found, *asked) if query.mailbox is not None else self._find_everywhere(asked)
        if query.after is None:
            return found
        return sorted(found, key=lambda f: f.delivery.arrived or f.delivery.number)[: query.limit]

    def _find_everywhere(self, asked: list[Statement]) -> list[Found]:
        """A letter may lie in thousands of mailboxes: it is read once, not with each of them."""
        bare = [sqlite.asking.bare(one) for one in asked]
        numbers = {row[0] for one in bare for row in self._ask(*one)}
        sql = "SELECT number, sum, body FROM letters WHERE number IN (SELECT value FROM json_each(?))"
        several = self._sound(rows.letter, (sql, [msgspec.json.encode(sorted(numbers)).decode()]))
        letters = {letter.number: letter.message for letter in several}
        found = self._sound(partial(rows.found_among, letters), *bare)
        return [one for one in found if one is not None]

    def offered(self, query: Query, moment: Moment) -> list[Found] | None:
        at = query.mailbox or ""
        held = self._here().names.committed.get(at)
        asked = None if held is None else sqlite.asking.find_offered(query, moment, held[0])
        if asked is None:
            return None if self.overdue(moment, (at,), 1) else self.find(query)
        first = self._sound(rows.found_apart, asked)
        is_late = first[0][2] if first else self.overdue(moment, (at,), 1)
        return None if is_late else self._with_seen(first, query)

    def _with_seen(self, first: list[tuple[Found, bool, bool]], query: Query) -> list[Found]:
        """The index holds read and unread mail apart: the top of each, merged, is far cheaper than one sort."""
        top = [found for found, _, _ in first]
        if first and not first[0][1]:
            return top
        both = [*top, *self._sound(rows.found, sqlite.asking.find_apart(query)[1])]
        apart = {found.delivery.number: found for found in both}  # what was read in between counts once
        return sorted(apart.values(), key=lambda f: (-f.delivery.priority, f.delivery.number))[: query.limit]

    def count(self, query: Query) -> dict[Priority, int]:
        counted = {rows.priority_of(rank): number for rank, number in self._ask(*sqlite.asking.count(query))}
        return dict.fromkeys(Priority, 0) | counted

    def letters(self, query: LetterQuery) -> list[Letter]:
        return self._sound(rows.letter, sqlite.asking.letters(query))

    def count_letters(self, query: LetterQuery) -> int:
        number: int = self._ask(*sqlite.asking.count_letters(query))[0][0]
        return number

    def ids(self, beginning: str, party: str | None, limit: int) -> list[str]:
        return [id for (id,) in self._ask(*sqlite.asking.ids(beginning, party, limit))]

    def search(self, query: SearchQuery, reader: str | None, limit: int) -> list[Letter]:
        self._settle()  # the index looks by itself
        party = None if reader is None else self._numbers((reader,))
        if party == []:
            return []
        search = sqlite.searching.Search(query, reader, None if party is None else party[0])
        return search.find(self._here().index, self._ask, self._sound, limit)

    def keep_index(self) -> int:
        self._settle()
        return sqlite.searching.catch_up(self._here().index, self._ask)

    def threads(self, party: str | None, limit: int) -> list[str]:
        return [thread for thread, _ in self._ask(*sqlite.asking.threads(party, limit))]

    def conversations(self, party: str | None, scope: str | None, limit: int) -> list[str]:
        return [
            sqlite.asking.catch_all(row) for row in self._ask(*sqlite.asking.conversations(party, scope, limit))
        ]

    def overdue(self, moment: Moment, mailboxes: Sequence[str] | None, limit: int) -> list[Found]:
        numbers = None if mailboxes is None else self._numbers(mailboxes)
        if numbers == []:
            return []
        keys = dict.fromkeys(self._ask(*sqlite.asking.overdue(moment, numbers, limit)))
        if not keys:
            return []
        return self._sound(rows.found, *((sqlite.asking.ONE, list(key)) for key in keys))

    def next_timer(self, moment: Moment, mailboxes: Sequence[str]) -> float | None:
        numbers = self._numbers(mailboxes)
        if not numbers:
            return None
        lease, *walls = self._ask(*sqlite.asking.next_timer(moment, numbers))[0]
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
        return self._names(sqlite.counting.KNOWN)

    def is_known(self, name: str) -> bool:
        return self._ask(sqlite.counting.IS_KNOWN, [fold(name)]) != []

    def strangers(self) -> dict[str, int]:
        return dict(self._ask(sqlite.counting.STRANGERS, []))

    def outgoing(self, due: datetime | None, most: datetime | None = None) -> dict[str, int]:
        return dict(self._ask(*sqlite.counting.outgoing(due, most)))

    def waiting(self, mailbox: str, sender: str) -> tuple[int, int]:
        asked = [place_of(mailbox, self._mailbox(mailbox)), self._mailbox(sender)]
        total, own = self._ask(WAITING, asked)[0]
        return total, own

    def tally(self, mailbox: str | None) -> list[Tally]:
        return sqlite.counting.tallies(self._ask(*sqlite.counting.tally(mailbox)))

    def count_deliveries(self) -> int:
        number: int = self._ask(sqlite.counting.DELIVERIES, [])[0][0]
        return number

    def traffic(self, since: Cursor, after: datetime) -> Traffic:
        self.changes(since, 1)  # can it still be told?
        until = self.cursor()
        return sqlite.counting.traffic_of(
            until, *(self._ask(*q) for q in sqlite.counting.traffic(since, until, after))
        )

    def _mailbox(self, name: str) -> int:
        """Its number; -1 if there is none."""
        found = self._ask(_MAILBOX, [fold(name)])
        return found[0][0] if found else -1

    # -- care

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
        self._settle()
        here = self._here()
        return sqlite.examining.examine_room(
            here, self.path, durable=self._durable, repair=repair, full=full, progress=progress
        )

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        self._settle()
        source = self._connect()
        try:
            with translated(self.path):
                return sqlite.backup.copy_room(
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
        found = self._ask(sqlite.asking.CHANGES, [since.number, limit])
        trimmed = self._ask("SELECT trimmed FROM room", [])[0][0]  # asked last: no trim in between goes unseen
        try:
            if since.number < trimmed:
                raise Resync
            changes = [rows.change(row) for row in found]
        except rows.UNLIKELY as broken:
            raise self._damaged(broken) from None
        last = found[-1][0] if found else now.number
        return changes, model.change.Cursor(now.store, now.epoch, last)

    def cursor(self) -> Cursor:
        name, epoch, following = self._ask(f"SELECT name, epoch, ({NEXT_NUMBER}) FROM room", [])[0]
        return model.change.Cursor(name, epoch, following - 1)

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
