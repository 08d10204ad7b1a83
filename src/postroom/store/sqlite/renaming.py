"""A mailbox gets another name. Its number stays, so its mail, and who remembers the number, go on as before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import NameTaken
from ...model.names import fold

if TYPE_CHECKING:
    import apsw

    from ..base import Rename


def rename(database: apsw.Connection, write: Rename) -> None:
    """Inside the transaction of a commit."""
    old, new = fold(write.old), fold(write.new)
    home = _mailbox(database, old)
    if home is None:
        home = _mailbox(database, new) or _make(database, write.new)
    elif old != new and _mailbox(database, new) is not None:
        raise NameTaken(f"somebody else is called {write.new!r}", field="new")
    for name in (old, new):
        meant = database.execute("SELECT mailbox FROM aliases WHERE folded = ?", (name,)).get
        if meant not in {None, home}:
            raise NameTaken(f"{name!r} was another's name", field="old" if name == old else "new")
    database.execute("DELETE FROM aliases WHERE folded = ?", (new,))
    database.execute("UPDATE mailboxes SET folded = ?, name = ? WHERE id = ?", (new, write.new, home))
    if old != new:
        database.execute("INSERT OR REPLACE INTO aliases VALUES (?, ?, ?)", (old, write.old, home))


def _mailbox(database: apsw.Connection, folded: str) -> int | None:
    found: int | None = database.execute("SELECT id FROM mailboxes WHERE folded = ?", (folded,)).get
    return found


def _make(database: apsw.Connection, name: str) -> int:
    insert = "INSERT INTO mailboxes (folded, name, known) VALUES (?, ?, 0) RETURNING id"
    made: int = database.execute(insert, (fold(name), name)).get
    return made
