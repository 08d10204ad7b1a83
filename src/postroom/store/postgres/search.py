"""Text search: an index in a table of its own, filled lazily, and searches that use it.

The index holds the words of a letter as `model/words.py` makes them, not as the server would (a tsvector without
positions), and its marks as words, as in SQLite's index. It only suggests: a search scans the letters that are not
in it yet, and every letter that it names is compared again. So it may lag behind, and long words may be cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import Unreadable
from ...model.search import search_text
from ..sqlite import rows
from ..sqlite import search as common
from .errors import translated

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model.message import Message
    from ...model.search import SearchQuery
    from .store import PostgresStore

LONGEST = 300  # characters of a word in the index; a lexeme has room for 2,046 bytes
MOST = 600_000  # bytes of one letter in the index; with more it is found by this mark, at every search
_LARGE = "\ue000"
_UPTO = "SELECT coalesce(max(number), 0) FROM ROOM.words"
_TAIL = """
SELECT l.number, l.sum, l.body, l.sender, ARRAY(SELECT mailbox FROM ROOM.deliveries d WHERE d.number = l.number)
FROM ROOM.letters l WHERE l.number > ? ORDER BY l.number LIMIT ?"""
_ADD = "INSERT INTO ROOM.words VALUES (?, array_to_tsvector(?::text[])) ON CONFLICT DO NOTHING"
_ALONE = "SELECT pg_try_advisory_xact_lock('ROOM'::regnamespace::oid::int4, 2)"
_CANDIDATES = "SELECT number FROM ROOM.words WHERE said @@ ?::tsquery AND number <= ? ORDER BY number DESC LIMIT ?"
_HAS_MORE = "SELECT 1 FROM ROOM.letters WHERE number > ? ORDER BY number LIMIT 1 OFFSET ?"


class TableIndex(common.Index):
    """The text index of a room: `words`, complete up to its highest number."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def expression(self, query: SearchQuery, party: int | None) -> str:
        """Return the query as a tsquery of quoted words, none of which is syntax."""

        def quoted(word: str, mark: str = "") -> str:
            return "'" + word[:LONGEST].replace("\\", "\\\\").replace("'", "''") + f"'{mark}"

        wanted = [quoted(common.EVERY if party is None else f"{common.PARTY}{party}")]
        for term in query.terms:
            *whole, last = term.words
            wanted += [quoted(word) for word in whole]
            wanted.append(quoted(last, ":*" if term.begins or len(last) > LONGEST else ""))
        for some in common.wanted_marks(query):
            wanted.append(f"({' | '.join(map(quoted, some))})")
        return f"({' & '.join(wanted)}) | '{_LARGE}'"

    def upto(self) -> int:
        found: int = self._store.query(_UPTO)[0][0]
        return found

    def candidates(self, expression: str, upto: int, most: int) -> list[int] | None:
        return [number for (number,) in self._store.query(_CANDIDATES, [expression, upto, most])]

    def fill(self) -> int:
        """Add the next letters in one transaction, and return how many; 0 also if another process fills it."""
        sql = self._store.database.sql
        with self._store.database.connection() as connection, translated(), connection.transaction():
            connection.execute("SELECT set_config('synchronous_commit', 'off', true)")
            if connection.execute(sql(_ALONE)).fetchone() != (True,):
                return 0
            upto = (connection.execute(sql(_UPTO)).fetchone() or (0,))[0]
            found = connection.execute(sql(_TAIL), [upto, common.SLICE]).fetchall()
            connection.cursor().executemany(sql(_ADD), [_entry(*row) for row in found])
            return len(found)

    def is_behind(self, run: common.RunQuery, upto: int, letters: int) -> bool:
        return bool(run(_HAS_MORE, [upto, letters]))

    def letters(self) -> int:
        return 0  # a deleted letter leaves the index with its row: it need never be made anew

    def discard(self) -> None:
        """Nothing: it is part of the room."""


def _entry(number: int, sum: int, body: bytes, sender: int, mailboxes: list[int]) -> tuple[int, list[str]]:
    """Return what is indexed for a letter; of a damaged one nothing."""
    try:
        message = rows.sound(sum, body)
    except Unreadable:
        return number, []
    return number, _words(message, {sender, *mailboxes})


def _words(message: Message, party: Iterable[int]) -> list[str]:
    found = {word[:LONGEST] for word in search_text(message).split()}
    found |= {common.PARTY + str(mailbox) for mailbox in party} | {common.EVERY, *common.words_of_marks(message)}
    return sorted(found) if sum(len(word.encode()) for word in found) < MOST else [_LARGE, common.EVERY]
