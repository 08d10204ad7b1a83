"""Queries as PostgreSQL writes them; what they mean stands in `store/queries.py`. `ROOM` is the room's schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..queries import FAR, LETTERS, LETTERS_AT, MEANT, Queries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...model.query import LetterQuery
    from ..queries import Piece, Statement

# Without the token the server has crashed since, or is another one.
CURSOR = """
SELECT name, epoch, (SELECT token FROM ROOM.alive WHERE home = tableoid), ROOM.next_number() - 1, trimmed
FROM ROOM.room"""
TAKE = """
SELECT * FROM ROOM.take(?, ?::float8, ?::bigint, ?::bigint, ?::int, ?, ?, ?::float8, ?, ?::int, ?::bigint[],
                        ?::bigint, ?)"""
# Of one mailbox here, or of all at one other system: binds the system twice, the mailbox twice, the sender twice.
QUOTA = f"""
SELECT total, own FROM ROOM.waiting(
    ARRAY(SELECT id FROM main.mailboxes WHERE system = ?
          UNION ALL SELECT id FROM main.mailboxes WHERE ? = '' AND id = ({MEANT})),
    coalesce(({MEANT}), -1))"""

WAITING_BY_SENDER = f"""
SELECT s.name, count(*) FROM main.deliveries d JOIN main.letters l ON l.number = d.number
JOIN main.mailboxes s ON s.id = l.sender
WHERE d.mailbox = ({MEANT}) AND d.state < 3 AND d.seen = 0 GROUP BY s.name"""


class PostgresQueries(Queries):
    """The queries of a room on a PostgreSQL server. Mailboxes are named by their names."""

    greatest = "greatest"
    has_tag = "jsonb_exists(l.tags::jsonb, ?)"
    # By the server's own clock too: the caller may have measured it wrong.
    lease_over = "lease_until <= least(?::float8, (SELECT extract(epoch FROM clock_timestamp())::float8))"

    def among(self, column: str, values: Sequence[Any]) -> Piece:
        return f"{column} = ANY (?)", [list(values)]

    def at_mailboxes(self, mailboxes: Sequence[str]) -> Piece:
        ids = "ARRAY(SELECT id FROM main.mailboxes WHERE name = ANY (?))"
        return f" AND mailbox = ANY ({ids})", [list(mailboxes)]

    def each(self, keys: Sequence[tuple[int, int]]) -> list[Statement]:
        numbers, mailboxes = zip(*keys, strict=True)
        among = "(d.number, d.mailbox) IN (SELECT * FROM unnest(?::bigint[], ?::int[]))"
        return [(f"{LETTERS_AT} AND {among}", [list(numbers), list(mailboxes)])]

    def newest_of(self, query: LetterQuery) -> Statement:
        """Return the query for the newest letter of each conversation or thread, the newest first."""
        among, values = self.steps(query)
        bounds = [FAR if query.before is None else query.before, FAR if query.limit is None else query.limit]
        sql = (
            f"{LETTERS} JOIN ({among}) n ON l.number = n.newest WHERE l.number < ? ORDER BY l.number DESC LIMIT ?"
        )
        return sql, [*values, *bounds]


queries = PostgresQueries()
