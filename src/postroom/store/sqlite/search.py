"""What stands in the index for a letter, and how the index is asked: nothing but words, on both sides.

What is written on a letter (who sent it, its tags, whose mail it is) stands there as words too, which no text can
hold: they begin with a character of private use, and such characters part words in texts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
from msgspec.structs import replace

from ...errors import PostroomError, StoreBusy, Unreadable
from ...model.codec import blake2b
from ...model.query import BREAK, Marks, has_controls, texts, words
from ...model.record import FORGOTTEN
from ..matching import answers, any_name, marks_of
from ..protocol import Letter
from . import rows
from .ground import FileAt, create
from .lock import WriterLock
from .queries import SHOWN
from .rows import sound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model.message import Message
    from ...model.query import SearchQuery, Term
    from .queries import Statement


_EVERY = "\ue001"
_PARTY = "\ue002"
EVERY_LETTER = f'"{_EVERY}"'  # finds all that is in the index
_SIGN = dict(zip(Marks.__struct_fields__, "\ue003\ue004\ue005\ue006\ue007", strict=True))


def said_by(message: Message, party: Iterable[int]) -> str:
    """All words of a letter, and its marks as words."""
    fields = [
        text if text.isascii() and not has_controls(text) else " ".join(words(text)) for text in texts(message)
    ]
    marks = [_mark(name, value) for name, value in _pairs(marks_of(message))]
    mailboxes = [f"{_PARTY}{mailbox}" for mailbox in party]
    return f" {BREAK} ".join([*fields, " ".join([_EVERY, *mailboxes, *marks])])


def expression(query: SearchQuery, party: int | None) -> str:
    """The query for FTS5. Everything stands in quotes, and holds nothing but words: no input is syntax.

    Recipients are not left out here: one that the reader may not see must not make a difference.
    """
    wanted = [EVERY_LETTER if party is None else _quoted(f"{_PARTY}{party}")]
    wanted += [_phrase(term) for term in query.terms]
    wanted += _any_of("senders", any_name(query, query.wanted.senders))
    for recipient in query.wanted.recipients:
        wanted += _any_of("recipients", query.names_of(recipient))
    for name in ("kinds", "threads"):
        wanted += _any_of(name, getattr(query.wanted, name))
    wanted += [_quoted(_mark("tags", tag)) for tag in query.wanted.tags]
    unwanted = replace(query.unwanted, senders=tuple(any_name(query, query.unwanted.senders)), recipients=())
    without = [_phrase(term) for term in query.without]
    without += [_quoted(_mark(name, value)) for name, value in _pairs(unwanted)]
    return f"({' AND '.join(wanted)})" + "".join(f" NOT {phrase}" for phrase in without)


def _any_of(name: str, values: Iterable[str]) -> list[str]:
    marks = [_quoted(_mark(name, value)) for value in values]
    return [f"({' OR '.join(marks)})"] if marks else []


def _phrase(term: Term) -> str:
    return _quoted(" ".join(term.words)) + ("*" if term.begins else "")


def _quoted(words: str) -> str:
    return f'"{words}"'


def _pairs(marks: Marks) -> list[tuple[str, str]]:
    return [(name, value) for name in Marks.__struct_fields__ for value in getattr(marks, name)]


@lru_cache(maxsize=4096)
def _mark(name: str, value: str) -> str:
    return _SIGN[name] + blake2b(value.encode(), digest_size=8).hexdigest()


# The index of words: a file of its own beside the room, made from the room, safe to delete at any time.
#
# It knows, for every word, the numbers of the letters that hold it (SQLite's FTS5, without their text), and up to
# which number it is complete. It may lag behind, and it may speak of letters that are deleted by now. So whoever
# asks looks at the newer letters themselves, and at every letter that is named. An index that is damaged, of
# another
# room, of another version, or made of letters this room does not have (it was restored, or a power cut took them)
# is
# thrown away and made anew.
#
# A lock of its own keeps those who fill it apart. Nobody waits for it: who finds somebody filling, lets them.

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
            database.executemany(_ADD, [(number, value) for number, _, value in found])
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


# A search: the newest letters one by one, the older ones by way of the index, each held to what was asked.
#
# The index only suggests. Whether a letter is there, whether this reader may see it and whether it says what was
# asked is decided by the letter itself, so that an index that is wrong can hide nothing new and show nothing
# false.

LONG = 1000  # letters not in the index: with more, whoever sends or searches adds some
FEW = 100  # with more, the janitor adds them
SPARE = 10_000  # letters that are gone may stay in the index, besides as many as are there
FILLS = 8  # slices a search adds for the next one
MOST_FILLS = 64  # likewise, if it had to look at very many letters: about a second
PAGE = 256  # letters looked at in one go
LARGEST_PAGE = 2000
NEWEST = 2**62  # above every number

Ask = Callable[[str, list[Any]], list[rows.Row]]
Sound = Callable[..., list[Letter | None]]  # reads letters, and sets damaged ones aside

_LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM letters"
_HAS_MORE = "SELECT EXISTS (SELECT 1 FROM letters WHERE number > ? ORDER BY number LIMIT 1 OFFSET ?)"
_BODIES = "SELECT l.number, l.body FROM letters l WHERE"
_LETTERS = "SELECT l.number, l.sum, l.body FROM letters l WHERE"
_PARTY_SQL = (
    " AND (l.sender = ? OR EXISTS"
    f" (SELECT 1 FROM deliveries d WHERE d.number = l.number AND d.mailbox = ? AND d.state > 0 AND {SHOWN}))"
)


def is_behind(ask: Ask, upto: int, letters: int) -> bool:
    """Are there more letters than this after a number?"""
    return bool(ask(_LAST_NUMBER, [])[0][0] - upto > letters and ask(_HAS_MORE, [upto, letters])[0][0])


def catch_up(index: Index, ask: Ask) -> int:
    """Add all letters but a few, and begin anew when most of what is in it is gone. How many were added."""
    held = index.letters()
    if held > SPARE and held > 2 * ask("SELECT count(*) FROM letters", [])[0][0] + SPARE:
        index.throw_away()
    added = 0
    while is_behind(ask, index.upto(), FEW) and (slice := index.fill()):
        added += slice
    return added


def help_along(index: Index, ask: Ask) -> None:
    """By a sender whose letter is safe: add some letters, if the index lags far behind."""
    with suppress(PostroomError):  # the letter is sent, whatever becomes of the index
        if is_behind(ask, index.upto(wait=0), LONG):
            index.fill()


class Search:
    """One question, in a room in which the reader's mailbox has the number `party` (None: the whole room)."""

    def __init__(self, query: SearchQuery, reader: str | None, party: int | None) -> None:
        self._query = query
        self._reader = reader
        self._looked_at = 0  # letters, one by one
        self._expression = expression(query, party)
        self._needed = [word.encode() for term in query.terms for word in term.words]
        pieces: list[tuple[str, list[Any]]] = []
        if party is not None:
            pieces.append((_PARTY_SQL, [party, party]))
        if query.after is not None:
            pieces.append((" AND l.created_at >= ?", [rows.micros(query.after)]))
        if query.before is not None:
            pieces.append((" AND l.created_at < ?", [rows.micros(query.before)]))
        self._where = "".join(piece for piece, _ in pieces)
        self._values = [value for _, values in pieces for value in values]

    def find(self, index: Index, ask: Ask, sound: Sound, limit: int) -> list[Letter]:
        upto = index.upto()
        found = self._scan(ask, sound, NEWEST, upto, limit)
        if len(found) < limit:
            found += self._older(index, ask, sound, upto, limit - len(found))
            self._add_some(index, ask, upto)
        return found

    def _older(self, index: Index, ask: Ask, sound: Sound, upto: int, limit: int) -> list[Letter]:
        """By way of the index."""
        found: list[Letter] = []
        below, page = upto, limit + PAGE // 8
        while below and len(found) < limit:
            numbers = index.candidates(self._expression, below, page)
            if numbers is None:  # the index has just failed: without it, then
                return found + self._scan(ask, sound, below, 0, limit - len(found))
            found += self._read(sound, numbers)
            below = numbers[-1] - 1 if len(numbers) == page else 0
            page = min(4 * page, LARGEST_PAGE)
        return found[:limit]

    def _add_some(self, index: Index, ask: Ask, upto: int) -> None:
        """For the next search: what had to be looked at one by one, if it was much. It takes about as long again
        as the looking, because to add a letter costs as much as to look at it eight times or so.
        """
        for _ in range(min(max(FILLS, self._looked_at // (8 * SLICE)), MOST_FILLS)):
            if not is_behind(ask, upto, LONG) or not index.fill():
                break
            upto = index.upto()

    def _scan(self, ask: Ask, sound: Sound, top: int, upto: int, limit: int) -> list[Letter]:
        """Down from a number to the first that is in the index."""
        found: list[Letter] = []
        while len(found) < limit:
            page = ask(*self._between(upto, top))
            self._looked_at += len(page)
            found += self._read(sound, self._likely(page))
            if len(page) < PAGE:
                break
            top = page[-1][0] - 1
        return found[:limit]

    def _likely(self, page: list[rows.Row]) -> list[int]:
        """Those that may say it. Most pages do not hold the words at all, and that is seen at one glance."""
        plain = {number: body for number, body in page if _is_plain(body)}
        if self._needed and not self._says(b"\n".join(plain.values())):
            return [number for number, _ in page if number not in plain]
        return [number for number, body in page if number not in plain or self._says(body)]

    def _read(self, sound: Sound, numbers: list[int]) -> list[Letter]:
        return [found for found in sound(self._fitting, self._named(numbers)) if found] if numbers else []

    def _fitting(self, row: rows.Row) -> Letter | None:
        if _is_plain(row[2]) and not self._says(row[2]):
            return None
        letter = rows.letter(row)
        return letter if answers(letter.message, self._query, self._reader) else None

    def _says(self, plain: bytes) -> bool:
        """A quick look at the bytes: most letters say nothing of the kind."""
        lowered = plain.lower()
        return all(word in lowered for word in self._needed)

    def _between(self, upto: int, top: int) -> Statement:
        sql = f"{_BODIES} l.number > ? AND l.number <= ?{self._where} ORDER BY l.number DESC LIMIT {PAGE}"
        return sql, [upto, top, *self._values]

    def _named(self, numbers: list[int]) -> Statement:
        sql = f"{_LETTERS} l.number IN (SELECT value FROM json_each(?)){self._where} ORDER BY l.number DESC"
        return sql, [str(numbers), *self._values]


def _is_plain(body: Any) -> bool:
    """In other bytes than those of ASCII a word may be written in many ways."""
    return isinstance(body, bytes) and body.isascii()


# When a sender helps with the index of words: now and then, its own letter being safe.
#
# To add a letter costs a tenth of sending it, which is too much for those who send one after the other. They do a
# sixteenth of it, and leave the rest to those who search and to the janitor. For a process that sends but one
# letter
# it is next to nothing: such processes keep up with all that they send.

OFTEN = 256  # the first letter of a process: if its number is a multiple of this, it looks
RARELY = 8192  # likewise for each later letter


class Lookout:
    def __init__(self) -> None:
        self._has_sent = False

    def is_due(self, number: int, letters: int) -> bool:
        """By the number of the last of some letters, and not by a count: whoever else sends, only one gets it."""
        if self._has_sent:
            return number % RARELY < letters
        self._has_sent = True
        return number % OFTEN == 0
