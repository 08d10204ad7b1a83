"""Where damaged letters are kept: what is left of them, out of everybody's way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .names import NEXT_NUMBER
from .waiting import count_deliveries
from .writing import INSERT_CHANGE

if TYPE_CHECKING:
    import apsw


def quarantine(database: apsw.Connection, number: int) -> None:
    """Keep what is left of a damaged letter where nobody stumbles over it, and never give its number again."""
    id = database.execute("SELECT id FROM letters WHERE number = ?", (number,)).get
    if id is None:
        return  # another process was quicker
    change = database.execute(NEXT_NUMBER).get
    database.execute("INSERT INTO quarantine SELECT number, id, body FROM letters WHERE number = ?", (number,))
    count_deliveries(database.execute, number, 0, -1)
    database.execute("DELETE FROM letters WHERE number = ?", (number,))
    database.execute("DELETE FROM deliveries WHERE number = ?", (number,))
    database.execute(INSERT_CHANGE, (change, "forgot", None, id))
