"""Text search: the text index in a file of its own, and searches that use it.

The index is derived from the room and safe to delete at any time. For every word it holds the numbers of the
letters with it (SQLite's FTS5, without their text), and the number up to which it is complete. It may lag
behind, and it may name letters that are deleted by now. An index that is damaged, of another room or version, or
made of letters that this room does not have (it was restored, or a power cut took them) is deleted and rebuilt.
A lock of its own keeps writers of the index apart; a process that finds it taken goes on without waiting.

The index only suggests. A search scans the letters that are not indexed yet, and checks every letter that the
index names: whether it exists, whether this reader may see it and whether it matches. So a wrong index can show
nothing false and hide nothing new.

Sender, tags, mailboxes and other marks of a letter are indexed as words too. They begin with a character of
private use, which separates words in texts, so no text can contain them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
from msgspec.structs import replace

from ...errors import StoreBusy, Unreadable
from ...model.codec import blake2b
from ...model.names import fold
from ...model.record import FORGOTTEN
from ...model.search import BREAK, Marks, has_controls, search_text, texts, words
from ..protocol import Letter
from ..queries import LETTERS, SHOWN
from . import rows
from .ground import create
from .lock import WriterLock

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...model.message import Message
    from ...model.search import SearchQuery, Term
    from ..queries import Queries, Statement


EVERY = "\ue001"
PARTY = "\ue002"
EVERY_LETTER = f'"{EVERY}"'  # matches every letter in the index
_SIGN = dict(zip(Marks.__struct_fields__, "\ue003\ue004\ue005\ue006\ue007", strict=True))


def index_text(message: Message, party: Iterable[int]) -> str:
    """Return what is indexed for a letter: all its words, and its marks as words."""
    fields = [
        text if text.isascii() and not has_controls(text) else " ".join(words(text)) for text in texts(message)
    ]
    marks = words_of_marks(message)
    mailboxes = [f"{PARTY}{mailbox}" for mailbox in party]
    return f" {BREAK} ".join([*fields, " ".join([EVERY, *mailboxes, *marks])])


def words_of_marks(message: Message) -> list[str]:
    """Return the marks of a letter as the index has them."""
    return [_mark(name, value) for name, value in _pairs(marks_of(message))]


def wanted_marks(query: SearchQuery) -> list[list[str]]:
    """Return the marks that a letter needs, as the index has them: one of each list."""
    wanted = query.wanted
    lists = [("senders", any_name(query, wanted.senders)), ("kinds", wanted.kinds), ("threads", wanted.threads)]
    lists += [("recipients", query.names_of(recipient)) for recipient in wanted.recipients]
    lists += [("tags", (tag,)) for tag in wanted.tags]
    return [[_mark(name, value) for value in values] for name, values in lists if values]


def _phrase(term: Term) -> str:
    return _quoted(" ".join(term.words)) + ("*" if term.begins else "")


def _quoted(words: str) -> str:
    return f'"{words}"'


def _pairs(marks: Marks) -> list[tuple[str, str]]:
    return [(name, value) for name in Marks.__struct_fields__ for value in getattr(marks, name)]


@lru_cache(maxsize=4096)
def _mark(name: str, value: str) -> str:
    return _SIGN[name] + blake2b(value.encode(), digest_size=8).hexdigest()


# -- the index

VERSION = 3  # of the tables here, and of what becomes a word
SLICE = 512  # letters indexed in one transaction
SLICE_BYTES = 4 * 1024 * 1024  # and no more than this of them
PATIENCE = 5.0  # seconds to wait, once, while another process fills it; then the search scans

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
# Is the last indexed letter in the room, or was it there?
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
    """The header of an index."""

    room: str
    version: int
    upto: int
    last: str
    letters: int


class IndexMismatch(Exception):
    """The index belongs to another room, or names letters that this room does not have."""


_BROKEN = (IndexMismatch, apsw.CorruptError, apsw.NotADBError, apsw.SQLError)  # discard the index
_UNAVAILABLE = (apsw.Error, OSError, StoreBusy)  # do without it for now


class Index:
    """One thread's access to the text index of a room. Nothing is opened before it is used."""

    def __init__(self, path: str, room: apsw.Connection) -> None:
        self._room = room
        self._path = f"{path}.search"
        self._lock_path = f"{self._path}.lock"
        self._inode = -1
        self._database: apsw.Connection | None = None
        self._lock: WriterLock | None = None

    def expression(self, query: SearchQuery, party: int | None) -> str:
        """Return a query as the index takes it, for a mailbox (None: the whole room).

        All input stands in quotes and holds nothing but words, so none of it is syntax of FTS5. Unwanted
        recipients are not excluded here: a recipient that the reader may not see must make no difference.
        """
        wanted = [EVERY_LETTER if party is None else _quoted(f"{PARTY}{party}")]
        wanted += [_phrase(term) for term in query.terms]
        wanted += [f"({' OR '.join(map(_quoted, some))})" for some in wanted_marks(query)]
        unwanted = replace(query.unwanted, senders=tuple(any_name(query, query.unwanted.senders)), recipients=())
        without = [_phrase(term) for term in query.without]
        without += [_quoted(_mark(name, value)) for name, value in _pairs(unwanted)]
        return f"({' AND '.join(wanted)})" + "".join(f" NOT {phrase}" for phrase in without)

    def upto(self) -> int:
        """Return the number up to which the index is complete; 0 if there is none that can be trusted."""
        try:
            return self._complete_upto(self._open())
        except (*_BROKEN, *_UNAVAILABLE):
            return 0

    def candidates(self, expression: str, upto: int, most: int) -> list[int] | None:
        """Return the numbers of the newest letters, up to a number, that may match; None if the index has failed.

        It reads the same file that `upto` was read from, even if another has replaced it meanwhile.
        """
        try:
            if self._database is not None:
                return [number for (number,) in self._database.execute(_CANDIDATES, (expression, upto, most))]
        except _BROKEN:
            self.discard()
        except _UNAVAILABLE:
            pass
        return None

    def fill(self) -> int:
        """Add the next letters in one transaction and return how many; 0 also if another process fills it.

        A failure is ignored: every search can do without the index.
        """
        try:
            with self._hold():
                try:
                    return self._add(self._trusted_index())
                except _BROKEN:
                    self._remove()
        except _UNAVAILABLE:
            pass
        return 0

    def discard(self) -> None:
        """Delete the index; the next `fill` makes a new one."""
        try:
            with self._hold():
                self._remove()
        except _UNAVAILABLE:
            self._disconnect()

    def letters(self) -> int:
        """Return how many letters are in the index, with those deleted since."""
        try:
            return self._about(self._open()).letters
        except (*_BROKEN, *_UNAVAILABLE):
            return 0

    def is_behind(self, run: RunQuery, upto: int, letters: int) -> bool:
        """Return whether there are more than `letters` letters after a number."""
        return bool(run(_LAST_NUMBER, [])[0][0] - upto > letters and run(_HAS_MORE, [upto, letters])[0][0])

    def close(self) -> None:
        self._disconnect()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- the file

    def _hold(self) -> WriterLock:
        if self._lock is None:
            self._lock = WriterLock(self._lock_path, timeout=0)
        return self._lock

    def _open(self) -> apsw.Connection:
        """Open the present index under its lock, so that no process deletes it meanwhile."""
        if self._database is not None and os.stat(self._path).st_ino == self._inode:
            return self._database
        self._disconnect()
        os.stat(self._path)  # raises where there is none: a reader makes no index
        lock = WriterLock(self._lock_path, PATIENCE)
        try:
            with lock:
                return self._enter()
        finally:
            lock.close()

    def _enter(self) -> apsw.Connection:
        inode = os.stat(self._path).st_ino
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        database = apsw.Connection(self._path, flags=flags)
        database.set_busy_timeout(int(PATIENCE * 1000))
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        database.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        database.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        database.pragma("journal_mode", "wal")
        database.pragma("synchronous", "normal")  # after a power cut it is intact, and maybe behind
        self._database, self._inode = database, inode
        return database

    def _trusted_index(self) -> apsw.Connection:
        """Return the index, rebuilt if it is missing or cannot be trusted; call it under the lock."""
        try:
            database = self._database
            if database is None or os.stat(self._path).st_ino != self._inode:
                self._disconnect()
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
        """Delete the index under the lock: its log first, so that no log is left for another file."""
        self._disconnect()
        for end in ("-wal", "-shm", ""):
            with suppress(FileNotFoundError):
                os.unlink(f"{self._path}{end}")

    def _disconnect(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    # -- the header

    def _about(self, database: apsw.Connection) -> About:
        found = database.execute("SELECT room, version, upto, last, letters FROM about").fetchall()
        if len(found) != 1:
            raise IndexMismatch
        return About._make(found[0])

    def _complete_upto(self, database: apsw.Connection) -> int:
        about = self._about(database)
        if (about.room, about.version) != (self._name(), VERSION):
            raise IndexMismatch
        # After a power cut or a restore the room may lack letters that the index has: new letters get their
        # numbers.
        if about.upto and not self._room.execute(_IS_KNOWN, (about.upto, about.last)).get:
            raise IndexMismatch
        if about.upto and database.execute(_CANDIDATES, (EVERY_LETTER, about.upto, 1)).get != about.upto:
            raise IndexMismatch  # its last letter is missing: a page was lost
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
        """Return number, id and text of the next letters, without damaged ones: reading those quarantines them."""
        found, size = [], 0
        for number, sum, body, sender, mailboxes in self._room.execute(_TAIL, (upto, SLICE)):
            try:
                message = rows.sound(sum, body)
            except Unreadable:
                continue
            # The mailboxes that have a letter are indexed with it, so a small one finds its own in a large room
            # at once.
            party = {sender, *map(int, (mailboxes or "").split())}
            found.append((number, message.id, index_text(message, party)))
            size += len(body)
            if size > SLICE_BYTES:
                break
        return found


# -- searching

LONG = 1000  # with more letters than this not in the index, a search adds some
FEW = 100  # with more letters than this not in the index, the janitor adds them
SPARE = 10_000  # deleted letters that may stay in the index, besides as many as there are letters
FILLS = 8  # slices that a search adds to the index for the next search
MOST_FILLS = 64  # slices that it adds if it had to scan very many letters: about a second
PAGE = 256  # letters scanned at a time
LARGEST_PAGE = 2000
NEWEST = 2**62  # above every number

RunQuery = Callable[[str, list[Any]], list[rows.Row]]
FetchLetters = Callable[..., list[Letter | None]]  # reads letters, and quarantines damaged ones

_LAST_NUMBER = "SELECT coalesce(max(number), 0) FROM letters"
_HAS_MORE = "SELECT EXISTS (SELECT 1 FROM letters WHERE number > ? ORDER BY number LIMIT 1 OFFSET ?)"
_BODIES = "SELECT l.number, l.body FROM main.letters l WHERE"
_PARTY = (
    " AND (l.sender = ? OR EXISTS"
    f" (SELECT 1 FROM main.deliveries d WHERE d.number = l.number AND d.mailbox = ? AND d.state > 0 AND {SHOWN}))"
)


def catch_up(index: Index, run: RunQuery) -> int:
    """Add all but a few letters and return how many; rebuild an index that holds mostly deleted letters."""
    held = index.letters()
    if held > SPARE and held > 2 * run("SELECT count(*) FROM letters", [])[0][0] + SPARE:
        index.discard()
    added = 0
    while index.is_behind(run, index.upto(), FEW) and (slice := index.fill()):
        added += slice
    return added


def own_letters(index: Index | None, run: RunQuery, party: int, before: int, most: int) -> list[int]:
    """Return the numbers of the newest letters below `before` that a mailbox sent or may have received."""
    upto = 0 if index is None else index.upto()
    later = f"SELECT l.number FROM letters l WHERE l.number > ? AND l.number < ?{_PARTY}"
    found = run(f"{later} ORDER BY l.number DESC LIMIT ?", [upto, before, party, party, most])
    numbers = [number for (number,) in found]
    if len(numbers) < most and upto and index is not None:
        below = min(upto, before - 1)
        older = index.candidates(_quoted(f"{PARTY}{party}"), below, most - len(numbers))
        if older is None:  # the index has just failed: look at the letters themselves
            return own_letters(None, run, party, before, most)
        numbers += older
    return numbers


class Search:
    """One search, by the reader whose mailbox has the id `party` (None: of the whole room)."""

    def __init__(
        self, query: SearchQuery, reader: str | None, party: int | None, queries: Queries, expression: str
    ) -> None:
        self._query = query
        self._queries = queries
        self._reader = reader
        self._scanned = 0  # letters that were read without the index
        self._expression = expression  # what the index is asked
        self._top = NEWEST if query.below is None else query.below - 1
        self._needed = [word.encode() for term in query.terms for word in term.words]
        pieces: list[tuple[str, list[Any]]] = []
        if party is not None:
            pieces.append((_PARTY, [party, party]))
        if query.after is not None:
            pieces.append((" AND l.created_at >= ?", [rows.micros(query.after)]))
        if query.before is not None:
            pieces.append((" AND l.created_at < ?", [rows.micros(query.before)]))
        self._where = "".join(piece for piece, _ in pieces)
        self._values = [value for _, values in pieces for value in values]

    def find(self, index: Index, run: RunQuery, fetch: FetchLetters, limit: int) -> list[Letter]:
        upto = index.upto()
        # The newest letters first, which are not indexed yet: a search never misses what was just sent.
        found = self._scan(run, fetch, self._top, upto, limit)
        if len(found) < limit:
            found += self._older(index, run, fetch, min(upto, self._top), limit - len(found))
            self._add_some(index, run, upto)
        return found

    def _older(self, index: Index, run: RunQuery, fetch: FetchLetters, upto: int, limit: int) -> list[Letter]:
        """Return matching letters that the index names."""
        found: list[Letter] = []
        below, page = upto, limit + PAGE // 8
        while below and len(found) < limit:
            numbers = index.candidates(self._expression, below, page)
            if numbers is None:  # the index has just failed: scan instead
                return found + self._scan(run, fetch, below, 0, limit - len(found))
            found += self._read(fetch, numbers)
            below = numbers[-1] - 1 if len(numbers) == page else 0
            page = min(4 * page, LARGEST_PAGE)
        return found[:limit]

    def _add_some(self, index: Index, run: RunQuery, upto: int) -> None:
        """Index some letters for the next search, in proportion to what had to be scanned.

        That doubles the time of the search: to index a letter costs about as much as to scan it eight times.
        """
        for _ in range(min(max(FILLS, self._scanned // (8 * SLICE)), MOST_FILLS)):
            if not index.is_behind(run, upto, LONG) or not index.fill():
                break
            upto = index.upto()

    def _scan(self, run: RunQuery, fetch: FetchLetters, top: int, upto: int, limit: int) -> list[Letter]:
        """Return matching letters from the number `top` down to the first that is in the index."""
        found: list[Letter] = []
        while len(found) < limit:
            page = run(*self._between(upto, top))
            self._scanned += len(page)
            found += self._read(fetch, self._candidates_in(page))
            if len(page) < PAGE:
                break
            top = page[-1][0] - 1
        return found[:limit]

    def _candidates_in(self, page: list[rows.Row]) -> list[int]:
        """Return the letters of a page that may match. Most pages lack the words: one test of all bytes."""
        plain = {number: body for number, body in page if _is_plain(body)}
        # One test over a whole page instead of one for each letter.
        if self._needed and not self._may_match(b"\n".join(plain.values())):
            return [number for number, _ in page if number not in plain]
        return [number for number, body in page if number not in plain or self._may_match(body)]

    def _read(self, fetch: FetchLetters, numbers: list[int]) -> list[Letter]:
        return [found for found in fetch(self._decode_match, self._by_number(numbers)) if found] if numbers else []

    def _decode_match(self, row: rows.Row) -> Letter | None:
        if _is_plain(row[2]) and not self._may_match(row[2]):
            return None
        letter = rows.letter(row)
        # The index only proposes. Each letter is compared again, so a wrong index shows nothing false (threat
        # 15).
        return letter if matches_search(letter.message, self._query, self._reader) else None

    def _may_match(self, plain: bytes) -> bool:
        """Return whether the bytes hold all the words: a quick test that most letters fail."""
        lowered = plain.lower()
        return all(word in lowered for word in self._needed)

    def _between(self, upto: int, top: int) -> Statement:
        sql = f"{_BODIES} l.number > ? AND l.number <= ?{self._where} ORDER BY l.number DESC LIMIT {PAGE}"
        return sql, [upto, top, *self._values]

    def _by_number(self, numbers: list[int]) -> Statement:
        among, values = self._queries.among("l.number", numbers)
        return f"{LETTERS} WHERE {among}{self._where} ORDER BY l.number DESC", values + self._values


def _is_plain(body: Any) -> bool:
    """Return whether the letter is ASCII: otherwise a word may be written in many ways."""
    return isinstance(body, bytes) and body.isascii()


# -- whether a letter matches: what the index proposes is compared with this


def matches_search(message: Message, query: SearchQuery, reader: str | None) -> bool:
    """Return whether this letter, as `reader` sees it, meets the query.

    Whether the reader may see the letter at all is decided elsewhere.
    """
    return (
        (query.after is None or message.created_at >= query.after)
        and (query.before is None or message.created_at < query.before)
        and _matches_marks(message, query, reader)
        and _matches_terms(message, query)
    )


def marks_of(message: Message) -> Marks:
    """Return sender, recipients, tags, kind and thread of a letter, as a query compares them."""
    return Marks(
        senders=(fold(message.sender),),
        recipients=tuple(fold(recipient.address) for recipient in message.recipients),
        tags=tuple(tag.casefold() for tag in message.tags),
        kinds=(message.kind.casefold(),),
        threads=(message.thread,),
    )


def _matches_marks(message: Message, query: SearchQuery, reader: str | None) -> bool:
    wanted, unwanted = query.wanted, query.unwanted
    if wanted == unwanted == Marks():
        return True
    marks = marks_of(_shown(message, query, reader))  # a search for a hidden recipient must not reveal it
    return (
        (not wanted.senders or _overlap(any_name(query, wanted.senders), marks.senders))
        and (not wanted.kinds or _overlap(wanted.kinds, marks.kinds))
        and (not wanted.threads or _overlap(wanted.threads, marks.threads))
        and all(_overlap(query.names_of(name), marks.recipients) for name in wanted.recipients)
        and set(marks.tags).issuperset(wanted.tags)
        and not _overlap(any_name(query, unwanted.senders), marks.senders)
        and not _overlap(any_name(query, unwanted.recipients), marks.recipients)
        and not any(
            _overlap(getattr(unwanted, name), getattr(marks, name)) for name in ("tags", "kinds", "threads")
        )
    )


def any_name(query: SearchQuery, names: Iterable[str]) -> list[str]:
    """Return every present and former name of these agents."""
    return [one for name in names for one in query.names_of(name)]


def _shown(message: Message, query: SearchQuery, reader: str | None) -> Message:
    """Return the letter as the reader may see it, under any of the reader's present and former names."""
    shown = message.seen_by(reader)
    if shown is message or reader is None:
        return shown
    own = query.names_of(fold(reader))
    if fold(message.sender) in own:
        return message
    named = tuple(r for r in message.recipients if r.kind != "bcc" or fold(r.address) in own)
    return replace(message, recipients=named)


def _matches_terms(message: Message, query: SearchQuery) -> bool:
    if not query.terms and not query.without:
        return True
    text = search_text(message)
    return all(_holds(text, term) for term in query.terms) and not any(
        _holds(text, term) for term in query.without
    )


def _holds(text: str, term: Term) -> bool:
    return f" {' '.join(term.words)}{'' if term.begins else ' '}" in text


def _overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    return not set(some).isdisjoint(others)
