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
from .index import SLICE
from .index_words import expression

if TYPE_CHECKING:
    from ...model.search import SearchQuery
    from .asking import Statement
    from .index import Index

LONG = 1000  # letters not in the index: with more, whoever sends or searches adds some
FEW = 100  # with more, the janitor adds them
SPARE = 10_000  # letters that are gone may stay in the index, besides as many as are there
FILLS = 8  # slices a search adds for the next one
MOST_FILLS = 64  # likewise, if it had to look at very many letters: about a second
PAGE = 256  # letters looked at in one go
LARGEST_PAGE = 2000
NEWEST = 2**62  # above every number

Ask = Callable[[str, list[Any]], list[rows.Row]]
Sound = Callable[..., list[Letter | None]]  # reads letters, and sets damaged ones aside

_LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM letters"
_HAS_MORE = "SELECT EXISTS (SELECT 1 FROM letters WHERE number > ? ORDER BY number LIMIT 1 OFFSET ?)"
_BODIES = "SELECT l.number, l.body FROM letters l WHERE"
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
        self._looked_at = 0  # letters, one by one
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
        upto = index.upto()
        found = self._scan(ask, sound, NEWEST, upto, limit)
        if len(found) < limit:
            found += self._older(index, ask, sound, upto, limit - len(found))
            self._add_some(index, ask, upto)
        return found

    def _older(self, index: Index, ask: Ask, sound: Sound, upto: int, limit: int) -> list[Letter]:
        """By way of the index."""
        found: list[Letter] = []
        below, page = upto, limit + PAGE // 8
        while below and len(found) < limit:
            numbers = index.candidates(self._expression, below, page)
            if numbers is None:  # the index has just failed: without it, then
                return found + self._scan(ask, sound, below, 0, limit - len(found))
            found += self._read(sound, numbers)
            below = numbers[-1] - 1 if len(numbers) == page else 0
            page = min(4 * page, LARGEST_PAGE)
        return found[:limit]

    def _add_some(self, index: Index, ask: Ask, upto: int) -> None:
        """For the next search: what had to be looked at one by one, if it was much. It takes about as long again
        as the looking, because to add a letter costs as much as to look at it eight times or so.
        """
        for _ in range(min(max(FILLS, self._looked_at // (8 * SLICE)), MOST_FILLS)):
            if not is_behind(ask, upto, LONG) or not index.fill():
                break
            upto = index.upto()

    def _scan(self, ask: Ask, sound: Sound, top: int, upto: int, limit: int) -> list[Letter]:
        """Down from a number to the first that is in the index."""
        found: list[Letter] = []
        while len(found) < limit:
            page = ask(*self._between(upto, top))
            self._looked_at += len(page)
            found += self._read(sound, self._likely(page))
            if len(page) < PAGE:
                break
            top = page[-1][0] - 1
        return found[:limit]

    def _likely(self, page: list[rows.Row]) -> list[int]:
        """Those that may say it. Most pages do not hold the words at all, and that is seen at one glance."""
        plain = {number: body for number, body in page if _is_plain(body)}
        if self._needed and not self._says(b"\n".join(plain.values())):
            return [number for number, _ in page if number not in plain]
        return [number for number, body in page if number not in plain or self._says(body)]

    def _read(self, sound: Sound, numbers: list[int]) -> list[Letter]:
        return [found for found in sound(self._fitting, self._named(numbers)) if found] if numbers else []

    def _fitting(self, row: rows.Row) -> Letter | None:
        if _is_plain(row[2]) and not self._says(row[2]):
            return None
        letter = rows.letter(row)
        return letter if answers(letter.message, self._query, self._reader) else None

    def _says(self, plain: bytes) -> bool:
        """A quick look at the bytes: most letters say nothing of the kind."""
        lowered = plain.lower()
        return all(word in lowered for word in self._needed)

    def _between(self, upto: int, top: int) -> Statement:
        sql = f"{_BODIES} l.number > ? AND l.number <= ?{self._where} ORDER BY l.number DESC LIMIT {PAGE}"
        return sql, [upto, top, *self._values]

    def _named(self, numbers: list[int]) -> Statement:
        sql = f"{_LETTERS} l.number IN (SELECT value FROM json_each(?)){self._where} ORDER BY l.number DESC"
        return sql, [str(numbers), *self._values]


def _is_plain(body: Any) -> bool:
    """In other bytes than those of ASCII a word may be written in many ways."""
    return isinstance(body, bytes) and body.isascii()
