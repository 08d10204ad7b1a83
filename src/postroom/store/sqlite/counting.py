"""What is counted, and how: from the small indexes of open and dead mail, never by reading letters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...errors import Damaged
from ...model.message import Priority
from ...model.names import AT, fold
from ...model.stats import Settled, Tally, Traffic
from .rows import SALVAGE, micros, priority_of, time_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from ...model.change import Cursor
    from .asking import Statement
    from .rows import Row

DELIVERIES = "SELECT count(*) FROM deliveries"
KNOWN = "SELECT name FROM mailboxes WHERE known = 1"
IS_KNOWN = """
SELECT 1 FROM mailboxes WHERE known = 1
AND id IN (SELECT id FROM mailboxes WHERE folded = ?1 UNION ALL SELECT mailbox FROM aliases WHERE folded = ?1)"""
_OUTGOING = f"""
SELECT m.name, q.many FROM (SELECT mailbox, count(*) AS many, min(number) AS first FROM deliveries
                            WHERE state = 0 AND (?1 IS NULL OR due_at IS NULL OR due_at <= ?1
                                                 OR due_at > ?2 AND attempts > 0) GROUP BY mailbox) q
JOIN mailboxes m ON m.id = q.mailbox WHERE instr(m.name, '{AT}') ORDER BY q.first, m.name"""

_UNSEEN = "SELECT max(number) FROM deliveries WHERE state = 1 AND mailbox = m.id AND seen = 0 AND rank = {rank}"
_NEWEST = ", ".join(f"coalesce(({_UNSEEN.format(rank=rank)}), 0)" for rank in range(len(Priority)))
STRANGERS = f"""
SELECT name, newest FROM (SELECT m.name AS name, max({_NEWEST}) AS newest FROM mailboxes m
                          WHERE m.known = 0 AND NOT instr(m.name, '{AT}')) WHERE newest > 0"""
_NOT_DONE = (0, 1, 2, 4)
# The states are literals, so that each piece sees its own partial index; together they are of one moment.
_GROUP = """
SELECT g.state, m.name, g.seen, g.rank, g.many, g.oldest,
       (SELECT delivered_at FROM deliveries WHERE number = g.oldest AND mailbox = g.mailbox)
FROM (SELECT {state} AS state, mailbox, {seen} AS seen, {rank} AS rank, count(*) AS many, min(number) AS oldest
      FROM deliveries WHERE state = {state}{at} GROUP BY mailbox{grouped}) g
JOIN mailboxes m ON m.id = g.mailbox"""


def tally(mailbox: str | None) -> Statement:
    """Rows of (state, mailbox, seen, rank, how many, the first number, when that was delivered)."""
    at = "" if mailbox is None else " AND mailbox = (SELECT id FROM mailboxes WHERE folded = ? AND name = ?)"
    values = [] if mailbox is None else [fold(mailbox), mailbox]
    pieces = []
    for state in _NOT_DONE:
        seen, rank, grouped = ("seen", "rank", ", seen, rank") if state == 1 else (0, 0, "")
        pieces.append(_GROUP.format(state=state, seen=seen, rank=rank, at=at, grouped=grouped))
    return " UNION ALL ".join(pieces), values * len(_NOT_DONE)


def outgoing(due: datetime | None, most: datetime | None) -> Statement:
    """Rows of (mailbox at another system, how much waits for it)."""
    return _OUTGOING, [None if time is None else micros(time) for time in (due, most)]


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
    """When the one that was accepted first was delivered."""
    delivered = min(rows, key=lambda row: row[5])[6] if rows else None
    return None if delivered is None else time_of(delivered)


# Archiving moves what is done already: only what was acknowledged since counts, and once.
_SETTLED = """
SELECT DISTINCT m.name, d.number, d.acked_at, d.delivered_at
FROM changes c JOIN deliveries d ON d.number = c.letter AND d.mailbox = c.mailbox
JOIN mailboxes m ON m.id = d.mailbox
WHERE c.number > ? AND c.number <= ? AND c.what = 'moved' AND c.state = 3 AND d.acked_at >= ?"""
_SENT = "SELECT count(*) FROM letters WHERE number > ? AND number <= ?"
_DIED = """
SELECT count(*) FROM changes WHERE number > ? AND number <= ? AND what = 'moved' AND state = 4"""


def traffic(since: Cursor, until: Cursor, after: datetime) -> tuple[Statement, Statement, Statement]:
    """Questions for what was sent, what was settled, what died."""
    between: list[Any] = [since.number, until.number]
    return (_SENT, between), (_SETTLED, [*between, micros(after)]), (_DIED, between)


def traffic_of(until: Cursor, sent: list[Row], settled: list[Row], died: list[Row]) -> Traffic:
    return Traffic(
        cursor=until,
        sent=sent[0][0],
        settled=tuple(
            Settled(name, max(0, acked - (acked if delivered is None else delivered)) / 1_000_000)
            for name, _, acked, delivered in settled
        ),
        died=died[0][0],
    )
