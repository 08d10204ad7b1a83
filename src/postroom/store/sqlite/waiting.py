"""The kept counts of letters that count towards a quota (table `waiting`).

Whoever inserts, changes or deletes deliveries changes the counts in the same transaction: `Counts` for the writes
of a commit, `add_deliveries` for rows that are written or deleted by other means. The doctor compares them with a
real count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...model.address import system_of
from ...model.codec import encode
from ...model.names import AT, fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import apsw

Place = int | str  # a mailbox's id; of mail for another system, the folded name of that system

_ADDED = "ON CONFLICT DO UPDATE SET letters = letters + excluded.letters"
_ADD = f"INSERT INTO waiting VALUES (?1, 0, ?3), (?1, ?2, ?3) {_ADDED}"
WAITING = """
SELECT coalesce((SELECT letters FROM waiting WHERE place = ?1 AND sender = 0), 0),
       coalesce((SELECT letters FROM waiting WHERE place = ?1 AND sender = ?2), 0)"""
_SENDER = "SELECT sender FROM letters WHERE number = ?"
_SENDERS = "SELECT l.number, l.sender FROM json_each(?) j JOIN letters l ON l.number = j.value"
_REST = f"substr(m.name, instr(m.name, '{AT}') + 1)"  # behind the first @, up to the first /, stands the system
_PLACE = f"iif(instr(m.name, '{AT}'), lower(substr({_REST}, 1, instr({_REST} || '/', '/') - 1)), m.id)"
_REAL = f"""
WITH counted AS (
    SELECT {_PLACE} AS place, l.sender AS sender, count(*) AS letters
    FROM deliveries d JOIN letters l ON l.number = d.number JOIN mailboxes m ON m.id = d.mailbox
    WHERE d.state < 3 AND d.seen = 0 {{of}} GROUP BY 1, 2
), really AS (SELECT * FROM counted UNION ALL SELECT place, 0, sum(letters) FROM counted GROUP BY place)"""
_ADD_DELIVERIES = f"""
{_REAL.format(of="AND d.number = ?1 AND ?2 IN (0, d.mailbox)")}
INSERT INTO waiting SELECT place, sender, ?3 * letters FROM really WHERE true {_ADDED}"""
_KEPT = "SELECT place, sender, letters FROM waiting WHERE letters <> 0"
WRONG = f"""
{_REAL.format(of="")}
SELECT count(*) FROM (SELECT place, sender FROM (SELECT * FROM really EXCEPT {_KEPT})
                      UNION SELECT place, sender FROM ({_KEPT} EXCEPT SELECT * FROM really))"""
FILL = f"{_REAL.format(of='')} INSERT INTO waiting SELECT * FROM really"


def place_of(name: str, mailbox: int) -> Place:
    """Where mail to this mailbox is counted: all mail for one other system counts together."""
    return fold(system_of(name)) if AT in name else mailbox


def add_deliveries(execute: Callable[..., Any], number: int, mailbox: int, by: int) -> None:
    """Count those deliveries of a letter that wait, all or of one mailbox, in (`by` 1) or out (-1). Call while
    they and the letter are in their tables.
    """
    execute(_ADD_DELIVERIES, (number, mailbox, by))


def rebuild(database: apsw.Connection) -> None:
    """Count everything anew. In a transaction."""
    database.execute("DELETE FROM waiting")
    database.execute(FILL)


class Counts:
    """The changes of one transaction to the counts; `flush` writes them."""

    def __init__(self, execute: Callable[..., Any], execute_many: Callable[..., Any]) -> None:
        self._execute, self._execute_many = execute, execute_many
        self._changes: dict[tuple[Place, int], int] = {}

    def add(self, place: Place, sender: int, by: int = 1) -> None:
        at = (place, sender)
        self._changes[at] = self._changes.get(at, 0) + by

    def add_moved(self, moved: list[tuple[int, Place, int]]) -> None:
        """Deliveries that wait now and did not before, or the other way round: (letter, place, 1 or -1)."""
        if len(moved) == 1:
            number, place, by = moved[0]
            self.add(place, self._execute(_SENDER, (number,)).get, by)
        elif moved:
            numbers = encode([number for number, _, _ in moved])
            senders = dict(self._execute(_SENDERS, (numbers,)).fetchall())
            for number, place, by in moved:
                self.add(place, senders[number], by)

    def waiting(self, place: Place, sender: int) -> tuple[int, int]:
        """How many letters count there: of all senders, and of this one."""
        self.flush()
        total, own = self._execute(WAITING, (place, sender)).fetchall()[0]
        return total, own

    def flush(self) -> None:
        if not self._changes:
            return
        rows: Iterable[tuple[Place, int, int]] = [(*at, by) for at, by in self._changes.items() if by]
        self._changes.clear()
        self._execute_many(_ADD, rows)
