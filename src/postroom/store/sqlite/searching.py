"""A search: the newest letters one by one, the older ones by way of the index, each held to what was asked.

The index only suggests. Whether a letter is there, whether this reader may see it and whether it says what was
asked is decided by the letter itself, so that an index that is wrong can hide nothing new and show nothing false.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ...errors import PostroomError
from ..base import Letter
from ..searching import answers
from . import rows
from .asking import SHOWN
from .index_words import expression

if TYPE_CHECKING:
    from ...model.search import SearchQuery
    from .asking import Statement
    from .index import Index

LONG = 1000  # letters not in the index: with more, whoever sends or searches adds some
FEW = 100  # with more, the janitor adds them
SPARE = 10_000  # letters that are gone may stay in the index, besides as many as are there
FILLS = 8  # slices a search adds before it answers
PAGE = 256  # letters looked at in one go
LARGEST_PAGE = 2000
NEWEST = 2**62  # above every number

Ask = Callable[[str, list[Any]], list[rows.Row]]
Sound = Callable[..., list[Letter | None]]  # reads letters, and sets damaged ones aside

_LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM letters"
_HAS_MORE = "SELECT EXISTS (SELECT 1 FROM letters WHERE number > ? ORDER BY number LIMIT 1 OFFSET ?)"
_LETTERS = "SELECT l.number, l.sum, l.body FROM letters l WHERE"
_PARTY = (
    " AND (l.sender = ? OR EXISTS"
    f" (SELECT 1 FROM deliveries d WHERE d.number = l.number AND d.mailbox = ? AND d.state > 0 AND {SHOWN}))"
)


def is_behind(ask: Ask, upto: int, letters: int) -> bool:
    """Are there more letters than this after a number?"""
    return bool(ask(_LAST_NUMBER, [])[0][0] - upto > letters and ask(_HAS_MORE, [upto, letters])[0][0])


def catch_up(index: Index, ask: Ask) -> int:
    """Add all letters but a few, and begin anew when most of what is in it is gone. How many were added."""
    held = index.letters()
    if held > SPARE and held > 2 * ask("SELECT count(*) FROM letters", [])[0][0] + SPARE:
        index.throw_away()
    added = 0
    while is_behind(ask, index.upto(), FEW) and (slice := index.fill()):
        added += slice
    return added


def help_along(index: Index, ask: Ask) -> None:
    """By a sender whose letter is safe: add some letters, if the index lags far behind."""
    with suppress(PostroomError):  # the letter is sent, whatever becomes of the index
        if is_behind(ask, index.upto(wait=0), LONG):
            index.fill()


class Search:
    """One question, in a room in which the reader's mailbox has the number `party` (None: the whole room)."""

    def __init__(self, query: SearchQuery, reader: str | None, party: int | None) -> None:
        self._query = query
        self._reader = reader
        self._expression = expression(query, party)
        self._needed = [word.encode() for term in query.terms for word in term.words]
        pieces: list[tuple[str, list[Any]]] = []
        if party is not None:
            pieces.append((_PARTY, [party, party]))
        if query.after is not None:
            pieces.append((" AND l.created_at >= ?", [rows.micros(query.after)]))
        if query.before is not None:
            pieces.append((" AND l.created_at < ?", [rows.micros(query.before)]))
        self._where = "".join(piece for piece, _ in pieces)
        self._values = [value for _, values in pieces for value in values]

    def find(self, index: Index, ask: Ask, sound: Sound, limit: int) -> list[Letter]:
        upto = self._filled_upto(index, ask)
        found = self._scan(sound, NEWEST, upto, limit)
        below, page = upto, limit + PAGE // 8
        while below and len(found) < limit:
            numbers = index.candidates(self._expression, below, page)
            if numbers is None:  # the index has just failed: without it, then
                return found + self._scan(sound, below, 0, limit - len(found))
            found += self._keep(sound(self._fitting, self._named(numbers)))
            below = numbers[-1] - 1 if len(numbers) == page else 0
            page = min(4 * page, LARGEST_PAGE)
        return found[:limit]

    def _filled_upto(self, index: Index, ask: Ask) -> int:
        """From where on the letters must be looked at one by one: a short way, if a few fills can make it so."""
        upto = index.upto()
        for _ in range(FILLS):
            if not is_behind(ask, upto, LONG):
                break
            added = index.fill()
            upto = index.upto()  # whatever came of it: it may be another file by now
            if not added:
                break
        return upto

    def _scan(self, sound: Sound, top: int, upto: int, limit: int) -> list[Letter]:
        """Down from a number to the first that is in the index."""
        found: list[Letter] = []
        last: list[int] = []

        def look(row: rows.Row) -> Letter | None:
            last[:] = [row[0]]
            return self._fitting(row)

        while len(found) < limit:
            last.clear()
            page = sound(look, self._between(upto, top))
            found += self._keep(page)
            if len(page) < PAGE:
                break
            top = last[0] - 1
        return found[:limit]

    def _fitting(self, row: rows.Row) -> Letter | None:
        if not self._may_say(row[2]):
            return None
        letter = rows.letter(row)
        return letter if answers(letter.message, self._query, self._reader) else None

    def _may_say(self, body: Any) -> bool:
        """A quick look at the bytes: most letters say nothing of the kind. Only plain ASCII can be told so."""
        if not isinstance(body, bytes) or not body.isascii():
            return True
        lowered = body.lower()
        return all(word in lowered for word in self._needed)

    @staticmethod
    def _keep(found: list[Letter | None]) -> list[Letter]:
        return [letter for letter in found if letter is not None]

    def _between(self, upto: int, top: int) -> Statement:
        sql = f"{_LETTERS} l.number > ? AND l.number <= ?{self._where} ORDER BY l.number DESC LIMIT {PAGE}"
        return sql, [upto, top, *self._values]

    def _named(self, numbers: list[int]) -> Statement:
        sql = f"{_LETTERS} l.number IN (SELECT value FROM json_each(?)){self._where} ORDER BY l.number DESC"
        return sql, [str(numbers), *self._values]
