"""Queries as SQLite answers them best; what they mean stands in `store/queries.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...model.codec import encode
from ...model.thread import general_scope
from ..queries import FAR, LETTERS_AT, ORDER, STATE_INDEX, Queries, is_of_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...model.query import LetterQuery, Query
    from ..queries import Piece, Statement

# The newest letter of each conversation or thread: where there are many of them, some page of the newest letters
# holds enough; where there are few, each is found by a few steps in its index. So neither reads the whole room.
WINDOW = 2000  # newest letters that are looked at first
FEW = 8  # values that are bound one by one; more are bound as one JSON list
_REQUEST = "request"
IS_KNOWN = """
SELECT 1 FROM mailboxes WHERE known = 1
AND id IN (SELECT id FROM mailboxes WHERE folded = ?1 UNION ALL SELECT mailbox FROM aliases WHERE folded = ?1)"""
_ONE = f"{LETTERS_AT} AND d.number = ? AND d.mailbox = ?"


class SqliteQueries(Queries):
    """The queries of a room in SQLite. Mailboxes are named by their ids, which a process remembers."""

    greatest = "max"
    has_tag = "EXISTS (SELECT 1 FROM json_each(l.tags) WHERE value = ?)"
    lease_over = "lease_until <= ?"  # leases of an earlier boot end at 0

    def among(self, column: str, values: Sequence[Any]) -> Piece:
        if len(values) <= FEW:
            return f"{column} IN ({', '.join('?' * len(values))})", list(values)
        return f"{column} IN (SELECT value FROM json_each(?))", [encode(values).decode()]

    def at_mailboxes(self, mailboxes: Sequence[int]) -> Piece:
        return f" AND mailbox IN ({', '.join('?' * len(mailboxes))})", list(mailboxes)

    def each(self, keys: Sequence[tuple[int, int]]) -> list[Statement]:
        return [(_ONE, list(key)) for key in keys]

    def find(self, query: Query) -> Statement:
        sql, values = super().find(query)
        if not is_of_state(query):
            return sql, values
        # First which they are, by the index where that is enough, then what they hold: 20 times as fast for a page
        # of 50,000. SQLite would not choose the index where the order is that of the table.
        where = sql.removeprefix(LETTERS_AT)
        is_by_letter = "l." in where
        letters, join = (" CROSS JOIN letters l", "l.number = d.number") if is_by_letter else ("", "true")
        keys = f"SELECT d.number, d.mailbox FROM deliveries d INDEXED BY {STATE_INDEX[query.states[0]]}{letters}"
        at = f"FROM ({keys} WHERE {join}{where}) k CROSS JOIN main.deliveries d"
        found = LETTERS_AT.replace("FROM main.deliveries d", at, 1)
        order = ORDER[query.order]
        return f"{found} AND d.number = k.number AND d.mailbox = k.mailbox ORDER BY {order}", values

    def pieces_of_kinds(self, query: Query) -> Piece:
        if query.kinds != (_REQUEST,) or query.mailbox is not None:
            return super().pieces_of_kinds(query)
        # Looked up in an index of its own: most open mail of a room is no request.
        at = "letters r INDEXED BY letters_requests WHERE r.number = d.number"
        return f"EXISTS (SELECT 1 FROM {at} AND r.kind = '{_REQUEST}')", []

    def newest_of(
        self, query: LetterQuery, among: Sequence[int] | None = None, *, window: bool = True
    ) -> Statement:
        """Return the query for the numbers of the newest letters, one of each conversation or thread.

        It looks among letters with these numbers or, with `window`, among the newest; that is all that is needed
        if it finds as many as asked for. Without either it steps through the index.
        """
        before = FAR if query.before is None else query.before
        if among is not None:
            source = "json_each(?) j CROSS JOIN letters l ON l.number = j.value"
            sql, values = self._in_window(query, source, "")
            values = [encode(among).decode(), *values]
        elif window:
            newest = f" AND l.number < {before} ORDER BY l.number DESC LIMIT {WINDOW}"
            sql, values = self._in_window(query, "letters l", newest)
        else:
            sql, values = self.steps(query)
        limit = FAR if query.limit is None else query.limit
        return f"SELECT newest FROM ({sql}) WHERE newest < ? ORDER BY 1 DESC LIMIT ?", [*values, before, limit]

    def _in_window(self, query: LetterQuery, source: str, tail: str) -> Statement:
        """Return the query for the newest of each group among some letters, without those of earlier pages."""
        where, values = self.letter_conditions(query)
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


def bare(request: Statement) -> Statement:
    """Return the query without the letters themselves."""
    sql, values = request
    return sql.replace(", l.sum, l.body", "", 1), values


def is_of_one_agent(query: LetterQuery) -> bool:
    """Return whether no index but that of an agent's own letters leads to these letters."""
    by_index = (query.thread, query.thread_tag, query.replies_in, query.key)
    is_named = query.conversation is not None and general_scope(query.conversation) is None
    return bool(query.party or query.sender) and not (is_named or query.beginning or any(by_index))


queries = SqliteQueries()
