"""How many letters count towards a quota: kept in the table `waiting`, so that a send need not count them.

Whatever writes, changes or deletes deliveries changes the counts in the same transaction: `COUNT_ONE` for a letter
to one mailbox and for each move, `count_deliveries` for all else. The doctor compares them with a real count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ...model.address import system_of
from ...model.names import AT, fold

if TYPE_CHECKING:
    from collections.abc import Callable

Place: TypeAlias = int | str  # a mailbox's id; of mail for another system, the folded name of that system
Execute: TypeAlias = "Callable[..., Any]"

_REST = f"substr(m.name, instr(m.name, '{AT}') + 1)"  # behind the first @, up to the first /, stands the system
_SYSTEM = f"lower(substr({_REST}, 1, instr({_REST} || '/', '/') - 1))"
_PLACE = f"iif(instr(m.name, '{AT}'), {_SYSTEM}, m.id)"
_WAITS = "d.state < 3 AND d.seen = 0"
_REALLY = f"""
WITH counted AS (
    SELECT {_PLACE} AS place, l.sender AS sender, count(*) AS letters
    FROM deliveries d JOIN letters l ON l.number = d.number JOIN mailboxes m ON m.id = d.mailbox
    WHERE {_WAITS} AND {{those}} GROUP BY 1, 2
), really AS (SELECT * FROM counted UNION ALL SELECT place, 0, sum(letters) FROM counted GROUP BY place)"""
_ADDED = "ON CONFLICT DO UPDATE SET letters = letters + excluded.letters"
# Parameters: a place, the number of a letter, and 1 (it waits there now) or -1 (it no longer does).
COUNT_ONE = f"""
INSERT INTO waiting SELECT ?1, 0, ?3 FROM letters WHERE number = ?2
UNION ALL SELECT ?1, sender, ?3 FROM letters WHERE number = ?2 {_ADDED}"""
_COUNT_DELIVERIES = f"""
{_REALLY.format(those="d.number = ?1 AND ?2 IN (0, d.mailbox)")}
INSERT INTO waiting SELECT place, sender, ?3 * letters FROM really WHERE true {_ADDED}"""
_KEPT = "coalesce((SELECT letters FROM waiting WHERE place = ?1 AND sender = {sender}), 0)"
WAITING = f"SELECT {_KEPT.format(sender=0)}, {_KEPT.format(sender='?2')}"
_ALL_KEPT = "SELECT place, sender, letters FROM waiting WHERE letters <> 0"
_ALL_REALLY = _REALLY.format(those="true")
WRONG = f"""
{_ALL_REALLY}
SELECT count(*)
FROM (SELECT place, sender FROM (SELECT * FROM really EXCEPT {_ALL_KEPT})
      UNION SELECT place, sender FROM ({_ALL_KEPT} EXCEPT SELECT * FROM really))"""


def place_of(name: str, mailbox: int) -> Place:
    """Where mail to this mailbox is counted: all mail for one other system counts together."""
    return fold(system_of(name)) if AT in name else mailbox


def waiting_at(execute: Execute, place: Place, sender: int) -> tuple[int, int]:
    """How many letters count there: of all senders, and of this one."""
    total, own = execute(WAITING, (place, sender)).fetchall()[0]
    return total, own


def count_deliveries(execute: Execute, number: int, mailbox: int, by: int) -> None:
    """Count those deliveries of a letter that wait, all (0) or of one mailbox, in (`by` 1) or out (-1). Call while
    they and the letter are in their tables.
    """
    execute(_COUNT_DELIVERIES, (number, mailbox, by))


def recount(execute: Execute) -> None:
    """Count all letters anew."""
    execute("DELETE FROM waiting")
    execute(f"{_ALL_REALLY} INSERT INTO waiting SELECT * FROM really")
