"""The tables that connect the index with the files: which file holds which delivery, and whose folder is whose.

They also note when each folder was last read, and the last journal line that the index contains. They stand in the
database of the index, so that one transaction keeps letters and files together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import NameTaken
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
# `max`: positions never go back, so that a rebuilt index keeps the order of acceptance (G7).
_ADD = f"INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, max(?, {_LAST_PLACE}))"
_UPDATE = """
UPDATE OR REPLACE files SET folder = ?3, name = ?4, inode = ?5, size = ?6, written = ?7
WHERE number = ?1 AND mailbox = ?2"""
_MOVE = "UPDATE OR REPLACE files SET folder = ?3 WHERE number = ?1 AND mailbox = ?2"
_AT = "SELECT folder, name FROM files WHERE number = ? AND mailbox = ?"
_BY_NAME = "SELECT number, mailbox, inode, size, written FROM files WHERE folder = ? AND name = ?"
# Steps from one folder to the next, however many letters lie in each.
_USED = """
WITH RECURSIVE used (folder) AS (
    SELECT min(folder) FROM files
    UNION ALL SELECT (SELECT min(f.folder) FROM files f WHERE f.folder > used.folder)
    FROM used WHERE used.folder IS NOT NULL
)
SELECT folder FROM used WHERE folder IS NOT NULL"""
_IN = "SELECT name, number, mailbox, inode, size, written FROM files WHERE folder = ?"


class IndexedFile(NamedTuple):
    """A file as the index knows it, with the delivery it holds."""

    number: int
    mailbox: int
    stamp: Stamp


class ChangedFile(NamedTuple):
    """A file that is new, or differs from what the index knows."""

    folder: str
    name: str
    stamp: Stamp
    held: IndexedFile | None = None  # what the index knows of it, if anything


class Ledger:
    """Access to these tables. Changes are made inside a transaction of the caller."""

    def __init__(self, database: apsw.Connection, layout: Layout) -> None:
        self._execute = database.cursor().execute  # one cursor: each result is read before the next call
        self._layout = layout

    def _ask(self, sql: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._execute(sql, values).fetchall()

    # -- files

    def path_of(self, number: int, mailbox: int) -> tuple[str, str] | None:
        """Return folder and name of the file of a delivery."""
        path: tuple[str, str] | None = self._execute(_AT, (number, mailbox)).get
        return path

    def file_at(self, folder: str, name: str) -> IndexedFile | None:
        for number, mailbox, *stamp in self._ask(_BY_NAME, (folder, name)):
            return IndexedFile(number, mailbox, Stamp(*stamp))
        return None

    def files_in(self, folder: str) -> dict[str, IndexedFile]:
        found = self._ask(_IN, (folder,))
        return {name: IndexedFile(number, mailbox, Stamp(*stamp)) for name, number, mailbox, *stamp in found}

    def add_file(self, number: int, mailbox: int, folder: str, name: str, stamp: Stamp, place: int) -> None:
        """Note the file of a delivery; `place` is the letter's position in time."""
        self._execute(_ADD, (number, mailbox, folder, name, *stamp, place))

    def update_file(self, number: int, mailbox: int, folder: str, name: str, stamp: Stamp) -> None:
        """Note a new path and stamp for the file of a delivery."""
        self._execute(_UPDATE, (number, mailbox, folder, name, *stamp))

    def move_file(self, number: int, mailbox: int, folder: str) -> None:
        """Note a new folder for the file of a delivery. If it is another file there, its stamp differs."""
        self._execute(_MOVE, (number, mailbox, folder))

    def drop_file(self, number: int, mailbox: int) -> None:
        self._execute("DELETE FROM files WHERE number = ? AND mailbox = ?", (number, mailbox))

    def drop_files_of(self, number: int) -> None:
        self._execute("DELETE FROM files WHERE number = ?", (number,))

    def files_of(self, number: int) -> list[tuple[int, str, str]]:
        """Return mailbox, folder and name of every file of a letter."""
        found = self._ask("SELECT mailbox, folder, name FROM files WHERE number = ?", (number,))
        return [(mailbox, folder, name) for mailbox, folder, name in found]

    def mark_changed(self, folder: str, names: set[str]) -> None:
        """Make these files count as changed, whatever their stamps say."""
        for name in filter(is_text, names):
            self._execute("UPDATE files SET written = 0 WHERE folder = ? AND name = ?", (folder, name))

    def last_place(self) -> int:
        """Return the position in time of the last letter."""
        return int(self._ask(f"SELECT {_LAST_PLACE}")[0][0])

    # -- folders

    def home_of(self, mailbox: int, name: str) -> str:
        """Return the folder of a mailbox, and assign one if it has none."""
        row = self._ask("SELECT folder FROM homes WHERE mailbox = ? LIMIT 1", (mailbox,))
        if row:
            return str(row[0][0])
        folder = self._layout.folder(name)
        self.assign_home(folder, mailbox, name)
        return folder

    def assign_home(self, folder: str, mailbox: int, name: str) -> None:
        """Assign a folder to a mailbox; raise NameTaken if it belongs to another one."""
        # Compared without case: on some disks `Bob` and `bob` are one folder.
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
        self._execute("INSERT OR IGNORE INTO homes VALUES (?, ?)", (folder, mailbox))

    def owner(self, folder: str) -> tuple[int, str] | None:
        """Return number and name of the mailbox that a folder belongs to."""
        sql = "SELECT m.id, m.name FROM homes h JOIN mailboxes m ON m.id = h.mailbox WHERE h.folder = ?"
        for number, name in self._ask(sql, (folder,)):
            return number, name
        return None

    def folder_times(self) -> dict[str, int]:
        return dict(self._ask("SELECT folder, changed FROM folders"))

    def set_folder_time(self, folder: str, changed: int) -> None:
        self._execute("INSERT OR REPLACE INTO folders VALUES (?, ?)", (folder, changed))

    def clear_folder_times(self) -> None:
        self._execute("DELETE FROM folders")

    def clear_folder_time(self, folder: str) -> None:
        """Forget when a folder was last read: if it is deleted and comes back, its time may be the old one."""
        self._execute("DELETE FROM folders WHERE folder = ?", (folder,))

    def used_folders(self) -> list[str]:
        """Return the folders that hold letters."""
        return [folder for (folder,) in self._ask(_USED)]

    # -- the journal

    def last_line(self) -> int:
        """Return the number of the last journal line that the index contains."""
        return int(self._ask("SELECT line FROM latest")[0][0])

    def next_line(self) -> int:
        self._execute("UPDATE latest SET line = line + 1")
        return self.last_line()

    def reach_line(self, line: int) -> None:
        self._execute("UPDATE latest SET line = max(line, ?)", (line,))
