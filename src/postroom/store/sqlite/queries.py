"""The SQL of each query, put together from fixed pieces; every value is bound.

Most queries read deliveries first, by one of their small partial indexes, and then the letters. Counts never
read letters. States and ranks are literals in the SQL, because SQLite uses a partial index only if it sees the
literal.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...errors import Damaged
from ...model.codec import encode
from ...model.delivery import UNSENT, State
from ...model.message import DEFAULT_SCOPE, Priority
from ...model.names import fold
from ...model.query import Query, Tally
from ...model.thread import general_scope
from .rows import DELIVERY, RANK, SALVAGE, STATE_NUMBER, micros, priority_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from ...model.query import Group, LetterQuery, Moment
    from .rows import Row


Statement = tuple[str, list[Any]]

# CROSS JOIN keeps the order: deliveries first, by one of their small indexes.
_FROM = "FROM deliveries d CROSS JOIN letters l ON l.number = d.number CROSS JOIN mailboxes m ON m.id = d.mailbox"
_LETTERS_AT = f"SELECT {DELIVERY}, l.sum, l.body {_FROM}"
# Yields nothing, by one index, where no delivery in the whole room came so late.
_IF_LATE = "FROM (SELECT 1 FROM deliveries WHERE arrived > ? LIMIT 1) CROSS JOIN"
_LATE_AT = _LETTERS_AT.replace("FROM", _IF_LATE, 1)
_MAILBOX = "(SELECT id FROM mailboxes WHERE folded = ? AND name = ?)"
_THREAD = (
    "IN (SELECT number FROM letters WHERE thread = ? UNION"
    " SELECT number FROM letters WHERE id = ? AND thread IS NULL)"
)
SHOWN = f"NOT (d.state = 4 AND d.seen = 0 AND coalesce(d.reason, '') = '{UNSENT}')"
_RECEIVED = (
    "EXISTS (SELECT 1 FROM deliveries d WHERE d.number = l.number"
    f" AND d.mailbox = {_MAILBOX} AND d.state > 0 AND {SHOWN})"
)
_ORDER = {
    "inbox": "d.seen, d.rank, d.number",
    "priority": "d.rank, d.number",
    "age": "d.number",
    "newest": "d.number DESC",
}


# For the whole room: the small index of a state. SQLite would not choose it where the order is that of the table.
_REQUEST = "request"
_STATE_INDEX = {
    State.QUEUED: "deliveries_queued",
    State.UNREAD: "deliveries_unread",
    State.CLAIMED: "deliveries_held",
    State.DEAD: "deliveries_dead",
}


def find(query: Query) -> Statement:
    where, values = _conditions(query)
    limit, more = _limit(query.limit)
    order = f"ORDER BY {_ORDER[query.order]}"
    if not _is_of_state(query):
        return f"{_LETTERS_AT}{where} {order}{limit}", values + more
    # First which they are, by the index where that is enough, then what they hold: 20 times as fast for a page of
    # 50,000.
    letters = " CROSS JOIN letters l ON l.number = d.number" if "l." in where else ""
    index = _STATE_INDEX[query.states[0]]
    keys = f"SELECT d.number, d.mailbox FROM deliveries d INDEXED BY {index}{letters}{where} {order}{limit}"
    at = f"FROM ({keys}) k CROSS JOIN deliveries d ON d.number = k.number AND d.mailbox = k.mailbox"
    return f"{_LETTERS_AT.replace('FROM deliveries d', at, 1)} {order}", values + more


def _is_of_state(query: Query) -> bool:
    """Return whether it is about the whole room's mail in one state that has an index."""
    has_index = len(query.states) == 1 and query.states[0] in _STATE_INDEX
    return has_index and query.mailbox is None and not query.message_ids


def bare(request: Statement) -> Statement:
    """Return the query without the letters themselves."""
    sql, values = request
    return sql.replace(", l.sum, l.body", "", 1), values


def find_offered(query: Query) -> Statement:
    """Return the query for one mailbox's mail in order of priority.

    The index holds unread mail and mail that was read apart: the top of each, merged, is far cheaper than
    one sort.
    """
    usual = _claim(query.mailbox, query.offered_at, query.due_at, query.due_most, query.limit)
    if query == usual and query.offered_at and query.due_at and query.due_most:
        sql = _claim_sql()  # kept, because making it takes longer than running it
        now = micros(query.offered_at)
        due = now if query.due_at is query.offered_at else micros(query.due_at)
        values: list[Any] = [fold(query.mailbox or ""), query.mailbox, now, due, micros(query.due_most)]
    else:
        where, values = _conditions(query)
        sql = _merged(where)
    return sql, [*values, query.limit, *values, query.limit, query.limit]


def _merged(where: str) -> str:
    top = f"SELECT * FROM ({_LETTERS_AT}{where} AND d.seen = {{}} ORDER BY {_ORDER['priority']} LIMIT ?)"
    return f"{top.format(0)} UNION ALL {top.format(1)} ORDER BY rank, number LIMIT ?"


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
def _claim_sql() -> str:
    any_time = time_of(0)
    return _merged(_conditions(_claim("", any_time, any_time, any_time, 1))[0])


def find_late(query: Query) -> Statement:
    """Return the query for letters accepted before `query.after` that were delivered only after it."""
    where, values = _conditions(replace(query, after=None))
    limit, more = _limit(query.limit)
    late = f" AND d.arrived > ? ORDER BY d.arrived{limit}"
    return f"{_LATE_AT}{where}{late}", [query.after, *values, query.after, *more]


def count(query: Query | LetterQuery, by: Group) -> Statement:
    """Return the query for one row of (count), or for rows of (group, count)."""
    if isinstance(query, Query):
        return _count(query, by)
    return (_SINCE[by], [query.after]) if by in _SINCE else count_letters(query)


# What came after a number: it reads two primary keys from there on, and names each mailbox once.
_SINCE = {
    "pair": """
SELECT s.name, m.name, g.many FROM (SELECT l.sender AS sender, d.mailbox AS mailbox, count(*) AS many
FROM letters l CROSS JOIN deliveries d ON d.number = l.number WHERE l.number > ? GROUP BY 1, 2) g
JOIN mailboxes s ON s.id = g.sender JOIN mailboxes m ON m.id = g.mailbox""",
    "moved": """
SELECT m.name, g.state, g.many FROM (SELECT mailbox, state, count(*) AS many
FROM changes WHERE number > ? AND what = 'moved' GROUP BY 1, 2) g JOIN mailboxes m ON m.id = g.mailbox""",
}


def _count(query: Query, by: Group) -> Statement:
    if by == "state":
        return tally(query.mailbox)
    where, values = _conditions(query)
    # Without a condition on letters the index alone answers.
    source = _FROM if any("l." in piece for piece, _ in _pieces(query)) else "FROM deliveries d"
    if by == "all":
        # Without conditions SQLite counts the entries of an index: 8 ms for a million.
        return f"SELECT count(*) {source}{where if query != Query() else ''}", values
    if by == "priority":
        return f"SELECT d.rank, count(*) {source}{where} GROUP BY d.rank", values
    name = "SELECT name FROM mailboxes WHERE id = d.mailbox"
    if by == "reason":
        return f"SELECT ({name}), coalesce(d.reason, ''), count(*) {source}{where} GROUP BY d.mailbox, 2", values
    return f"SELECT ({name}), count(*) {source}{where} GROUP BY d.mailbox ORDER BY min(d.number), 1", values


def count_letters(query: LetterQuery, among: Sequence[int] | None = None) -> Statement:
    pieces = list(_letter_pieces(query))
    if among is not None:
        pieces.append(("l.number IN (SELECT value FROM json_each(?))", [encode(among).decode()]))
    if query.after:
        pieces.append(("l.number > ?", [query.after]))
    where = "".join(f" AND {piece}" for piece, _ in pieces)
    values = [value for _, held in pieces for value in held]
    return f"SELECT count(*) FROM letters l{f' WHERE 1{where}' if pieces else ''}", values


# The newest letter of each conversation or thread. Where there are many of them, some page of the newest letters
# holds enough; where there are few, each is found by a few steps in its index. So neither reads the whole room.

WINDOW = 2000  # newest letters that are looked at first

# In `letters l`: a column that has an index, the letters in that index, and those of its kind without a value.
_LOOSE = "l.conversation IS NULL"
_APART = {
    "thread": (("thread", "l.thread IS NOT NULL", ()),),
    # Without a conversation of its own, a letter belongs to the catch-all conversation of its scope.
    "conversation": (
        ("conversation", "l.conversation IS NOT NULL", ()),
        ("scope", f"{_LOOSE} AND l.scope IS NOT NULL", (f"{_LOOSE} AND l.scope IS NULL",)),
    ),
}


def newest_of(query: LetterQuery, among: Sequence[int] | None = None, *, window: bool = True) -> Statement:
    """Return the query for the numbers of the newest letters, one of each conversation or thread.

    It looks among letters with these numbers or, with `window`, among the newest; that is all that is needed if
    it finds as many as asked for. Without either it steps through the index.
    """
    pieces = [*_letter_pieces(query), ("l.number > ?", [query.after])]
    where = "".join(f" AND {piece}" for piece, _ in pieces)
    values: list[Any] = [value for _, held in pieces for value in held]
    before = _FAR if query.before is None else query.before
    limit = -1 if query.limit is None else query.limit
    if among is not None:
        source = "json_each(?) j CROSS JOIN letters l ON l.number = j.value"
        sql, bound = _in_window(query, source, "", where, values)
        bound = [encode(among).decode(), *bound]
    elif window:
        newest = f" AND l.number < {before} ORDER BY l.number DESC LIMIT {WINDOW}"
        sql, bound = _in_window(query, "letters l", newest, where, values)
    else:
        sql, bound = _by_steps(query, where, values)
    return f"SELECT newest FROM ({sql}) WHERE newest < ? ORDER BY 1 DESC LIMIT ?", [*bound, before, limit]


def by_number(numbers: Sequence[int]) -> Statement:
    """Return the query for the letters with these numbers, the newest first."""
    sql = "SELECT number, sum, body FROM letters WHERE number IN (SELECT value FROM json_each(?))"
    return f"{sql} ORDER BY number DESC", [encode(numbers).decode()]


_FAR = 2**62  # above every number


def _in_window(query: LetterQuery, source: str, tail: str, where: str, values: list[Any]) -> Statement:
    """Return the query for the newest of each group among some letters, without those of earlier pages."""
    is_thread = query.newest_of == "thread"
    within = f"{where} AND l.thread IS NOT NULL" if is_thread else where
    columns = "l.thread, l.conversation, l.scope"
    window = f"SELECT l.number, {columns} FROM {source} WHERE 1{within}{tail}"
    groups = f"SELECT max(l.number) AS newest, {columns} FROM ({window}) l GROUP BY "
    groups += "l.thread" if is_thread else "l.conversation, iif(l.conversation IS NULL, l.scope, NULL)"
    if query.before is None:
        return groups, values
    # One whose newest letter is not older than the place to go on from was on an earlier page.
    newer = "EXISTS (SELECT 1 FROM letters n WHERE {} AND n.number >= ?" + where.replace("l.", "n.") + ")"
    if is_thread:
        return f"{groups} HAVING NOT {newer.format('n.thread = l.thread')}", [*values, query.before, *values]
    named = newer.format("n.conversation = l.conversation")
    general = newer.format("n.conversation IS NULL AND n.scope IS l.scope")
    later = f"CASE WHEN l.conversation IS NULL THEN {general} ELSE {named} END"
    return f"{groups} HAVING NOT {later}", [*values, *[query.before, *values] * 2]


def _by_steps(query: LetterQuery, where: str, values: list[Any]) -> Statement:
    """Return the query that steps from one conversation or thread to the next in their index."""
    newest = f"(SELECT l.number FROM letters l WHERE {{}}{where} ORDER BY l.number DESC LIMIT 1) AS newest"
    steps, found, count = [], [], 0
    for column, present, alone in _APART[query.newest_of]:
        first = f"SELECT min(l.{column}) AS at FROM letters l WHERE {present}"
        following = f"SELECT (SELECT min(l.{column}) FROM letters l WHERE {present} AND l.{column} > at)"
        steps.append(f"by_{column} AS ({first} UNION ALL {following} FROM by_{column} WHERE at IS NOT NULL)")
        one = f"{present} AND l.{column} = at"
        found.append(f"SELECT {newest.format(one)} FROM by_{column} WHERE at IS NOT NULL")
        found += [f"SELECT {newest.format(other)}" for other in alone]
        count += 1 + len(alone)
    sql = f"WITH RECURSIVE {', '.join(steps)} {' UNION ALL '.join(found)}"
    return sql, values * count


# A letter by its key, or, if it was sent without one, by its id.
BY_KEY = """
SELECT l.number, l.sum, l.body FROM mailboxes m JOIN letters l ON l.sender = m.id
WHERE m.folded = ?1 AND m.name = ?2 AND l.key = ?3
UNION ALL
SELECT l.number, l.sum, l.body FROM letters l JOIN mailboxes m ON m.id = l.sender
WHERE l.id = ?3 AND l.key IS NULL AND m.name = ?2"""


def is_of_one_agent(query: LetterQuery) -> bool:
    """Return whether no index but that of an agent's own letters leads to these letters."""
    by_index = (query.thread, query.thread_tag, query.replies_in, query.key)
    is_named = query.conversation is not None and general_scope(query.conversation) is None
    return bool(query.party or query.sender) and not (is_named or query.beginning or any(by_index))


def letters(query: LetterQuery, among: Sequence[int] | None = None) -> Statement:
    """Return the query for letters, of these numbers if any are given."""
    if query.key is not None:
        return BY_KEY, [fold(query.sender or ""), query.sender, query.key]
    pieces = list(_letter_pieces(query))
    if among is not None:
        pieces.append(("l.number IN (SELECT value FROM json_each(?))", [encode(among).decode()]))
    where = "".join(f" AND {piece}" for piece, _ in pieces)
    limit, more = " LIMIT ? OFFSET ?", [-1 if query.limit is None else query.limit, query.skip]
    order = {"age": "l.number", "newest": "l.number DESC", "id": "l.id"}[query.order]
    after, values = _after(query)
    values += [value for _, held in pieces for value in held]
    sql = f"SELECT l.number, l.sum, l.body FROM letters l WHERE l.number > {after}{where} ORDER BY {order}{limit}"
    return sql, values + more


def _after(query: LetterQuery) -> Statement:
    """Return the number after which letters are read: one bound, so that the index ends the search there."""
    if query.newest is None:
        return "?", [query.after]
    place = query.conversation or query.replies_in
    column = "conversation" if query.conversation else "thread"
    before = f"SELECT number FROM letters WHERE {column} = ? ORDER BY number DESC LIMIT 1 OFFSET ?"
    return f"max(?, coalesce(({before}), 0))", [query.after, place, query.newest]


def overdue(moment: Moment, mailboxes: Sequence[int] | None, limit: int) -> Statement:
    """Return the query for rows of (number, mailbox): leases run out, mail now due, mail expired.

    Each comes from its own small index, and a key may come twice. It runs at every claim, so it must cost nothing
    when nothing is overdue.
    """
    now, ids = micros(moment.wall), () if mailboxes is None else mailboxes
    sql = _overdue_at(None if mailboxes is None else len(mailboxes))
    return sql, [moment.steady, *ids, now, *ids, now, *ids, limit]


@cache
def _overdue_at(mailboxes: int | None) -> str:
    return f"{' UNION ALL '.join(_overdue_pieces(mailboxes))} LIMIT ?"


def _overdue_pieces(mailboxes: int | None) -> list[str]:
    at = "" if mailboxes is None else f" AND mailbox IN ({', '.join('?' * mailboxes)})"
    pieces = (
        "state = 2 AND lease_until <= ?",  # leases of an earlier boot end at 0
        "state = 0 AND due_at <= ?",
        "state < 2 AND expires_at IS NOT NULL AND expires_at <= ?",
    )
    return [f"SELECT number, mailbox FROM deliveries WHERE {piece}{at}" for piece in pieces]


ONE = f"{_LETTERS_AT} WHERE d.number = ? AND d.mailbox = ?"


def next_timer(moment: Moment, mailboxes: Sequence[int] | None, ahead: float) -> Statement:
    """Return the query for one row: the earliest lease end (uptime) and due or expiry times (wall), after now.

    Only those at most `ahead` seconds away: the index of expiry times is of the whole room.
    """
    now, ids = micros(moment.wall), () if mailboxes is None else mailboxes
    at = "" if mailboxes is None else f" AND mailbox IN ({', '.join('?' * len(ids))})"
    earliest = f"(SELECT min({{0}}) FROM deliveries WHERE {{1}} AND {{0}} > ? AND {{0}} <= ?{at})"
    pieces = (
        earliest.format("lease_until", "state = 2"),
        earliest.format("due_at", "state = 0"),
        earliest.format("due_at", "state = 1 AND due_at IS NOT NULL"),
        earliest.format("expires_at", "state < 2 AND expires_at IS NOT NULL"),
    )
    walls = [now, now + int(ahead * 1_000_000), *ids]
    return f"SELECT {', '.join(pieces)}", [moment.steady, moment.steady + ahead, *ids, *walls, *walls, *walls]


# Changes of a letter that is deleted by now are left out.
CHANGES = """
SELECT * FROM (SELECT number, 'posted' AS what, id, NULL, NULL, NULL, NULL FROM letters
               WHERE number > ?1 ORDER BY number LIMIT ?2)
UNION ALL
SELECT * FROM (SELECT c.number, c.what, l.id, m.name, c.state, c.kind, c.key FROM changes c
               LEFT JOIN letters l ON l.number = c.letter LEFT JOIN mailboxes m ON m.id = c.mailbox
               WHERE c.number > ?1 AND (c.letter IS NULL OR l.id IS NOT NULL) ORDER BY c.number LIMIT ?2)
ORDER BY 1 LIMIT ?2"""


def _conditions(query: Query) -> Statement:
    pieces = list(_pieces(query))
    where = " WHERE " + " AND ".join(["1", *(piece for piece, _ in pieces)])
    return where, [value for _, values in pieces for value in values]


def _pieces(query: Query) -> Iterator[tuple[str, list[Any]]]:
    if query.mailbox is not None:
        yield f"d.mailbox = {_MAILBOX}", [fold(query.mailbox), query.mailbox]
    if len(query.states) == 1:
        yield f"d.state = {STATE_NUMBER[query.states[0]]}", []  # a literal, so that the partial index is seen
    elif query.states:
        yield f"d.state IN ({', '.join(str(STATE_NUMBER[state]) for state in query.states)})", []
    if query.message_ids:
        marks = ", ".join("?" * len(query.message_ids))
        yield f"d.number IN (SELECT number FROM letters WHERE id IN ({marks}))", list(query.message_ids)
    yield from _pieces_of_sight(query)
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
    yield from _pieces_of_letter(query)
    yield from _pieces_of_time(query)


def _pieces_of_sight(query: Query) -> Iterator[tuple[str, list[Any]]]:
    if query.unread_only:
        yield "d.seen = 0", []
    if query.shown_only:
        yield SHOWN, []


def _pieces_of_letter(query: Query) -> Iterator[tuple[str, list[Any]]]:
    if query.kinds == (_REQUEST,) and query.mailbox is None:
        # Looked up in an index of its own: most open mail of a room is no request.
        at = "letters r INDEXED BY letters_requests WHERE r.number = d.number"
        yield f"EXISTS (SELECT 1 FROM {at} AND r.kind = '{_REQUEST}')", []
    elif query.kinds:
        yield f"coalesce(l.kind, 'message') IN ({', '.join('?' * len(query.kinds))})", list(query.kinds)
    if query.sender is not None:
        yield f"l.sender = {_MAILBOX}", [fold(query.sender), query.sender]
    if query.thread_tag is not None:
        yield "l.thread_tag = ?", [query.thread_tag]
    if query.tag is not None:
        yield "EXISTS (SELECT 1 FROM json_each(l.tags) WHERE value = ?)", [query.tag]
    if query.since is not None:
        yield "l.created_at >= ?", [micros(query.since)]
    if query.sent_before is not None:
        yield "l.created_at < ?", [micros(query.sent_before)]
    yield from _scope(query.scope)


def _pieces_of_time(query: Query) -> Iterator[tuple[str, list[Any]]]:
    if query.offered_at is not None and query.states == (State.UNREAD,) and _is_of_state(query):
        # Few of a room expire, and these have an index: the deliveries themselves need not be read.
        expired = "SELECT number, mailbox FROM deliveries WHERE state < 2 AND expires_at <= ?"
        yield f"(d.number, d.mailbox) NOT IN ({expired})", [micros(query.offered_at)]
    elif query.offered_at is not None:
        yield "(d.expires_at IS NULL OR d.expires_at > ?)", [micros(query.offered_at)]
    if query.due_at is not None:
        # A time further ahead than any retry delay was written under a wrong clock: such a letter is offered now
        # (G7).
        late = "" if query.due_most is None else " OR d.due_at > ? AND d.attempts > 0"
        values = [micros(time) for time in (query.due_at, query.due_most) if time is not None]
        yield f"(d.due_at IS NULL OR d.due_at <= ?{late})", values
    if query.reason is not None:
        yield "coalesce(d.reason, '') = ?", [query.reason]
    if query.dead_by is not None:
        yield "d.dead_at <= ?", [micros(query.dead_by)]
    if query.unarchived_before is not None:
        yield "d.archived_at IS NULL AND d.acked_at < ?", [micros(query.unarchived_before)]


def _letter_pieces(query: LetterQuery) -> Iterator[tuple[str, list[Any]]]:
    if query.thread is not None:
        yield f"l.number {_THREAD}", [query.thread, query.thread]
    if query.thread_tag is not None:
        yield "l.thread_tag = ?", [query.thread_tag]
    if query.conversation is not None:
        yield from _conversation(query.conversation)
    yield from _scope(query.scope)
    yield from _party(query.party)
    if query.sender is not None:
        yield f"l.sender = {_MAILBOX}", [fold(query.sender), query.sender]
    if query.replies_in is not None:
        yield "l.thread = ?", [query.replies_in]
    yield from _pace(query)
    if query.before is not None and not query.newest_of:
        yield "l.number < ?", [query.before]
    if query.beginning:  # all characters of an id come before DEL
        yield "l.id >= ? AND l.id < ?", [query.beginning, f"{query.beginning}\x7f"]
    if query.spared:
        yield "l.id NOT IN (SELECT value FROM json_each(?))", [encode(query.spared).decode()]
    if query.settled_before is not None:
        yield (
            "NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.number = l.number"
            " AND (d.state < 3 OR max(coalesce(d.acked_at, 0), coalesce(d.dead_at, 0)) >= ?))",
            [micros(query.settled_before)],
        )


def _pace(query: LetterQuery) -> Iterator[tuple[str, list[Any]]]:
    if query.received_by is not None:
        yield _RECEIVED, [fold(query.received_by), query.received_by]
    if query.to_several:
        # A second delivery is enough: no need to count them.
        yield "EXISTS (SELECT 1 FROM deliveries d WHERE d.number = l.number LIMIT 1 OFFSET 1)", []


def _conversation(conversation: str) -> Iterator[tuple[str, list[Any]]]:
    scope = general_scope(conversation)
    if scope is None:
        yield "l.conversation = ?", [conversation]
    else:
        yield "l.conversation IS NULL", []
        yield from _scope(scope)


def _scope(scope: str | None) -> Iterator[tuple[str, list[Any]]]:
    if scope == DEFAULT_SCOPE:
        yield "l.scope IS NULL", []
    elif scope is not None:
        yield "l.scope = ?", [scope]


def _party(party: str | None) -> Iterator[tuple[str, list[Any]]]:
    if party is not None:
        yield f"(l.sender = {_MAILBOX} OR {_RECEIVED})", [fold(party), party] * 2


def _limit(limit: int | None) -> tuple[str, list[Any]]:
    return ("", []) if limit is None else (" LIMIT ?", [limit])


# -- counts, from the small indexes of open and dead mail

IS_KNOWN = """
SELECT 1 FROM mailboxes WHERE known = 1
AND id IN (SELECT id FROM mailboxes WHERE folded = ?1 UNION ALL SELECT mailbox FROM aliases WHERE folded = ?1)"""
_NOT_DONE = (0, 1, 2, 4)
# One statement for all states, so that the counts are of one moment.
_GROUP = """
SELECT g.state, m.name, g.seen, g.rank, g.many, g.oldest,
       (SELECT delivered_at FROM deliveries WHERE number = g.oldest AND mailbox = g.mailbox)
FROM (SELECT {state} AS state, mailbox, {seen} AS seen, {rank} AS rank, count(*) AS many, min(number) AS oldest
      FROM deliveries WHERE state = {state}{at} GROUP BY mailbox{grouped}) g
JOIN mailboxes m ON m.id = g.mailbox"""


def tally(mailbox: str | None) -> Statement:
    """Return the query for rows of (state, mailbox, seen, rank, count, first number, when that was delivered)."""
    at = "" if mailbox is None else " AND mailbox = (SELECT id FROM mailboxes WHERE folded = ? AND name = ?)"
    values = [] if mailbox is None else [fold(mailbox), mailbox]
    pieces = []
    for state in _NOT_DONE:
        seen, rank, grouped = ("seen", "rank", ", seen, rank") if state == 1 else (0, 0, "")
        pieces.append(_GROUP.format(state=state, seen=seen, rank=rank, at=at, grouped=grouped))
    return " UNION ALL ".join(pieces), values * len(_NOT_DONE)


def tallies(rows: Iterable[Row]) -> list[Tally]:
    by_mailbox: dict[str, list[Row]] = {}
    for row in rows:
        by_mailbox.setdefault(row[1], []).append(row)
    if not all(isinstance(name, str) for name in by_mailbox):
        raise Damaged("the name of a mailbox is damaged", hint=SALVAGE)
    return [_tally(mailbox, by_mailbox[mailbox]) for mailbox in sorted(by_mailbox)]


def _tally(mailbox: str, rows: list[Row]) -> Tally:
    unread = [row for row in rows if row[0] == 1 and not row[2]]
    counted = dict.fromkeys(Priority, 0)
    counted |= {priority_of(row[3]): row[4] for row in unread}
    many = {state: sum(row[4] for row in rows if row[0] == state) for state in _NOT_DONE}
    return Tally(
        mailbox=mailbox,
        unread=counted,
        seen=many[1] - sum(counted.values()),
        claimed=many[2],
        queued=many[0],
        dead=many[4],
        oldest_unread_at=_oldest(unread),
        oldest_seen_at=_oldest([row for row in rows if row[0] == 1 and row[2]]),
        oldest_claimed_at=_oldest([row for row in rows if row[0] == 2]),
    )


def _oldest(rows: list[Row]) -> datetime | None:
    """Return when the letter that was accepted first was delivered."""
    delivered = min(rows, key=lambda row: row[5])[6] if rows else None
    return None if delivered is None else time_of(delivered)
