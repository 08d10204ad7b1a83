"""What stands in the registry's file, as far as we know: one row per agent, in the order in which they came.

Tables of the index, beside those of `ledger`. They can be lost: then the file and the cards tell.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ...model.hashing import blake2b
from ...model.record import BEAT, CARD
from .paper import Stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    agent TEXT UNIQUE NOT NULL,
    entry TEXT,             -- as it stands in the file; NULL: it is to be there no more
    older TEXT NOT NULL,    -- short hashes of what stood there before we changed it
    beat INTEGER NOT NULL,  -- the revision of the sign of life that it shows
    until REAL              -- the uptime from which it shows too much life; NULL: it shows none
);
CREATE TABLE IF NOT EXISTS registry (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    inode INTEGER NOT NULL,
    size INTEGER NOT NULL,
    written INTEGER NOT NULL,
    at REAL NOT NULL        -- the uptime when it was last published
);"""
NAMES = ("entries", "registry")
UNKNOWN = Stamp(0, 0, 0)  # of a file that must be looked at, whatever it looks like
_REMEMBERED = 16  # former versions of an entry by which a stale copy is known
_KEEP = """
INSERT INTO entries VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (agent) DO UPDATE SET entry = ?2, older = ?3, beat = ?4, until = ?5"""
_TEXT = """
SELECT group_concat('  ' || json_quote(agent) || ': ' || entry, char(44, 10) ORDER BY rowid)
FROM entries WHERE entry IS NOT NULL"""
_OUTDATED = """
SELECT e.agent FROM entries e JOIN records r ON r.kind = ? AND r.key = e.agent
WHERE e.entry IS NOT NULL AND (r.revision <> e.beat OR e.until < ?)"""


class Line(NamedTuple):
    """One agent's."""

    entry: Any = None  # None: it stands there no more, or never did
    older: tuple[str, ...] = ()


class Roll:
    """Inside a transaction, or to ask."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database

    def _ask(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._database.execute(sql, values).fetchall()

    def line(self, agent: str) -> Line:
        sql = "SELECT entry, older FROM entries WHERE agent = ?"
        for entry, older in self._ask(sql, agent):
            return Line(None if entry is None else json.loads(entry), tuple(older.split()))
        return Line()

    def keep(self, agent: str, entry: Any, older: Sequence[str]) -> None:
        """It was found there."""
        self._database.execute(_KEEP, (agent, _text(entry), " ".join(older), 0, None))

    def change(self, agent: str, entry: Any, *, beat: int = 0, until: float | None = None) -> None:
        """We write this instead: whoever puts back what stood there has an old copy."""
        line = self.line(agent)
        older = line.older if line.entry is None else (*line.older, sum_of(line.entry))[-_REMEMBERED:]
        text = None if entry is None else _text(entry)
        self._database.execute(_KEEP, (agent, text, " ".join(older), beat, until))

    def whole(self) -> dict[str, Any]:
        sql = "SELECT agent, entry FROM entries WHERE entry IS NOT NULL"
        return {agent: json.loads(entry) for agent, entry in self._ask(sql)}

    def text(self) -> bytes:
        """The file, as the design writes it. Put together from its lines: most of them did not change."""
        text: str | None = self._database.execute(_TEXT).get
        return b"{}" if text is None else f"{{\n{text}\n}}".encode()

    def everyone(self) -> list[str]:
        """All agents with a card."""
        sql = "SELECT key FROM records WHERE kind = ? ORDER BY key"
        return [agent for (agent,) in self._ask(sql, CARD)]

    def outdated(self, uptime: float) -> list[str]:
        """Agents that gave a sign of life since, or none for too long."""
        return [agent for (agent,) in self._ask(_OUTDATED, BEAT, uptime)]

    # -- the file

    def stamp(self) -> Stamp | None:
        """Of the file as one of us left it or last read it; None where there was none."""
        for row in self._ask("SELECT inode, size, written FROM registry"):
            return Stamp(*row)
        return None

    def published_at(self) -> float | None:
        at: float | None = self._database.execute("SELECT at FROM registry").get
        return at

    def note(self, stamp: Stamp | None, uptime: float) -> None:
        if stamp is None:
            self._database.execute("DELETE FROM registry")
        else:
            self._database.execute("INSERT OR REPLACE INTO registry VALUES (1, ?, ?, ?, ?)", (*stamp, uptime))


def sum_of(entry: Any) -> str:
    return blake2b(json.dumps(entry, sort_keys=True).encode(), digest_size=8).hexdigest()


def _text(entry: Any) -> str:
    """As it stands in the file, one step in; a line break inside a text is written otherwise."""
    return json.dumps(entry, ensure_ascii=False, indent=2).replace("\n", "\n  ")
