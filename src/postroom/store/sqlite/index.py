"""The index of words: a file of its own beside the room, made from the room, safe to delete at any time.

It knows, for every word, the numbers of the letters that hold it (SQLite's FTS5, without their text), and up to
which number it is complete. It may lag behind, and it may speak of letters that are deleted by now. So whoever
asks looks at the newer letters themselves, and at every letter that is named. An index that is damaged, of another
room, of another version, or made of letters this room does not have (it was restored, or a power cut took them) is
thrown away and made anew.

A lock of its own keeps those who fill it apart. Nobody waits for it: who finds somebody filling, lets them.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

import apsw

from ...errors import StoreBusy, Unreadable
from ...model.record import FORGOTTEN
from .ground import create
from .identity import FileAt
from .index_words import EVERY_LETTER, said_by
from .lock import WriterLock
from .rows import sound

VERSION = 3  # of the tables here, and of what becomes a word
SLICE = 512  # letters indexed in one transaction
SLICE_BYTES = 4 * 1024 * 1024  # and no more than this of them
PATIENCE = 5.0  # seconds to wait, once, while others fill it; then the search does without

# automerge: fewer, wider merges than by default make filling a fifth cheaper, and searching no slower (measured)
_MAKE = f"""
CREATE TABLE about (
    room TEXT NOT NULL,         -- whose index this is
    version INTEGER NOT NULL,
    upto INTEGER NOT NULL,      -- every letter up to this number is in it
    last TEXT NOT NULL,         -- the id of the letter with that number
    letters INTEGER NOT NULL    -- how many are in it, with those deleted since
);
INSERT INTO about VALUES (?, {VERSION}, 0, '', 0);
CREATE VIRTUAL TABLE words USING fts5 (said, content = '', columnsize = 0, tokenize = 'ascii');
INSERT INTO words (words, rank) VALUES ('automerge', 8);"""
# The letter it ends with is in the room, or was and is remembered.
_IS_KNOWN = f"""
SELECT coalesce((SELECT id = ?2 FROM letters WHERE number = ?1),
    EXISTS (SELECT 1 FROM records WHERE kind = '{FORGOTTEN}' AND key = ?2)
    OR EXISTS (SELECT 1 FROM quarantine WHERE number = ?1 AND id = ?2))"""
_TAIL = """
SELECT number, sum, body, sender,
    (SELECT group_concat(mailbox, ' ') FROM deliveries d WHERE d.number = l.number)
FROM letters l WHERE number > ? ORDER BY number LIMIT ?"""
_ADD = "INSERT INTO words (rowid, said) VALUES (?, ?)"
_CANDIDATES = "SELECT rowid FROM words WHERE words MATCH ? AND rowid <= ? ORDER BY rowid DESC LIMIT ?"


class About(NamedTuple):
    """What an index says of itself."""

    room: str
    version: int
    upto: int
    last: str
    letters: int


class Untrue(Exception):
    """The index speaks of another room, or of letters this room does not have."""


_BROKEN = (Untrue, apsw.CorruptError, apsw.NotADBError, apsw.SQLError)  # throw it away
_UNAVAILABLE = (apsw.Error, OSError, StoreBusy)  # do without, for now


class Index:
    """One thread's hold on the index of a room. Nothing is opened before it is used."""

    def __init__(self, path: str, room: apsw.Connection) -> None:
        self._room = room
        self._path = f"{path}.search"
        self._lock_path = f"{self._path}.lock"
        self._at = FileAt(self._path)
        self._inode = -1
        self._database: apsw.Connection | None = None
        self._lock: WriterLock | None = None

    def upto(self, wait: float = PATIENCE) -> int:
        """The number up to which it is complete; 0 when there is none, or none that can be trusted.

        To open it takes its lock; `wait` is how many seconds that may take.
        """
        try:
            return self._complete_upto(self._open(wait))
        except (*_BROKEN, *_UNAVAILABLE):
            return 0

    def candidates(self, expression: str, upto: int, most: int) -> list[int] | None:
        """The newest letters, up to a number, that may be meant; None when the index has failed.

        Asked of the same file that said up to where it is complete, even if another took its place meanwhile.
        """
        try:
            if self._database is not None:
                return [number for (number,) in self._database.execute(_CANDIDATES, (expression, upto, most))]
        except _BROKEN:
            self.throw_away()
        except _UNAVAILABLE:
            pass
        return None

    def fill(self) -> int:
        """Add the next letters, in one transaction. How many; 0 when there are none, or somebody else is at it.

        It fails in silence: the index is never worth an error, because every search can do without.
        """
        try:
            with self._hold():
                try:
                    return self._add(self._sound_index())
                except _BROKEN:
                    self._remove()
        except _UNAVAILABLE:
            pass
        return 0

    def throw_away(self) -> None:
        """Whatever is wrong with it, the next one is right."""
        try:
            with self._hold():
                self._remove()
        except _UNAVAILABLE:
            self._let_go()

    def letters(self) -> int:
        """How many letters it is about, with those deleted since."""
        try:
            return self._about(self._open(PATIENCE)).letters
        except (*_BROKEN, *_UNAVAILABLE):
            return 0

    def close(self) -> None:
        self._let_go()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- the file

    def _hold(self) -> WriterLock:
        if self._lock is None:
            self._lock = WriterLock(self._lock_path, timeout=0)
        return self._lock

    def _open(self, wait: float) -> apsw.Connection:
        """The index that stands there now, opened under the lock: nobody puts it away meanwhile."""
        if self._database is not None and self._at.inode() == self._inode:
            return self._database
        self._let_go()
        self._at.inode()  # where there is none, nothing is made
        lock = WriterLock(self._lock_path, wait)
        try:
            with lock:
                return self._enter()
        finally:
            lock.close()

    def _enter(self) -> apsw.Connection:
        inode = self._at.inode()
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        database = apsw.Connection(self._path, flags=flags)
        database.set_busy_timeout(int(PATIENCE * 1000))
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        database.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        database.pragma("journal_mode", "wal")
        database.pragma("synchronous", "normal")  # after a power cut it is whole, and maybe behind
        self._database, self._inode = database, inode
        return database

    def _sound_index(self) -> apsw.Connection:
        """Under the lock: the index, made anew if it is not there or not to be trusted."""
        try:
            database = self._database
            if database is None or self._at.inode() != self._inode:
                self._let_go()
                database = self._enter()
            self._complete_upto(database)
        except (*_BROKEN, FileNotFoundError):
            self._remove()
            create(self._path)
            database = self._enter()
            with database:
                database.execute(_MAKE, (self._name(),))
        return database

    def _remove(self) -> None:
        """Under the lock: the file, and its log first, so that no log is ever left for another file."""
        self._let_go()
        for end in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}{end}")

    def _let_go(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    # -- what it says of itself

    def _about(self, database: apsw.Connection) -> About:
        found = database.execute("SELECT room, version, upto, last, letters FROM about").fetchall()
        if len(found) != 1:
            raise Untrue
        return About._make(found[0])

    def _complete_upto(self, database: apsw.Connection) -> int:
        about = self._about(database)
        if (about.room, about.version) != (self._name(), VERSION):
            raise Untrue
        if about.upto and not self._room.execute(_IS_KNOWN, (about.upto, about.last)).get:
            raise Untrue
        if about.upto and database.execute(_CANDIDATES, (EVERY_LETTER, about.upto, 1)).get != about.upto:
            raise Untrue  # not even the letter it ends with: a page of it was lost without a trace
        return about.upto

    def _name(self) -> str:
        name: str = self._room.execute("SELECT name FROM room").get
        return name

    # -- filling

    def _add(self, database: apsw.Connection) -> int:
        upto = self._complete_upto(database)
        found = self._next_letters(upto)
        if not found:
            return 0
        with database:
            database.executemany(_ADD, [(number, said) for number, _, said in found])
            number, id, _ = found[-1]
            about = "UPDATE about SET upto = ?, last = ?, letters = letters + ?"
            database.execute(about, (number, id, len(found)))
        return len(found)

    def _next_letters(self, upto: int) -> list[tuple[int, str, str]]:
        """Number, id and words of each. A damaged letter is left out: whoever reads it sets it aside."""
        found, size = [], 0
        for number, sum, body, sender, mailboxes in self._room.execute(_TAIL, (upto, SLICE)):
            try:
                message = sound(sum, body)
            except Unreadable:
                continue
            party = {sender, *map(int, (mailboxes or "").split())}
            found.append((number, message.id, said_by(message, party)))
            size += len(body)
            if size > SLICE_BYTES:
                break
        return found
