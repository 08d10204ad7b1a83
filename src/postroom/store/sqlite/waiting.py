"""How many letters count towards a quota: kept in the table `waiting`, so that a send need not count them.

To change a row of it with every send would be one more page in the log, a sixth of a send. So the newest letters
are not in the kept counts: they are few (`EVERY`), are counted where a limit may be near, and are then taken in
together (`take_in`). Whatever changes or deletes deliveries of older letters changes the counts in the same
transaction: `count_moved` for the moves of a commit, `count_deliveries` for rows that are written or deleted by
other means. The doctor compares the kept counts with a real count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from ...model.address import system_of
from ...model.codec import encode
from ...model.names import AT, fold

if TYPE_CHECKING:
    from collections.abc import Callable

Place: TypeAlias = int | str  # a mailbox's id; of mail for another system, the folded name of that system
Execute: TypeAlias = "Callable[..., Any]"

EVERY = 32  # numbers after which the newest letters are taken into the counts
WIDE = 100  # recipients of one letter that is taken in at once
_FRESH = "(SELECT letters FROM waiting WHERE place = 0 AND sender = 0)"  # from this number on they are not
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
_ADD = f"INSERT INTO waiting VALUES (?1, 0, ?3), (?1, ?2, ?3) {_ADDED}"
_SENDER = f"SELECT sender FROM letters WHERE number = ?1 AND number < {_FRESH}"
_SENDERS = f"""
SELECT l.sender, count(*) FROM json_each(?) j JOIN letters l ON l.number = j.value
WHERE l.number < {_FRESH} GROUP BY 1"""
_COUNT_DELIVERIES = f"""
{_REALLY.format(those=f"d.number = ?1 AND ?2 IN (0, d.mailbox) AND d.number < {_FRESH}")}
INSERT INTO waiting SELECT place, sender, ?3 * letters FROM really WHERE true {_ADDED}"""
_TAKE_IN = f"""
{_REALLY.format(those=f"d.number >= {_FRESH} AND d.number < ?1")}
INSERT INTO waiting SELECT * FROM really WHERE true {_ADDED}"""
_TAKEN_IN = "INSERT OR REPLACE INTO waiting VALUES (0, 0, ?)"
_KEPT = "coalesce((SELECT letters FROM waiting WHERE place = ?1 AND sender = {sender}), 0)"
_WAITING = f"""
SELECT {_KEPT.format(sender=0)} + count(*), {_KEPT.format(sender="?2")} + count(*) FILTER (WHERE l.sender = ?2)
FROM letters l CROSS JOIN deliveries d ON d.number = l.number {{joined}}
WHERE l.number >= {_FRESH} AND {_WAITS} AND {{place}} = ?1"""
IN_INBOX = _WAITING.format(joined="", place="d.mailbox")
IN_OUTBOX = _WAITING.format(
    joined=f"JOIN mailboxes m ON m.id = d.mailbox AND instr(m.name, '{AT}')", place=_SYSTEM
)
_ALL_KEPT = "SELECT place, sender, letters FROM waiting WHERE letters <> 0 AND place <> 0"
WRONG = f"""
{_REALLY.format(those=f"d.number < {_FRESH}")}
SELECT count(*) + ({_FRESH} IS NULL)
FROM (SELECT place, sender FROM (SELECT * FROM really EXCEPT {_ALL_KEPT})
      UNION SELECT place, sender FROM ({_ALL_KEPT} EXCEPT SELECT * FROM really))"""


def place_of(name: str, mailbox: int) -> Place:
    """Where mail to this mailbox is counted: all mail for one other system counts together."""
    return fold(system_of(name)) if AT in name else mailbox


def waiting_at(execute: Execute, place: Place, sender: int) -> tuple[int, int]:
    """How many letters count there: of all senders, and of this one."""
    total, own = execute(IN_OUTBOX if isinstance(place, str) else IN_INBOX, (place, sender)).fetchall()[0]
    return total, own


def count_moved(execute: Execute, moved: dict[tuple[Place, int], list[int]]) -> None:
    """Count letters in that wait now and did not before (1), or out (-1): their numbers, by place and that."""
    for (place, by), numbers in moved.items():
        if len(numbers) > 1:
            for sender, many in execute(_SENDERS, (encode(numbers),)).fetchall():
                execute(_ADD, (place, sender, by * many))
        elif (sender := execute(_SENDER, numbers).get) is not None:
            execute(_ADD, (place, sender, by))


def count_deliveries(execute: Execute, number: int, mailbox: int, by: int) -> None:
    """Count those deliveries of a letter that wait, all (0) or of one mailbox, in (`by` 1) or out (-1). Call while
    they and the letter are in their tables.
    """
    execute(_COUNT_DELIVERIES, (number, mailbox, by))


def take_in(execute: Execute, number: int) -> None:
    """Take the letters before this number into the counts."""
    execute(_TAKE_IN, (number,))
    execute(_TAKEN_IN, (number,))


def recount(execute: Execute, number: int) -> None:
    """Count all letters before this number anew."""
    execute("DELETE FROM waiting")
    execute(_TAKEN_IN, (0,))
    take_in(execute, number)
