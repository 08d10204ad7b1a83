"""The index's own tables: which file holds which delivery, whose folder is whose, when each folder was last read.

They stand in the same database as the letters, so that one transaction keeps all of it together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import Damaged, NameTaken
from ..sqlite.rows import SALVAGE
from .durable import Stamp
from .tree import is_text

if TYPE_CHECKING:
    import apsw

    from .layouts.base import Layout


TABLES = """
CREATE TABLE IF NOT EXISTS files (
    number INTEGER NOT NULL,
    mailbox INTEGER NOT NULL,
    folder TEXT NOT NULL,       -- below the home of mailboxes
    name TEXT NOT NULL,
    inode INTEGER NOT NULL,
    size INTEGER NOT NULL,
    written INTEGER NOT NULL,
    place INTEGER NOT NULL,     -- in time: none up to this letter stands later in the order of acceptance
    PRIMARY KEY (number, mailbox)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS files_by_name ON files (folder, name);
CREATE TABLE IF NOT EXISTS homes (folder TEXT PRIMARY KEY, mailbox INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS homes_by_mailbox ON homes (mailbox);
CREATE TABLE IF NOT EXISTS folders (folder TEXT PRIMARY KEY, changed INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latest (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    line INTEGER NOT NULL       -- of the journal that this index knows of
);
INSERT OR IGNORE INTO latest VALUES (1, 0);"""
NAMES = ("files", "homes", "folders", "latest")
_LAST_PLACE = "coalesce((SELECT place FROM files ORDER BY number DESC LIMIT 1), 0)"
_KEEP = f"INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, max(?, {_LAST_PLACE}))"
_RELOCATE = """
UPDATE OR REPLACE files SET folder = ?3, name = ?4, inode = ?5, size = ?6, written = ?7
WHERE number = ?1 AND mailbox = ?2"""
_MOVE = "UPDATE OR REPLACE files SET folder = ?3 WHERE number = ?1 AND mailbox = ?2"
_SEATS = f"""
SELECT d.mailbox, iif(lower(m.name) = m.folded, m.name, NULL), {_LAST_PLACE},
       (SELECT folder FROM homes h WHERE h.mailbox = d.mailbox LIMIT 1)
FROM deliveries d JOIN mailboxes m ON m.id = d.mailbox WHERE d.number = ?"""
_AT = "SELECT folder, name FROM files WHERE number = ? AND mailbox = ?"
_BY_NAME = "SELECT number, mailbox, inode, size, written FROM files WHERE folder = ? AND name = ?"
# From one to the next, however many letters lie in each.
_USED = """
WITH RECURSIVE used (folder) AS (
    SELECT min(folder) FROM files
    UNION ALL SELECT (SELECT min(f.folder) FROM files f WHERE f.folder > used.folder)
    FROM used WHERE used.folder IS NOT NULL
)
SELECT folder FROM used WHERE folder IS NOT NULL"""
_IN = "SELECT name, number, mailbox, inode, size, written FROM files WHERE folder = ?"


class Seat(NamedTuple):
    """A mailbox that a letter goes to."""

    mailbox: int
    owner: str  # what it is called now
    latest: int = 0  # the place in time of the last letter before
    home: str | None = None  # its folder, if it has one


class Held(NamedTuple):
    """Which delivery a file holds, as far as we know."""

    number: int
    mailbox: int
    stamp: Stamp


class Seen(NamedTuple):
    """A file that is new, or not as it was."""

    folder: str
    name: str
    stamp: Stamp
    held: Held | None = None  # the delivery that it held before


class Ledger:
    """Inside a transaction, or to ask."""

    def __init__(self, database: apsw.Connection, layout: Layout) -> None:
        self._execute = database.cursor().execute  # one for all: each answer is read before the next question
        self._layout = layout

    def _ask(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._execute(sql, values).fetchall()

    # -- files

    def kept(self, number: int, mailbox: int) -> tuple[str, str] | None:
        """Folder and name of the file of a delivery, as far as we know."""
        kept: tuple[str, str] | None = self._execute(_AT, (number, mailbox)).get
        return kept

    def held(self, folder: str, name: str) -> Held | None:
        for number, mailbox, *stamp in self._ask(_BY_NAME, (folder, name)):
            return Held(number, mailbox, Stamp(*stamp))
        return None

    def held_in(self, folder: str) -> dict[str, Held]:
        found = self._ask(_IN, (folder,))
        return {name: Held(number, mailbox, Stamp(*stamp)) for name, number, mailbox, *stamp in found}

    def keep(self, number: int, mailbox: int, folder: str, name: str, stamp: Stamp, place: int) -> None:
        """The file of a letter that stands at this place in time."""
        self._execute(_KEEP, (number, mailbox, folder, name, *stamp, place))

    def relocate(self, number: int, mailbox: int, folder: str, name: str, stamp: Stamp) -> None:
        """A file that is known lies elsewhere, or is another."""
        self._execute(_RELOCATE, (number, mailbox, folder, name, *stamp))

    def move(self, number: int, mailbox: int, folder: str) -> None:
        """The same file lies elsewhere. Should it not be the same, its stamp tells."""
        self._execute(_MOVE, (number, mailbox, folder))

    def drop(self, number: int, mailbox: int) -> None:
        self._execute("DELETE FROM files WHERE number = ? AND mailbox = ?", (number, mailbox))

    def drop_all(self, number: int) -> None:
        self._execute("DELETE FROM files WHERE number = ?", (number,))

    def all_of(self, number: int) -> list[tuple[int, str, str]]:
        """Mailbox, folder and name of every file of a letter."""
        found = self._ask("SELECT mailbox, folder, name FROM files WHERE number = ?", (number,))
        return [(mailbox, folder, name) for mailbox, folder, name in found]

    def doubt(self, folder: str, names: set[str]) -> None:
        """Look at these again, whatever their stamps say."""
        for name in filter(is_text, names):
            self._execute("UPDATE files SET written = 0 WHERE folder = ? AND name = ?", (folder, name))

    def seats(self, number: int) -> list[Seat]:
        """Where a letter that was just accepted goes."""
        seats = [Seat(*row) for row in self._ask(_SEATS, (number,))]
        if not all(seat.owner for seat in seats):
            raise Damaged("the name of a mailbox is damaged", hint=SALVAGE)
        return seats

    # -- folders

    def home(self, mailbox: int, name: str) -> str:
        """The folder of a mailbox; the first mailbox that maps to one has it."""
        held = self._ask("SELECT folder FROM homes WHERE mailbox = ? LIMIT 1", (mailbox,))
        if held:
            return str(held[0][0])
        folder = self._layout.folder(name)
        self.settle(folder, mailbox, name)
        return folder

    def settle(self, folder: str, mailbox: int, name: str) -> None:
        """This folder is this mailbox's from now on, unless it is another's."""
        self._check_free(folder, mailbox, name)
        self._execute("INSERT OR IGNORE INTO homes VALUES (?, ?)", (folder, mailbox))

    def _check_free(self, folder: str, mailbox: int, name: str) -> None:
        sql = (
            "SELECT h.mailbox, m.name FROM homes h JOIN mailboxes m ON m.id = h.mailbox WHERE lower(h.folder) = ?"
        )
        for owner, first in self._ask(sql, (folder.lower(),)):
            if owner != mailbox:
                raise NameTaken(
                    f"the folder {folder!r} of {name!r} is that of {first!r}",
                    field="to",
                    hint=f"write to {first!r}",
                )

    def owner(self, folder: str) -> tuple[int, str] | None:
        """The mailbox whose folder this is, by number and name."""
        sql = "SELECT m.id, m.name FROM homes h JOIN mailboxes m ON m.id = h.mailbox WHERE h.folder = ?"
        for number, name in self._ask(sql, (folder,)):
            return number, name
        return None

    def resettle(self, former: str, folder: str, mailbox: int, name: str) -> None:
        """A mailbox's folder gets another name, and all that lies in it with it."""
        self._check_free(folder, mailbox, name)
        self._execute("UPDATE homes SET folder = ? WHERE folder = ?", (folder, former))
        moved = "UPDATE files SET folder = ?1 || substr(folder, ?3) WHERE folder = ?2 OR folder GLOB ?2 || '/*'"
        self._execute(moved, (folder, former, len(former) + 1))

    def noted(self) -> dict[str, int]:
        return dict(self._ask("SELECT folder, changed FROM folders"))

    def note(self, folder: str, changed: int) -> None:
        self._execute("INSERT OR REPLACE INTO folders VALUES (?, ?)", (folder, changed))

    def forget_notes(self) -> None:
        self._execute("DELETE FROM folders")

    def forget_note(self, folder: str) -> None:
        """Should it come back, it may have the time that it had."""
        self._execute("DELETE FROM folders WHERE folder = ?", (folder,))

    def used_folders(self) -> list[str]:
        """Where letters lie."""
        return [folder for (folder,) in self._ask(_USED)]

    # -- the journal

    def lines(self) -> int:
        """The last line of the journal that the index knows of."""
        return int(self._ask("SELECT line FROM latest")[0][0])

    def next_line(self) -> int:
        self._execute("UPDATE latest SET line = line + 1")
        return self.lines()

    def reach_line(self, line: int) -> None:
        self._execute("UPDATE latest SET line = max(line, ?)", (line,))
