"""What one connection remembers of the room between two commits, so that it need not ask again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...model.names import AT, fold
from ...model.record import FORGOTTEN, GUARD, ROUTE, SPENT
from .. import sqlite

if TYPE_CHECKING:
    import apsw

NEXT_NUMBER = """
SELECT max(coalesce((SELECT max(number) FROM letters), 0), coalesce((SELECT max(number) FROM changes), 0)) + 1"""
# In a bare room none of these is there: nothing can be in the way of a letter but a letter.
IN_THE_WAY = (FORGOTTEN, GUARD, SPENT)
IS_LED = f"EXISTS (SELECT 1 FROM records WHERE kind = '{ROUTE}')"  # is anybody known to be elsewhere?
LOOK = f"{NEXT_NUMBER}, NOT EXISTS (SELECT 1 FROM records WHERE kind IN {IN_THE_WAY}), {IS_LED}"
_UNKNOWN = (-1, -1)


class Names:
    """Mailbox names ⇄ numbers, as they were committed; and, while nobody else writes, the next number."""

    def __init__(self, database: apsw.Connection) -> None:
        self._database = database
        self.cursor = database.cursor()  # for all that is written: each answer is read before the next question
        self.committed: dict[str, tuple[int, bool]] = {}
        self.as_of = 0  # while this is the next number, nobody else has written since, and all of it holds
        self.is_bare: bool | None = None  # as of then. Once it is not, every letter asks for itself
        self.is_led = False  # as of then
        self.seal = _UNKNOWN

    def note(self, number: int, *, is_bare: bool, is_led: bool, alone: bool) -> None:
        """Committed; this is the next number. `alone`: nothing else was written in that transaction."""
        self.as_of = number
        self.is_bare, self.is_led = is_bare, is_led
        self.seal = self.sealed() if alone else _UNKNOWN

    def forget(self) -> None:
        """What was noted was not committed after all."""
        self.committed.clear()
        self.as_of, self.is_bare, self.seal = 0, None, _UNKNOWN

    def is_placed(self, name: str) -> bool:
        """Does it say a system, or is somebody here known by it?"""
        held = self.committed.get(name)
        if AT in name or (held is not None and held[1]):
            return True
        return self.cursor.execute(sqlite.counting.IS_KNOWN, (fold(name),)).get is not None

    def sealed(self) -> tuple[int, int]:
        """In a transaction: while it is the same as the seal, the number that was noted is still the next one. It
        is another one after every write: of others, says SQLite's version; of ours, its count of changes.
        """
        return self._database.data_version(), self._database.total_changes()
