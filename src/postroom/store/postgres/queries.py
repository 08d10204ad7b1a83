"""The SQL of each query, put together from fixed pieces; every value is bound.

`tests/contract/meaning.py` says what each means. States and ranks are literals, so that the server sees which
partial index serves; `ROOM` stands for the room's schema.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...model.delivery import UNSENT, State
from ...model.message import DEFAULT_SCOPE
from ...model.names import fold
from ...model.query import Query
from ...model.thread import general_scope
from ..sqlite.rows import RANK, STATE_NUMBER, micros, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ...model.query import Group, LetterQuery, Moment

Statement = tuple[str, Any]  # with the values that it binds, by place or by name
Piece = tuple[str, list[Any]]

DELIVERY = (
    "d.number, m.name, d.kind, d.state, d.rank, d.revision, d.attempts, d.delivered_at, d.read_at, d.acked_at,"
    " d.dead_at, d.due_at, d.archived_at, d.expires_at, d.lease_token, d.lease_holder, d.lease_until,"
    " d.lease_boot, d.reason, d.history, d.arrived"
)
_FROM = (
    "FROM ROOM.deliveries d JOIN ROOM.letters l ON l.number = d.number JOIN ROOM.mailboxes m ON m.id = d.mailbox"
)
_LETTERS_AT = f"SELECT {DELIVERY}, l.sum, l.body {_FROM}"
_LETTERS = "SELECT l.number, l.sum, l.body FROM ROOM.letters l"
_MAILBOX = "(SELECT id FROM ROOM.mailboxes WHERE folded = %s AND name = %s)"
_THREAD = (
    "IN (SELECT number FROM ROOM.letters WHERE thread = %s UNION"
    " SELECT number FROM ROOM.letters WHERE id = %s AND thread IS NULL)"
)
SHOWN = f"NOT (d.state = 4 AND d.seen = 0 AND coalesce(d.reason, '') = '{UNSENT}')"
_RECEIVED = (
    "EXISTS (SELECT FROM ROOM.deliveries d WHERE d.number = l.number"
    f" AND d.mailbox = {_MAILBOX} AND d.state > 0 AND {SHOWN})"
)
_ORDER = {
    "inbox": "d.seen, d.rank, d.number",
    "priority": "d.rank, d.number",
    "age": "d.number",
    "newest": "d.number DESC",
}
# All that is meant by a name: the mailbox with this name or former name, however it is spelt.
MEANT = """
SELECT id FROM ROOM.mailboxes WHERE folded = %(name)s
UNION ALL SELECT mailbox FROM ROOM.aliases WHERE folded = %(name)s"""
NAMES = "SELECT name, known FROM ROOM.mailboxes ORDER BY name"
NAMED = f"SELECT name, known FROM ROOM.mailboxes WHERE id = ({MEANT})"
GET = f"{_LETTERS} WHERE l.id = ANY (%s)"
BY_NUMBER = f"{_LETTERS} WHERE l.number = ANY (%s) ORDER BY l.number DESC"
RECORDS = "SELECT kind, key, revision, {} FROM ROOM.records WHERE {} ORDER BY kind, key"
# Without the token the server has crashed since, or is another one.
CURSOR = """
SELECT name, epoch, (SELECT token FROM ROOM.alive WHERE home = tableoid), ROOM.next_number() - 1, trimmed
FROM ROOM.room"""
# Changes of a letter that is deleted by now are left out.
CHANGES = """
SELECT * FROM (
    (SELECT number, 'posted' AS what, id, NULL AS name, NULL::smallint AS state, NULL AS kind, NULL AS key
     FROM ROOM.letters WHERE number > %(after)s ORDER BY number LIMIT %(limit)s)
    UNION ALL
    (SELECT c.number, c.what, l.id, m.name, c.state, c.kind, c.key FROM ROOM.changes c
     LEFT JOIN ROOM.letters l ON l.number = c.letter LEFT JOIN ROOM.mailboxes m ON m.id = c.mailbox
     WHERE c.number > %(after)s AND (c.letter IS NULL OR l.id IS NOT NULL) ORDER BY c.number LIMIT %(limit)s)
) AS changes ORDER BY number LIMIT %(limit)s"""


def find(query: Query) -> Statement:
    where, values = _where(_pieces(query))
    limit, more = _limit(query.limit)
    return f"{_LETTERS_AT}{where} ORDER BY {_ORDER[query.order]}{limit}", values + more


def find_offered(query: Query) -> Statement:
    """Return the query for one mailbox's mail in order of priority.

    The index holds unread mail and mail that was read apart: the top of each, merged, is cheaper than one sort.
    """
    usual = _claim(query.mailbox, query.offered_at, query.due_at, query.due_most, query.limit)
    if query == usual and query.offered_at and query.due_at:
        where = _claim_where(query.due_most is not None)
        times = [micros(at) for at in (query.offered_at, query.due_at, query.due_most) if at is not None]
        values: list[Any] = [fold(query.mailbox or ""), query.mailbox, *times]
    else:
        where, values = _where(_pieces(query))
    top = f"({_LETTERS_AT}{where} AND d.seen = {{}} ORDER BY {_ORDER['priority']} LIMIT %s)"
    sql = f"{top.format(0)} UNION ALL {top.format(1)} ORDER BY rank, number LIMIT %s"
    return sql, [*values, query.limit, *values, query.limit, query.limit]


def _claim(
    mailbox: str | None, offered: datetime | None, due: datetime | None, most: datetime | None, limit: int | None
) -> Query:
    """Return the usual query of a claim."""
    return Query(
        mailbox=mailbox,
        states=(State.UNREAD,),
        offered_at=offered,
        due_at=due,
        due_most=most,
        order="priority",
        limit=limit,
    )


@cache
def _claim_where(has_most: bool) -> str:
    """Return the conditions of the usual claim: making them takes longer than running them."""
    at = time_of(0)
    return _where(_pieces(_claim("", at, at, at if has_most else None, 1)))[0]


TAKE = """
SELECT * FROM ROOM.take(%s, %s::float8, %s::bigint, %s::bigint, %s::int, %s, %s, %s::float8, %s, %s::int,
                        %s::bigint[], %s::bigint, %s)"""


def is_usual_claim(query: Query) -> bool:
    return query.due_most is not None and query == _claim(
        query.mailbox, query.offered_at, query.due_at, query.due_most, query.limit
    )


def find_late(query: Query) -> Statement:
    """Return the query for letters accepted before `query.after` that were delivered only after it."""
    where, values = _where([*_pieces(replace(query, after=None)), ("d.arrived > %s", [query.after])])
    limit, more = _limit(query.limit)
    return f"{_LETTERS_AT}{where} ORDER BY d.arrived{limit}", values + more


def find_each(keys: Sequence[tuple[int, int]]) -> Statement:
    numbers, mailboxes = zip(*keys, strict=True)
    among = "(d.number, d.mailbox) IN (SELECT * FROM unnest(%s::bigint[], %s::int[]))"
    return f"{_LETTERS_AT} WHERE {among}", [list(numbers), list(mailboxes)]


def count(query: Query, by: Group) -> Statement:
    """Return the query for one row of (count), or for rows of (group, count)."""
    where, values = _where(_pieces(query))
    # Without a condition on letters the index alone answers.
    source = _FROM if "l." in where else "FROM ROOM.deliveries d"
    if by == "all":
        return f"SELECT count(*) {source}{where}", values
    if by == "priority":
        return f"SELECT d.rank, count(*) {source}{where} GROUP BY d.rank", values
    if by == "reason":
        counted = (
            f"SELECT d.mailbox, coalesce(d.reason, '') AS reason, count(*) AS many {source}{where} GROUP BY 1, 2"
        )
        return (
            f"SELECT m.name, g.reason, g.many FROM ({counted}) g JOIN ROOM.mailboxes m ON m.id = g.mailbox",
            values,
        )
    grouped = f"SELECT d.mailbox, count(*) AS many, min(d.number) AS oldest {source}{where} GROUP BY d.mailbox"
    return (
        f"SELECT m.name, many FROM ({grouped}) g JOIN ROOM.mailboxes m ON m.id = g.mailbox ORDER BY oldest, 1",
        values,
    )


# What came after a number: letters by sender and mailbox, and changes of deliveries by mailbox and state.
SINCE = {
    "pair": """
SELECT s.name, m.name, g.many FROM (SELECT l.sender, d.mailbox, count(*) AS many FROM ROOM.letters l
    JOIN ROOM.deliveries d ON d.number = l.number WHERE l.number > %s GROUP BY 1, 2) g
JOIN ROOM.mailboxes s ON s.id = g.sender JOIN ROOM.mailboxes m ON m.id = g.mailbox""",
    "moved": """
SELECT m.name, g.state, g.many FROM (SELECT mailbox, state, count(*) AS many FROM ROOM.changes
    WHERE number > %s AND what = 'moved' GROUP BY 1, 2) g JOIN ROOM.mailboxes m ON m.id = g.mailbox""",
}


def count_letters(query: LetterQuery) -> Statement:
    where, values = _where(_letter_pieces(query))
    return f"SELECT count(*) FROM ROOM.letters l{where}", values


# Of one mailbox here, or of all at one other system.
QUOTA = f"""
SELECT total, own FROM ROOM.waiting(
    ARRAY(SELECT id FROM ROOM.mailboxes WHERE system = %(system)s
          UNION ALL SELECT id FROM ROOM.mailboxes WHERE %(system)s = '' AND id = ({MEANT})),
    coalesce(({MEANT.replace("%(name)s", "%(sender)s")}), -1))"""
# One row of (state, mailbox, seen, rank, count, first number, when that was delivered) for each group; one
# statement for all states, so that the counts are of one moment.
_GROUP = """
SELECT g.state, m.name, g.seen, g.rank, g.many, g.oldest,
       (SELECT delivered_at FROM ROOM.deliveries WHERE number = g.oldest AND mailbox = g.mailbox)
FROM (SELECT state, mailbox, {seen} AS seen, {rank} AS rank, count(*) AS many, min(number) AS oldest
      FROM ROOM.deliveries WHERE state = {state}{at} GROUP BY state, mailbox, 3, 4) g
JOIN ROOM.mailboxes m ON m.id = g.mailbox"""


def tally(mailbox: str | None) -> Statement:
    at = "" if mailbox is None else f" AND mailbox = {_MAILBOX}"
    values = [] if mailbox is None else [fold(mailbox), mailbox]
    pieces = []
    for state in (0, 1, 2, 4):
        seen, rank = ("seen", "rank") if state == 1 else ("0", "0")
        pieces.append(_GROUP.format(state=state, seen=seen, rank=rank, at=at))
    return " UNION ALL ".join(pieces), values * len(pieces)


# The newest letter of each conversation or thread, by a few steps in its index. `letters l`: a column that has an
# index, the letters in that index, and those of its kind without a value.
_FAR = 2**62  # above every number
_LOOSE = "l.conversation IS NULL"
_APART = {
    "thread": (("thread", "l.thread IS NOT NULL", ()),),
    # Without a conversation of its own, a letter belongs to the catch-all conversation of its scope.
    "conversation": (
        ("conversation", "l.conversation IS NOT NULL", ()),
        ("scope", f"{_LOOSE} AND l.scope IS NOT NULL", (f"{_LOOSE} AND l.scope IS NULL",)),
    ),
}


def newest_of(query: LetterQuery) -> Statement:
    """Return the query for the newest letter of each conversation or thread, the newest first."""
    where, values = _where(_letter_pieces(query))
    where = where.replace(" WHERE ", " AND ", 1)
    newest = f"(SELECT l.number FROM ROOM.letters l WHERE {{}}{where} ORDER BY l.number DESC LIMIT 1) AS newest"
    steps, found, uses = [], [], 0
    for column, present, alone in _APART[query.newest_of]:
        first = f"SELECT min(l.{column}) AS at FROM ROOM.letters l WHERE {present}"
        following = f"SELECT (SELECT min(l.{column}) FROM ROOM.letters l WHERE {present} AND l.{column} > at)"
        steps.append(f"by_{column} AS ({first} UNION ALL {following} FROM by_{column} WHERE at IS NOT NULL)")
        one = f"{present} AND l.{column} = at"
        found.append(f"SELECT {newest.format(one)} FROM by_{column} WHERE at IS NOT NULL")
        found += [f"SELECT {newest.format(other)}" for other in alone]
        uses += 1 + len(alone)
    before = _FAR if query.before is None else query.before
    limit, more = _limit(query.limit)
    among = f"WITH RECURSIVE {', '.join(steps)} {' UNION ALL '.join(found)}"
    sql = f"{_LETTERS} JOIN ({among}) n ON l.number = n.newest WHERE l.number < %s ORDER BY l.number DESC{limit}"
    return sql, [*values * uses, before, *more]


# A letter by its key, or, if it was sent without one, by its id.
BY_KEY = f"""
{_LETTERS} JOIN ROOM.mailboxes m ON m.id = l.sender
WHERE m.folded = %(folded)s AND m.name = %(name)s AND l.key = %(key)s
UNION ALL
{_LETTERS} JOIN ROOM.mailboxes m ON m.id = l.sender
WHERE l.id = %(key)s AND l.key IS NULL AND m.name = %(name)s"""


def letters(query: LetterQuery) -> Statement:
    where, values = _where(_letter_pieces(query))
    limit, more = _limit(query.limit)
    order = {"age": "l.number", "newest": "l.number DESC", "id": "l.id"}[query.order]
    return f"{_LETTERS}{where} ORDER BY {order}{limit} OFFSET %s", [*values, *more, query.skip]


# -- time


_AMONG = " AND mailbox = ANY (ARRAY(SELECT id FROM ROOM.mailboxes WHERE name = ANY (%s)))"


def overdue(moment: Moment, mailboxes: Sequence[str] | None, limit: int) -> Statement:
    """Return the query for rows of (number, mailbox): leases run out, mail now due, mail expired.

    Each comes from its own small index, and a key may come twice. A lease is over by the server's own clock too:
    the caller may have measured it wrong.
    """
    at, ids = ("", []) if mailboxes is None else (_AMONG, [list(mailboxes)])
    pieces = (
        "state = 2 AND lease_until <= least(%s::float8, (SELECT extract(epoch FROM clock_timestamp())::float8))",
        "state = 0 AND due_at <= %s",
        "state < 2 AND expires_at IS NOT NULL AND expires_at <= %s",
    )
    now = micros(moment.wall)
    sql = " UNION ALL ".join(
        f"(SELECT number, mailbox FROM ROOM.deliveries WHERE {piece}{at})" for piece in pieces
    )
    return f"{sql} LIMIT %s", [moment.steady, *ids, now, *ids, now, *ids, limit]


def next_timer(moment: Moment, mailboxes: Sequence[str] | None, ahead: float) -> Statement:
    """Return the query for one row: the earliest lease end, due times and expiry, after now and within `ahead`."""
    at, ids = ("", []) if mailboxes is None else (_AMONG, [list(mailboxes)])
    earliest = "(SELECT min({0}) FROM ROOM.deliveries WHERE {1} AND {0} > %s AND {0} <= %s" + at + ")"
    pieces = (
        earliest.format("lease_until", "state = 2"),
        earliest.format("due_at", "state = 0"),
        earliest.format("due_at", "state = 1 AND due_at IS NOT NULL"),
        earliest.format("expires_at", "state < 2 AND expires_at IS NOT NULL"),
    )
    now = micros(moment.wall)
    walls = [now, now + int(ahead * 1_000_000), *ids]
    return f"SELECT {', '.join(pieces)}", [moment.steady, moment.steady + ahead, *ids, *walls, *walls, *walls]


# -- conditions


def _where(pieces: Iterator[Piece] | list[Piece]) -> Statement:
    held = list(pieces)
    where = f" WHERE {' AND '.join(piece for piece, _ in held)}" if held else " WHERE true"
    return where, [value for _, values in held for value in values]


def _limit(limit: int | None) -> Piece:
    return ("", []) if limit is None else (" LIMIT %s", [limit])


def _pieces(query: Query) -> Iterator[Piece]:
    if query.mailbox is not None:
        yield f"d.mailbox = {_MAILBOX}", [fold(query.mailbox), query.mailbox]
    if query.states:
        states = [STATE_NUMBER[state] for state in query.states]
        yield f"d.state = {states[0]}" if len(states) == 1 else f"d.state IN ({str(states)[1:-1]})", []
    if query.message_ids:
        yield "d.number IN (SELECT number FROM ROOM.letters WHERE id = ANY (%s))", [list(query.message_ids)]
    if query.unread_only:
        yield "d.seen = 0", []
    if query.shown_only:
        yield SHOWN, []
    if query.min_priority > 1:
        yield f"d.rank <= {RANK[query.min_priority]}", []
    # Mail that was delivered later than accepted has `arrived`, and `find_late` finds it by that number.
    if query.after is not None:
        yield "d.arrived IS NULL AND d.number > %s", [query.after]
    if query.until is not None:
        yield "coalesce(d.arrived, d.number) <= %s", [query.until]
    if query.thread is not None:
        yield f"d.number {_THREAD}", [query.thread, query.thread]
    yield from _pieces_of_letter(query)
    yield from _pieces_of_time(query)


def _pieces_of_letter(query: Query) -> Iterator[Piece]:
    if query.kinds:
        yield "coalesce(l.kind, 'message') = ANY (%s)", [list(query.kinds)]
    if query.sender is not None:
        yield f"l.sender = {_MAILBOX}", [fold(query.sender), query.sender]
    if query.thread_tag is not None:
        yield "l.thread_tag = %s", [query.thread_tag]
    if query.tag is not None:
        yield "l.tags::jsonb ? %s", [query.tag]
    if query.since is not None:
        yield "l.created_at >= %s", [micros(query.since)]
    if query.sent_before is not None:
        yield "l.created_at < %s", [micros(query.sent_before)]
    yield from _scope(query.scope)


def _pieces_of_time(query: Query) -> Iterator[Piece]:
    if query.offered_at is not None:
        yield "(d.expires_at IS NULL OR d.expires_at > %s)", [micros(query.offered_at)]
    if query.due_at is not None:
        # A time further ahead than any retry delay was written under a wrong clock: such a letter is offered now
        # (G7).
        late = "" if query.due_most is None else " OR d.due_at > %s AND d.attempts > 0"
        values = [micros(time) for time in (query.due_at, query.due_most) if time is not None]
        yield f"(d.due_at IS NULL OR d.due_at <= %s{late})", values
    if query.reason is not None:
        yield "coalesce(d.reason, '') = %s", [query.reason]
    if query.dead_by is not None:
        yield "d.dead_at <= %s", [micros(query.dead_by)]
    if query.unarchived_before is not None:
        yield "d.state = 3 AND d.archived_at IS NULL AND d.acked_at < %s", [micros(query.unarchived_before)]


def _letter_pieces(query: LetterQuery) -> Iterator[Piece]:
    if query.after:
        yield "l.number > %s", [query.after]
    if query.newest is not None:
        column, place = (
            ("conversation", query.conversation) if query.conversation else ("thread", query.replies_in)
        )
        newest = f"SELECT number FROM ROOM.letters WHERE {column} = %s ORDER BY number DESC LIMIT 1 OFFSET %s"
        yield f"l.number > coalesce(({newest}), 0)", [place, query.newest]
    if query.thread is not None:
        yield f"l.number {_THREAD}", [query.thread, query.thread]
    if query.thread_tag is not None:
        yield "l.thread_tag = %s", [query.thread_tag]
    if query.conversation is not None:
        scope = general_scope(query.conversation)
        yield ("l.conversation = %s", [query.conversation]) if scope is None else (_LOOSE, [])
        yield from _scope(scope)
    yield from _scope(query.scope)
    if query.party is not None:
        yield f"(l.sender = {_MAILBOX} OR {_RECEIVED})", [fold(query.party), query.party] * 2
    if query.sender is not None:
        yield f"l.sender = {_MAILBOX}", [fold(query.sender), query.sender]
    if query.replies_in is not None:
        yield "l.thread = %s", [query.replies_in]
    if query.received_by is not None:
        yield _RECEIVED, [fold(query.received_by), query.received_by]
    if query.to_several:
        yield "EXISTS (SELECT FROM ROOM.deliveries d WHERE d.number = l.number OFFSET 1)", []
    if query.before is not None and not query.newest_of:
        yield "l.number < %s", [query.before]
    if query.beginning:  # all characters of an id come before DEL
        yield "l.id >= %s AND l.id < %s", [query.beginning, f"{query.beginning}\x7f"]
    if query.spared:
        yield "l.id <> ALL (%s)", [list(query.spared)]
    if query.settled_before is not None:
        yield (
            "NOT EXISTS (SELECT FROM ROOM.deliveries d WHERE d.number = l.number"
            " AND (d.state < 3 OR greatest(d.acked_at, d.dead_at, 0) >= %s))",
            [micros(query.settled_before)],
        )


def _scope(scope: str | None) -> Iterator[Piece]:
    if scope == DEFAULT_SCOPE:
        yield "l.scope IS NULL", []
    elif scope is not None:
        yield "l.scope = %s", [scope]
