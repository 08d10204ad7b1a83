"""The SQL of each query, for both engines, put together from fixed pieces; every value is bound.

`tests/contract/meaning.py` says what each means. What SQLite and PostgreSQL write differently is overridden in
`sqlite/queries.py` and `postgres/queries.py`; the rest stands here once. `main` is the room's schema: that is its
name in SQLite, and for PostgreSQL the name of the schema takes its place.

Most queries read deliveries first, by one of their small partial indexes, and then the letters. Counts never
read letters. States and ranks are literals in the SQL, because an engine uses a partial index only if it sees the
literal.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import Damaged, Unreadable
from ..model.delivery import UNSENT, State
from ..model.message import DEFAULT_SCOPE, Priority
from ..model.names import fold
from ..model.query import Name, Query, Tally
from ..model.record import Record
from ..model.thread import general_scope
from .protocol import Overdue, Trimmed
from .sqlite import rows
from .sqlite.rows import DELIVERY, RANK, SALVAGE, STATE_NUMBER, micros, priority_of, time_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from ..model.query import Found, Group, LetterQuery, Moment
    from ..model.search import SearchQuery
    from .protocol import Letter
    from .sqlite.rows import Row
    from .sqlite.search import Index

T = TypeVar("T")

Statement = tuple[str, list[Any]]
Piece = tuple[str, list[Any]]  # a condition, and the values that it binds

FAR = 2**62  # above every number, and more than any limit
# CROSS JOIN keeps the order in SQLite: deliveries first, by one of their small indexes.
_DELIVERIES = "FROM main.deliveries d"
FROM = (
    f"{_DELIVERIES} CROSS JOIN main.letters l CROSS JOIN main.mailboxes m"
    " WHERE l.number = d.number AND m.id = d.mailbox"
)
LETTERS_AT = f"SELECT {DELIVERY}, l.sum, l.body {FROM}"
# Yields nothing, by one index, where no delivery in the whole room came so late.
_IF_LATE = "FROM (SELECT 1 FROM main.deliveries WHERE arrived > ? LIMIT 1) AS late CROSS JOIN"
_LATE_AT = LETTERS_AT.replace("FROM", _IF_LATE, 1)
LETTERS = "SELECT l.number, l.sum, l.body FROM main.letters l"
_MAILBOX = "(SELECT id FROM main.mailboxes WHERE folded = ? AND name = ?)"
_THREAD = (
    "IN (SELECT number FROM main.letters WHERE thread = ? UNION"
    " SELECT number FROM main.letters WHERE id = ? AND thread IS NULL)"
)
SHOWN = f"NOT (d.state = 4 AND d.seen = 0 AND coalesce(d.reason, '') = '{UNSENT}')"
_RECEIVED = (
    "EXISTS (SELECT 1 FROM main.deliveries d WHERE d.number = l.number"
    f" AND d.mailbox = {_MAILBOX} AND d.state > 0 AND {SHOWN})"
)
ORDER = {
    "inbox": "d.seen, d.rank, d.number",
    "priority": "d.rank, d.number",
    "age": "d.number",
    "newest": "d.number DESC",
}
# What came after a number: it reads two primary keys from there on, and names each mailbox once.
SINCE = {
    "pair": """
SELECT s.name, m.name, g.many FROM (SELECT l.sender AS sender, d.mailbox AS mailbox, count(*) AS many
FROM main.letters l CROSS JOIN main.deliveries d
WHERE d.number = l.number AND l.number > ? AND l.number < ? GROUP BY 1, 2) g
JOIN main.mailboxes s ON s.id = g.sender JOIN main.mailboxes m ON m.id = g.mailbox""",
    "moved": """
SELECT m.name, g.state, g.many FROM (SELECT mailbox, state, count(*) AS many
FROM main.changes WHERE number > ? AND number < ? AND what = 'moved' GROUP BY 1, 2) g
JOIN main.mailboxes m ON m.id = g.mailbox""",
}
# Changes of a letter that is deleted by now are left out.
_CHANGES = """
SELECT * FROM (SELECT number, 'posted' AS what, id, NULL AS name, CAST(NULL AS smallint) AS state, NULL AS kind,
                      NULL AS key FROM main.letters WHERE number > ? ORDER BY number LIMIT ?) AS posted
UNION ALL
SELECT * FROM (SELECT c.number, c.what, l.id, m.name, c.state, c.kind, c.key FROM main.changes c
               LEFT JOIN main.letters l ON l.number = c.letter LEFT JOIN main.mailboxes m ON m.id = c.mailbox
               WHERE c.number > ? AND (c.letter IS NULL OR l.id IS NOT NULL) ORDER BY c.number LIMIT ?) AS others
ORDER BY 1 LIMIT ?"""
# All that is meant by a name: the mailbox with this name or former name, however it is spelt. It binds it twice.
MEANT = """
SELECT id FROM main.mailboxes WHERE folded = ? UNION ALL SELECT mailbox FROM main.aliases WHERE folded = ?"""
_NAMES = "SELECT name, known FROM main.mailboxes"
# A letter by its key, or, if it was sent without one, by its id.
_BY_KEY = """
SELECT l.number, l.sum, l.body FROM main.mailboxes m JOIN main.letters l ON l.sender = m.id
WHERE m.folded = ? AND m.name = ? AND l.key = ?
UNION ALL
SELECT l.number, l.sum, l.body FROM main.letters l JOIN main.mailboxes m ON m.id = l.sender
WHERE l.id = ? AND l.key IS NULL AND m.name = ?"""

# The newest letter of each conversation or thread, in `letters l`: a column that has an index, the letters in that
# index, and those of its kind without a value.
_LOOSE = "l.conversation IS NULL"
_APART = {
    "thread": (("thread", "l.thread IS NOT NULL", ()),),
    # Without a conversation of its own, a letter belongs to the catch-all conversation of its scope.
    "conversation": (
        ("conversation", "l.conversation IS NOT NULL", ()),
        ("scope", f"{_LOOSE} AND l.scope IS NOT NULL", (f"{_LOOSE} AND l.scope IS NULL",)),
    ),
}

_NOT_DONE = (0, 1, 2, 4)
# One statement for all states, so that the counts are of one moment.
_GROUP = """
SELECT g.state, m.name, g.seen, g.rank, g.many, g.oldest,
       (SELECT delivered_at FROM main.deliveries WHERE number = g.oldest AND mailbox = g.mailbox)
FROM (SELECT {state} AS state, mailbox, {seen} AS seen, {rank} AS rank, count(*) AS many, min(number) AS oldest
      FROM main.deliveries WHERE state = {state}{at} GROUP BY mailbox{grouped}) g
JOIN main.mailboxes m ON m.id = g.mailbox"""


def by_key(sender: str, key: str) -> Statement:
    return _BY_KEY, [fold(sender), sender, key, key, sender]


class Queries:
    """The queries of one engine."""

    greatest: str  # of several numbers
    has_tag: str  # the condition that a letter has a tag
    lease_over: str  # the condition that a lease has run out

    # -- what an engine writes in its own way

    def among(self, column: str, values: Sequence[Any]) -> Piece:
        """Return the condition that a column has one of these values."""
        raise NotImplementedError

    def at_mailboxes(self, mailboxes: Sequence[Any]) -> Piece:
        """Return the condition that a delivery is at one of these mailboxes."""
        raise NotImplementedError

    def each(self, keys: Sequence[tuple[int, int]]) -> Sequence[Statement]:
        """Return the queries for the deliveries with these keys."""
        raise NotImplementedError

    # -- deliveries

    def find(self, query: Query) -> Statement:
        where, values = self._conditions(query)
        limit, more = _limit(query.limit)
        return f"{LETTERS_AT}{where} ORDER BY {ORDER[query.order]}{limit}", values + more

    def find_offered(self, query: Query) -> Statement:
        """Return the query for one mailbox's mail in order of priority.

        The index holds unread mail and mail that was read apart: the top of each, merged, is far cheaper than
        one sort.
        """
        claim = usual_claim(query)
        if claim is not None:
            sql = self._claim_sql  # kept, because making it takes longer than running it
            mailbox, offered, due, most = claim
            now = micros(offered)
            values: list[Any] = [fold(mailbox), mailbox, now, now if due is offered else micros(due), micros(most)]
        else:
            where, values = self._conditions(query)
            sql = _merged(where)
        return sql, [*values, query.limit, *values, query.limit, query.limit]

    @cached_property
    def _claim_sql(self) -> str:
        any_time = time_of(0)
        claim = replace(_CLAIM, mailbox="", offered_at=any_time, due_at=any_time, due_most=any_time)
        return _merged(self._conditions(claim)[0])

    def find_late(self, query: Query) -> Statement:
        """Return the query for letters accepted before `query.after` that were delivered only after it."""
        where, values = self._conditions(replace(query, after=None))
        limit, more = _limit(query.limit)
        late = f" AND d.arrived > ? ORDER BY d.arrived{limit}"
        return f"{_LATE_AT}{where}{late}", [query.after, *values, query.after, *more]

    def count(self, query: Query | LetterQuery, by: Group) -> Statement:
        """Return the query for one row of (count), or for rows of (group, count)."""
        if not isinstance(query, Query):
            return (SINCE[by], [query.after, query.before or FAR]) if by in SINCE else self.count_letters(query)
        if by == "state":
            return self.tally(query.mailbox)
        where, values = self._conditions(query)
        # Without a condition on letters the index alone answers; without any, SQLite counts the entries of an
        # index: 8 ms for a million.
        alone = f"{_DELIVERIES} WHERE {where[5:]}" if where else _DELIVERIES
        source = f"{FROM}{where}" if "l." in where else alone
        if by == "all":
            return f"SELECT count(*) {source}", values
        if by == "priority":
            return f"SELECT d.rank, count(*) {source} GROUP BY d.rank", values
        name = "SELECT name FROM main.mailboxes WHERE id = d.mailbox"
        if by == "reason":
            return f"SELECT ({name}), coalesce(d.reason, ''), count(*) {source} GROUP BY d.mailbox, 2", values
        return f"SELECT ({name}), count(*) {source} GROUP BY d.mailbox ORDER BY min(d.number), 1", values

    def tally(self, mailbox: str | None) -> Statement:
        """Return the query for rows of (state, mailbox, seen, rank, count, first number, its delivery)."""
        at = "" if mailbox is None else f" AND mailbox = {_MAILBOX}"
        values = [] if mailbox is None else [fold(mailbox), mailbox]
        pieces = []
        for state in _NOT_DONE:
            seen, rank, grouped = ("seen", "rank", ", seen, rank") if state == 1 else (0, 0, "")
            pieces.append(_GROUP.format(state=state, seen=seen, rank=rank, at=at, grouped=grouped))
        return " UNION ALL ".join(pieces), values * len(_NOT_DONE)

    # -- time

    def overdue(self, moment: Moment, mailboxes: Sequence[Any] | None, limit: int) -> Statement:
        """Return the query for rows of (number, mailbox): leases run out, mail now due, mail expired.

        Each comes from its own small index, and a key may come twice. It runs at every claim, so it must cost
        nothing when nothing is overdue.
        """
        at, values = ("", []) if mailboxes is None else self.at_mailboxes(mailboxes)
        one = "SELECT number, mailbox FROM main.deliveries WHERE"
        sql = (
            f"{one} state = 2 AND {self.lease_over}{at} UNION ALL {one} state = 0 AND due_at <= ?{at} UNION ALL"
            f" {one} state < 2 AND expires_at IS NOT NULL AND expires_at <= ?{at} LIMIT ?"
        )
        now = micros(moment.wall)
        return sql, [moment.steady, *values, now, *values, now, *values, limit]

    def next_timer(self, moment: Moment, mailboxes: Sequence[Any] | None, ahead: float) -> Statement:
        """Return the query for one row: the earliest lease end (uptime), due and expiry times (wall), after now.

        Only those at most `ahead` seconds away: the index of expiry times is of the whole room.
        """
        at, values = ("", []) if mailboxes is None else self.at_mailboxes(mailboxes)
        earliest = f"(SELECT min({{0}}) FROM main.deliveries WHERE {{1}} AND {{0}} > ? AND {{0}} <= ?{at})"
        pieces = (
            earliest.format("lease_until", "state = 2"),
            earliest.format("due_at", "state = 0"),
            earliest.format("due_at", "state = 1 AND due_at IS NOT NULL"),
            earliest.format("expires_at", "state < 2 AND expires_at IS NOT NULL"),
        )
        now = micros(moment.wall)
        walls = [now, now + int(ahead * 1_000_000), *values]
        sql = f"SELECT {', '.join(pieces)}"
        return sql, [moment.steady, moment.steady + ahead, *values, *walls, *walls, *walls]

    # -- letters

    def get(self, ids: Sequence[str]) -> Statement:
        piece, values = self.among("l.id", ids)
        return f"{LETTERS} WHERE {piece}", values

    def by_number(self, numbers: Sequence[int]) -> Statement:
        """Return the query for the letters with these numbers, the newest first."""
        piece, values = self.among("l.number", numbers)
        return f"{LETTERS} WHERE {piece} ORDER BY l.number DESC", values

    def letters(self, query: LetterQuery, among: Sequence[int] | None = None) -> Statement:
        """Return the query for letters, of these numbers if any are given."""
        if query.key is not None:
            return by_key(query.sender or "", query.key)
        where, values = self.letter_conditions(query, among)
        order = {"age": "l.number", "newest": "l.number DESC", "id": "l.id"}[query.order]
        more = [FAR if query.limit is None else query.limit, query.skip]
        return f"{LETTERS} WHERE {where[5:] or 'true'} ORDER BY {order} LIMIT ? OFFSET ?", values + more

    def count_letters(self, query: LetterQuery, among: Sequence[int] | None = None) -> Statement:
        where, values = self.letter_conditions(query, among)
        return f"SELECT count(*) FROM main.letters l{f' WHERE {where[5:]}' if where else ''}", values

    def steps(self, query: LetterQuery) -> Statement:
        """Return the query for the number of the newest letter of each conversation or thread, as `newest`.

        It steps from one to the next in their index.
        """
        where, values = self.letter_conditions(query)
        last = f"{where} ORDER BY l.number DESC LIMIT 1"
        newest = f"(SELECT l.number FROM main.letters l WHERE {{}}{last}) AS newest"
        steps, found, uses = [], [], 0
        for column, present, alone in _APART[query.newest_of]:
            first = f"SELECT min(l.{column}) AS at FROM main.letters l WHERE {present}"
            following = f"SELECT (SELECT min(l.{column}) FROM main.letters l WHERE {present} AND l.{column} > at)"
            steps.append(f"by_{column} AS ({first} UNION ALL {following} FROM by_{column} WHERE at IS NOT NULL)")
            one = f"{present} AND l.{column} = at"
            found.append(f"SELECT {newest.format(one)} FROM by_{column} WHERE at IS NOT NULL")
            found += [f"SELECT {newest.format(other)}" for other in alone]
            uses += 1 + len(alone)
        return f"WITH RECURSIVE {', '.join(steps)} {' UNION ALL '.join(found)}", values * uses

    # -- names, records and changes

    def names(self, name: str | None) -> Statement:
        if name is None:
            return f"{_NAMES} ORDER BY name", []
        return f"{_NAMES} WHERE id = ({MEANT})", [fold(name)] * 2

    def records(self, kind: str, key: str | None, *, prefix: bool, values: bool) -> Statement:
        if prefix:
            where, bound = "kind >= ? AND kind < ?", [kind, kind[:-1] + chr(ord(kind[-1]) + 1)]
        elif key is None:
            where, bound = "kind = ?", [kind]
        else:
            where, bound = "kind = ? AND key = ?", [kind, key]
        value = "value" if values else "'null'"
        return f"SELECT kind, key, revision, {value} FROM main.records WHERE {where} ORDER BY kind, key", bound

    def changes(self, after: int, limit: int) -> Statement:
        return _CHANGES, [after, limit, after, limit, limit]

    # -- conditions

    def _conditions(self, query: Query) -> Statement:
        return _joined(self.pieces(query))

    def letter_conditions(self, query: LetterQuery, among: Sequence[int] | None = None) -> Statement:
        pieces = list(self._letter_pieces(query))
        if among is not None:
            pieces.append(self.among("l.number", among))
        return _joined(pieces)

    def pieces(self, query: Query) -> Iterator[Piece]:  # noqa: C901 - one field after the other
        if query.mailbox is not None:
            yield f"d.mailbox = {_MAILBOX}", [fold(query.mailbox), query.mailbox]
        if len(query.states) == 1:
            yield f"d.state = {STATE_NUMBER[query.states[0]]}", []
        elif query.states:
            yield f"d.state IN ({', '.join(str(STATE_NUMBER[state]) for state in query.states)})", []
        if query.message_ids:
            piece, ids = self.among("id", query.message_ids)
            yield f"d.number IN (SELECT number FROM main.letters WHERE {piece})", ids
        if query.unread_only:
            yield "d.seen = 0", []
        if query.shown_only:
            yield SHOWN, []
        if query.min_priority > 1 and query.after is not None:  # one by one: so the index serves `after`
            yield f"d.rank IN ({', '.join(map(str, range(RANK[query.min_priority] + 1)))})", []
        elif query.min_priority > 1:
            yield "d.rank <= ?", [RANK[query.min_priority]]
        # Mail that was delivered later than accepted has `arrived`, and `find_late` finds it by that number.
        if query.after is not None:
            yield "d.arrived IS NULL AND d.number > ?", [query.after]
        if query.until is not None:
            yield "coalesce(d.arrived, d.number) <= ?", [query.until]
        if query.thread is not None:
            yield f"d.number {_THREAD}", [query.thread, query.thread]
        yield from self._pieces_of_letter(query)
        yield from self._pieces_of_time(query)

    def pieces_of_kinds(self, query: Query) -> Piece:
        return self.among("coalesce(l.kind, 'message')", query.kinds)

    def _pieces_of_letter(self, query: Query) -> Iterator[Piece]:
        if query.kinds:
            yield self.pieces_of_kinds(query)
        if query.sender is not None:
            yield f"l.sender = {_MAILBOX}", [fold(query.sender), query.sender]
        if query.thread_tag is not None:
            yield "l.thread_tag = ?", [query.thread_tag]
        if query.tag is not None:
            yield self.has_tag, [query.tag]
        if query.since is not None:
            yield "l.created_at >= ?", [micros(query.since)]
        if query.sent_before is not None:
            yield "l.created_at < ?", [micros(query.sent_before)]
        yield from _scope(query.scope)

    def _pieces_of_time(self, query: Query) -> Iterator[Piece]:
        if query.offered_at is not None and query.states == (State.UNREAD,) and is_of_state(query):
            # Few of a room expire, and these have an index: the deliveries themselves need not be read.
            expired = "SELECT number, mailbox FROM main.deliveries WHERE state < 2 AND expires_at <= ?"
            yield f"(d.number, d.mailbox) NOT IN ({expired})", [micros(query.offered_at)]
        elif query.offered_at is not None:
            yield "(d.expires_at IS NULL OR d.expires_at > ?)", [micros(query.offered_at)]
        if query.due_at is not None:
            # A time further ahead than any retry delay was written under a wrong clock: such a letter is offered
            # now (G7).
            late = "" if query.due_most is None else " OR d.due_at > ? AND d.attempts > 0"
            values = [micros(time) for time in (query.due_at, query.due_most) if time is not None]
            yield f"(d.due_at IS NULL OR d.due_at <= ?{late})", values
        if query.reason is not None:
            yield "coalesce(d.reason, '') = ?", [query.reason]
        if query.dead_by is not None:
            yield "d.dead_at <= ?", [micros(query.dead_by)]
        if query.unarchived_before is not None:
            yield "d.archived_at IS NULL AND d.acked_at < ?", [micros(query.unarchived_before)]

    def _letter_pieces(self, query: LetterQuery) -> Iterator[Piece]:  # noqa: C901 - one field after the other
        yield from self._bound(query)
        if query.thread is not None:
            yield f"l.number {_THREAD}", [query.thread, query.thread]
        if query.thread_tag is not None:
            yield "l.thread_tag = ?", [query.thread_tag]
        if query.conversation is not None:
            scope = general_scope(query.conversation)
            yield ("l.conversation = ?", [query.conversation]) if scope is None else (_LOOSE, [])
            yield from _scope(scope)
        yield from _scope(query.scope)
        if query.party is not None:
            yield f"(l.sender = {_MAILBOX} OR {_RECEIVED})", [fold(query.party), query.party] * 2
        if query.sender is not None:
            yield f"l.sender = {_MAILBOX}", [fold(query.sender), query.sender]
        if query.replies_in is not None:
            yield "l.thread = ?", [query.replies_in]
        if query.received_by is not None:
            yield _RECEIVED, [fold(query.received_by), query.received_by]
        if query.to_several:
            # A second delivery is enough: no need to count them.
            yield "EXISTS (SELECT 1 FROM main.deliveries d WHERE d.number = l.number LIMIT 1 OFFSET 1)", []
        if query.before is not None and not query.newest_of:
            yield "l.number < ?", [query.before]
        if query.beginning:  # all characters of an id come before DEL
            yield "l.id >= ? AND l.id < ?", [query.beginning, f"{query.beginning}\x7f"]
        if query.spared:
            piece, ids = self.among("l.id", query.spared)
            yield f"NOT ({piece})", ids
        if query.settled_before is not None:
            last = f"{self.greatest}(coalesce(d.acked_at, 0), coalesce(d.dead_at, 0))"
            open_or_later = f"d.number = l.number AND (d.state < 3 OR {last} >= ?)"
            yield (
                f"NOT EXISTS (SELECT 1 FROM main.deliveries d WHERE {open_or_later})",
                [micros(query.settled_before)],
            )

    def _bound(self, query: LetterQuery) -> Iterator[Piece]:
        """Yield the number after which letters are read: one bound, so that the index ends the search there."""
        if query.newest is not None:
            column = "conversation" if query.conversation else "thread"
            place = query.conversation or query.replies_in
            newest = f"SELECT number FROM main.letters WHERE {column} = ? ORDER BY number DESC LIMIT 1 OFFSET ?"
            bound = [query.after, place, query.newest]
            yield f"l.number > {self.greatest}(?, coalesce(({newest}), 0))", bound
        elif query.after:
            yield "l.number > ?", [query.after]


# For the whole room: the small index of a state.
STATE_INDEX = {
    State.QUEUED: "deliveries_queued",
    State.UNREAD: "deliveries_unread",
    State.CLAIMED: "deliveries_held",
    State.DEAD: "deliveries_dead",
}


def is_of_state(query: Query) -> bool:
    """Return whether it is about the whole room's mail in one state that has an index."""
    has_index = len(query.states) == 1 and query.states[0] in STATE_INDEX
    return has_index and query.mailbox is None and not query.message_ids


def usual_claim(query: Query) -> tuple[str, datetime, datetime, datetime] | None:
    """Return the mailbox and the times (offered, due, most) of what a claim usually asks for; None for others."""
    mailbox, offered, due, most = query.mailbox, query.offered_at, query.due_at, query.due_most
    if mailbox is None or offered is None or due is None or most is None:
        return None
    rest = replace(query, mailbox=None, offered_at=None, due_at=None, due_most=None, limit=None)
    return (mailbox, offered, due, most) if rest == _CLAIM else None


_CLAIM = Query(states=(State.UNREAD,), order="priority")


def _merged(where: str) -> str:
    top = f"SELECT * FROM ({LETTERS_AT}{where} AND d.seen = {{}} ORDER BY {ORDER['priority']} LIMIT ?) AS {{}}"
    return f"{top.format(0, 'fresh')} UNION ALL {top.format(1, 'seen')} ORDER BY rank, number LIMIT ?"


def _joined(pieces: Iterable[Piece]) -> Statement:
    """Return conditions, each after an AND, and what they bind."""
    held = list(pieces)
    return "".join(f" AND {piece}" for piece, _ in held), [value for _, values in held for value in values]


def _scope(scope: str | None) -> Iterator[Piece]:
    if scope == DEFAULT_SCOPE:
        yield "l.scope IS NULL", []
    elif scope is not None:
        yield "l.scope = ?", [scope]


def _limit(limit: int | None) -> Piece:
    return ("", []) if limit is None else (" LIMIT ?", [limit])


def _tallies(found: Iterable[Row]) -> list[Tally]:
    by_mailbox: dict[str, list[Row]] = {}
    for row in found:
        by_mailbox.setdefault(row[1], []).append(row)
    if not all(isinstance(name, str) for name in by_mailbox):
        raise Damaged("the name of a mailbox is damaged", hint=SALVAGE)
    return [_tally(mailbox, by_mailbox[mailbox]) for mailbox in sorted(by_mailbox)]


def _tally(mailbox: str, found: list[Row]) -> Tally:
    unread = [row for row in found if row[0] == 1 and not row[2]]
    counted = dict.fromkeys(Priority, 0)
    counted |= {priority_of(row[3]): row[4] for row in unread}
    many = {state: sum(row[4] for row in found if row[0] == state) for state in _NOT_DONE}
    return Tally(
        mailbox=mailbox,
        unread=counted,
        seen=many[1] - sum(counted.values()),
        claimed=many[2],
        queued=many[0],
        dead=many[4],
        oldest_unread_at=_oldest(unread),
        oldest_seen_at=_oldest([row for row in found if row[0] == 1 and row[2]]),
        oldest_claimed_at=_oldest([row for row in found if row[0] == 2]),
    )


def _oldest(found: list[Row]) -> datetime | None:
    """Return when the letter that was accepted first was delivered."""
    delivered = min(found, key=lambda row: row[5])[6] if found else None
    return None if delivered is None else time_of(delivered)


# -- what a store makes of the rows


class QueryStore:
    """The queries of a store on an SQL engine, as far as the engine makes no difference."""

    queries: Queries

    def query(self, sql: str, values: list[Any]) -> list[Row]:
        """Return all rows at once."""
        raise NotImplementedError

    def set_aside(self, number: int, damage: Unreadable) -> None:
        """Move a damaged letter into quarantine."""
        raise NotImplementedError

    def damaged(self, why: Exception) -> Damaged:
        """Return the error for a damaged room."""
        raise NotImplementedError

    def mailbox_ids(self, mailboxes: Sequence[str]) -> Sequence[int | None]:
        """Return the ids of those mailboxes that exist."""
        raise NotImplementedError

    def places(self, mailboxes: Sequence[str]) -> Sequence[Any]:
        """Return those mailboxes that exist, as the engine's queries name them."""
        return self.mailbox_ids(mailboxes)

    def search_index(self) -> Index:
        """Return the text index."""
        raise NotImplementedError

    def trim_changes(self, keep: int) -> int:
        """Drop all but the newest changes, and return how many were dropped."""
        raise NotImplementedError

    def fetch(self, make: Callable[[Row], T], *statements: Statement) -> list[T]:
        """Return the rows as values. Damaged letters go into quarantine, and the statements run again."""
        tried: set[int] = set()
        while True:
            values_made, damaged = [], []
            for sql, values in statements:
                for row in self.query(sql, values):
                    try:
                        values_made.append(make(row))
                    except Unreadable as damage:
                        damaged.append((row[0], damage))
            if not damaged:
                return values_made
            for number, why in damaged:
                if number in tried:  # quarantine did not help: the index that finds it is damaged too
                    raise self.damaged(why)
                self.set_aside(number, why)
            tried |= {number for number, _ in damaged}

    def get(self, ids: Sequence[str]) -> dict[str, Letter]:
        return {letter.message.id: letter for letter in self.fetch(rows.letter, self.queries.get(ids))}

    def find(self, query: Query) -> list[Found]:
        if query.order == "priority" and query.mailbox is not None and query.limit is not None:
            return self.fetch(rows.found, self.queries.find_offered(query))
        if query.after is None:
            return self.find_all(query, [self.queries.find(query)])
        found = self.find_all(query, [self.queries.find(query), self.queries.find_late(query)])
        # Mail sent for a later time counts by the number of its arrival, else a cursor would pass it by.
        return sorted(found, key=lambda f: f.delivery.arrived or f.delivery.number)[: query.limit]

    def find_all(self, query: Query, request: list[Statement]) -> list[Found]:  # noqa: ARG002 - for one that may differ
        """Return the deliveries of some queries."""
        return self.fetch(rows.found, *request)

    def count(self, query: Any, by: Group = "priority") -> Any:
        found = self.query(*self.queries.count(query, by))
        match by:
            case "all":
                counted: Any = found[0][0]
            case "state":
                counted = _tallies(found)
            case "priority":
                counted = dict.fromkeys(Priority, 0) | {priority_of(rank): many for rank, many in found}
            case "moved":
                counted = {(mailbox, rows.STATES[state]): many for mailbox, state, many in found}
            case "pair" | "reason":
                counted = {(one, other): many for one, other, many in found}
            case _:
                counted = dict(found)
        return counted

    def overdue(
        self, moment: Moment, mailboxes: Sequence[str] | None, limit: int, *, ahead: float = 0.0
    ) -> Overdue:
        places = None if mailboxes is None else self.places(mailboxes)
        if places is not None and not places:
            return Overdue([], None)
        keys = dict.fromkeys(self.query(*self.queries.overdue(moment, places, limit)))
        found = self.fetch(rows.found, *self.queries.each([*keys])) if keys else []
        if not ahead:
            return Overdue(found, None)
        lease, *walls = self.query(*self.queries.next_timer(moment, places, ahead))[0]
        waits = [] if lease is None else [lease - moment.steady]
        now = micros(moment.wall)
        waits += [(wall - now) / 1_000_000 for wall in walls if wall is not None]
        return Overdue(found, min(waits, default=None))

    def records(
        self, kind: str, key: str | None = None, *, prefix: bool = False, values: bool = True
    ) -> list[Record]:
        found = self.query(*self.queries.records(kind, key, prefix=prefix, values=values))
        try:
            return [Record(kind=kind, key=k, revision=r, value=msgspec.json.decode(v)) for kind, k, r, v in found]
        except (msgspec.DecodeError, ValueError, TypeError) as broken:
            raise self.damaged(broken) from None

    def search(self, query: SearchQuery, reader: str | None, limit: int) -> list[Letter]:
        from .sqlite.search import Search  # noqa: PLC0415 - most processes do not search

        party = [None] if reader is None else self.mailbox_ids([reader])
        if not party:
            return []
        index = self.search_index()
        search = Search(query, reader, party[0], self.queries, index.expression(query, party[0]))
        return search.find(index, self.query, self.fetch, limit)

    def trim(self, keep: int | None = None) -> Trimmed:
        from .sqlite.search import catch_up  # noqa: PLC0415 - as above

        dropped = 0 if keep is None else self.trim_changes(max(keep, 1))
        return Trimmed(dropped, catch_up(self.search_index(), self.query))

    def quarantined(self) -> list[str]:
        return [id for (id,) in self.query("SELECT id FROM main.quarantine ORDER BY number", [])]

    def names(self, name: str | None = None) -> list[Name]:
        found = self.query(*self.queries.names(name))
        if not all(isinstance(mailbox, str) for mailbox, _ in found):
            raise self.damaged(TypeError("a mailbox has lost its name"))
        return [Name(mailbox, bool(known)) for mailbox, known in found]
