"""A copy of what can still be read of a damaged room, in a fresh one.

SQLite ends a scan at the first damaged page, but finds each row whose own way through the table is intact. So the
numbers of the letters are collected from the table, its index and the deliveries, each from both ends, and then
every letter is looked up by its number. A letter counts if its checksum says that it is what was accepted. A
delivery that cannot be read is made anew, as unread: mail may come twice, but it comes. The damaged room is left
as it is.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
from msgspec import Struct

from ...errors import PostroomError
from ...model.delivery import open_delivery
from ...model.message import is_any, is_broadcast
from ...model.names import check_party, fold
from ...model.query import LetterQuery
from ...model.record import FORGOTTEN, Record
from ..protocol import Introduce, Post, Put, Rename
from . import rows
from .backup import check_nobody_inside, leave_one_file, made_whole
from .connection import SMALLEST_PAGE, configure, interruptible, translated
from .lock import WriterLock
from .store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ...model.delivery import Delivery
    from ...model.message import Message
    from ..protocol import Write
    from .rows import Row


SLICE = 500  # writes in one commit
END = ".salvaged"  # after the room's own name
BOTH_WAYS = ("ASC", "DESC")
_FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
_NUMBERS = (  # with the id where a damaged letter's id can be told; {0} is the direction
    "SELECT number, NULL FROM letters NOT INDEXED ORDER BY number {0}",
    "SELECT number, NULL FROM deliveries ORDER BY number {0}",
    "SELECT number, id FROM letters INDEXED BY sqlite_autoindex_letters_1 ORDER BY id {0}",
)
_LETTER = "SELECT sum, body FROM letters WHERE number = ?"
_DELIVERIES = f"SELECT {rows.DELIVERY} FROM deliveries d JOIN mailboxes m ON m.id = d.mailbox WHERE d.number = ?"
# A name that does not go with its folded form is damaged.
_NAMES = "SELECT name, known FROM mailboxes WHERE folded = lower(name) ORDER BY id {0}"
_ALIASES = """
SELECT a.name, m.name FROM aliases a JOIN mailboxes m ON m.id = a.mailbox
WHERE a.folded = lower(a.name) AND m.folded = lower(m.name) ORDER BY a.folded {0}"""
_RECORDS = "SELECT kind, key, value FROM records ORDER BY kind {0}, key {0}"


class Salvaged(Struct, frozen=True, kw_only=True):
    """What came out of a damaged room."""

    path: Path  # like a backup: `restore` makes it the room
    letters: int
    lost: dict[int, str | None]  # numbers of letters that were there and cannot be read, with their ids if known


class Remains(Struct, kw_only=True):
    """What surrounds the letters, as far as it could be read."""

    names: dict[str, bool]  # and whether the agent is known
    aliases: dict[str, str]  # former name -> name
    records: dict[tuple[str, str], Any]


def salvage(path: Path, busy_timeout: float) -> Salvaged | None:
    """Write what can be read of the room at `path` into a file beside it; None if there is no letter to be read.

    Nobody may have the room open meanwhile.
    """
    with translated(path):
        lock = WriterLock(Path(f"{path}.lock"), busy_timeout)
    try:
        with translated(path), lock:
            check_nobody_inside(path)
            if path.stat().st_size < SMALLEST_PAGE:  # SQLite would delete the log of an empty file
                return None
            with _opened(path) as database:
                return _copy(database, path.with_name(f"{path.name}{END}"))
    finally:
        lock.close()


@contextmanager
def _opened(path: Path) -> Iterator[apsw.Connection]:
    database = apsw.Connection(str(path), flags=_FLAGS)
    try:
        configure(database, 0)
        with suppress(apsw.Error):  # where this fails, nothing else can be read either
            database.pragma("query_only", True)
        with interruptible(database):
            yield database
    finally:
        database.close()


def _readable(database: apsw.Connection, sql: str, *values: int) -> Iterator[Row]:
    """Yield the rows of a query up to the first that cannot be read."""
    with suppress(apsw.Error, UnicodeDecodeError):
        yield from database.execute(sql, values)


def _from_both_ends(database: apsw.Connection, sql: str) -> Iterator[Row]:
    for direction in BOTH_WAYS:
        yield from _readable(database, sql.format(direction))


def _copy(database: apsw.Connection, target: Path) -> Salvaged | None:
    numbers = _numbers(database)
    if all(_letter(database, number) is None for number in numbers):
        return None
    with made_whole(target, overwrite=True) as growing:
        store = SqliteStore(growing, durable=False)
        try:
            lost = _fill(store, database, numbers)
            letters = store.count(LetterQuery(), by="all")
        finally:
            store.close()
        # Nobody holds a lease any more: all agents were stopped.
        leave_one_file(growing, "UPDATE room SET boot = ''")
        for left in growing.parent.glob(f"{growing.name}?*"):
            left.unlink()
    return Salvaged(path=target, letters=letters, lost=lost)


def _numbers(database: apsw.Connection) -> dict[int, str | None]:
    """Return the numbers of all letters, in the order of acceptance, and their ids where the index has them."""
    found: dict[int, str | None] = {}
    for sql in _NUMBERS:
        found |= {number: id for number, id in _from_both_ends(database, sql) if isinstance(number, int)}
    return dict(sorted(found.items()))


def _letter(database: apsw.Connection, number: int) -> tuple[Message, bytes] | None:
    for sum, body in _readable(database, _LETTER, number):
        with suppress(PostroomError, ValueError):
            return rows.sound(sum, body), body
    return None


def _fill(store: SqliteStore, database: apsw.Connection, numbers: dict[int, str | None]) -> dict[int, str | None]:
    """Write all that can be read into the fresh room, and return the letters that cannot be read."""
    remains = _remains(database)
    deleted = {key for kind, key in remains.records if kind == FORGOTTEN}
    _commit_all(store, (Introduce(name, known) for name, known in remains.names.items()))
    _commit_all(store, (Rename(old, new) for old, new in remains.aliases.items()))
    lost: dict[int, str | None] = {}
    posts: list[Write] = []
    for number, id in numbers.items():
        found = _letter(database, number)
        if found is None:
            lost[number] = id
        elif found[0].id not in deleted:
            message, body = found
            deliveries = _deliveries(database, remains, number, message)
            posts.append(Post(message=message, encoded=body, deliveries=deliveries))
        if len(posts) == SLICE:
            _commit_all(store, posts)
            posts = []
    _commit_all(store, posts)
    records = remains.records.items()
    _commit_all(store, (Put(record=Record(kind=kind, key=key, value=value)) for (kind, key), value in records))
    return lost


def _remains(database: apsw.Connection) -> Remains:
    remains = Remains(names={}, aliases={}, records={})
    for name, known in _from_both_ends(database, _NAMES):
        with suppress(PostroomError):
            remains.names[check_party(name, "mailbox")] = known == 1
    for old, new in _from_both_ends(database, _ALIASES):
        with suppress(PostroomError):
            remains.aliases[check_party(old, "alias")] = check_party(new, "mailbox")
    for kind, key, value in _from_both_ends(database, _RECORDS):
        with suppress(ValueError, TypeError):
            remains.records[kind, key] = msgspec.json.decode(value)
    return remains


def _commit_all(store: SqliteStore, writes: Iterable[Write]) -> None:
    every = list(writes)
    for start in range(0, len(every), SLICE):
        _commit(store, every[start : start + SLICE])


def _commit(store: SqliteStore, writes: Sequence[Write]) -> None:
    """Commit together, or each by itself: one that cannot be written must not cost the others."""
    try:
        store.commit(writes)
    except PostroomError:
        for write in writes if len(writes) > 1 else ():
            _commit(store, [write])


def _deliveries(
    database: apsw.Connection, remains: Remains, number: int, message: Message
) -> tuple[Delivery, ...]:
    """Return those that can be read, and new ones for recipients that have none."""
    held: dict[str, Delivery] = {}
    for row in _readable(database, _DELIVERIES, number):
        with suppress(PostroomError, *rows.UNLIKELY):
            found = rows.delivery(message, row)
            if _may_have(message, found.mailbox, remains):
                held[found.mailbox] = found
    missing = [r for r in message.recipients if r.address not in held]
    for recipient in missing[: max(0, len(message.recipients) - len(held))]:
        new = open_delivery(message, recipient.address, recipient.kind, message.created_at)
        held[new.mailbox] = new
    return tuple(held.values())


def _may_have(message: Message, name: str, remains: Remains) -> bool:
    """Return whether the letter was sent to this mailbox; else the name, or its number, is not what it was."""
    addresses = {fold(recipient.address) for recipient in message.recipients}
    if any(is_broadcast(address) or is_any(address) for address in addresses):
        return True
    former = {fold(old) for old, new in remains.aliases.items() if new == name}
    return fold(name) in addresses or bool(former & addresses)
