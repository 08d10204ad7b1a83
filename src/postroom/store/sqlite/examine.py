"""The checks of `postroom doctor` inside a room: versions, log, structure, letters, counts, records.

Each check is one function that yields findings. Nothing is written unless `repair` is set, and then only what is
safe: an index is rebuilt, a damaged letter is quarantined, deliveries of a deleted letter are removed. When the
structure itself is damaged, nothing inside is changed.

The first part reads SQLite's pages without SQLite, for rooms that SQLite refuses to read (`salvage`). The format
is described at sqlite.org/fileformat2.html. It trusts no length and no pointer, and skips what does not fit.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import apsw
import msgspec
from msgspec import Struct

from ...errors import PostroomError
from ...model.report import Finding, error, note, ok, warning
from . import place as sqlite_place
from .connection import OLDEST_SQLITE, Connection, interruptible, translate
from .place import examine_place
from .schema import STEPS
from .wal import CHECKPOINT_PAGES, FRAME
from .writes import WRONG, quarantine, recount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...model.report import Progress
    from .rows import Row


PageRow = tuple[Any, ...]

LOG_HEAD, FRAME_HEAD = 32, 24
_INTERIOR_INDEX, _LEAF_INDEX, _LEAF_TABLE = 0x02, 0x0A, 0x0D
_FILE_HEAD = 100  # bytes before the first page's own head
_INTS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}  # serial type -> bytes
_USUAL = 4096
_BIG = b"\x37\x7f\x06\x83"  # the log of a machine that puts the high byte first


def page_size(room: bytes, log: bytes) -> int:
    """Return the page size from the room's file or its log; the usual one if neither makes sense."""
    sizes = (int.from_bytes(room[16:18], "big"), int.from_bytes(log[8:12], "big"))
    return next((size for size in sizes if size >= 512 and size & (size - 1) == 0), _USUAL)


def newest_pages(room: bytes, log: bytes, *, damaged: bool) -> dict[int, bytes]:
    """Return every page by its number, as last written; `damaged`: also those with wrong checksums in the log."""
    size = page_size(room, log)
    pages = {at // size + 1: room[at : at + size].ljust(size, b"\0") for at in range(0, len(room), size)}
    return pages | {number: image for number, image, is_whole in frames(log, size) if is_whole or damaged}


def old_pages(room: bytes, log: bytes) -> Iterator[bytes]:
    """Yield every page, also overwritten ones that are still in the log, but not damaged ones."""
    size = page_size(room, log)
    for at in range(0, len(room), size):
        yield room[at : at + size].ljust(size, b"\0")
    yield from (image for _, image, is_whole in frames(log, size) if is_whole)


def damaged_pages(room: bytes, log: bytes) -> Iterator[bytes]:
    """Yield the pages whose checksums in the log are wrong."""
    return (image for _, image, is_whole in frames(log, page_size(room, log)) if not is_whole)


def commits_behind(log: bytes, size: int, end: int) -> int:
    """Count the commits of the log's present round that follow its first `end` pages."""
    salts, step = _salts(log, size), FRAME_HEAD + size
    starts = range(LOG_HEAD + end * step, len(log) - step + 1, step)
    return sum(log[at + 8 : at + 16] == salts and any(log[at + 4 : at + 8]) for at in starts) if any(salts) else 0


def _salts(log: bytes, size: int) -> bytes:
    """Return the salts of the log's present round, even if its head or first pages are damaged."""
    value, first = log[16:24], LOG_HEAD + 8
    marks = [
        log[at : at + 8] for at in range(first, min(len(log), first + 3 * (FRAME_HEAD + size)), FRAME_HEAD + size)
    ]
    return value if value in marks or not marks else max(marks, key=marks.count)


def frames(log: bytes, size: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the pages of the log's present round, in order, and whether their checksums are right."""
    salts, step = _salts(log, size), FRAME_HEAD + size
    order = ">" if log[:4] == _BIG else "<"
    before = log[LOG_HEAD - 8 : LOG_HEAD]
    for at in range(LOG_HEAD, len(log) - step + 1, step):
        number = int.from_bytes(log[at : at + 4], "big")
        if log[at + 8 : at + 16] == salts and number and any(salts):
            image, sum = log[at + FRAME_HEAD : at + step], log[at + 16 : at + FRAME_HEAD]
            yield number, image, _sum(log[at : at + 8] + image, before, order) == sum
        before = log[at + 16 : at + FRAME_HEAD]


def _sum(data: bytes, before: bytes, order: str) -> bytes:
    """Return the checksum of a page in the log, continued from the one before it."""
    first, second = struct.unpack(">2I", before)
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return struct.pack(">2I", first, second)


def rows_of(page: bytes, pages: Mapping[int, bytes]) -> Iterator[PageRow]:
    """Yield the rows on a page that can be read, with the row number first where the table has one."""
    start = _FILE_HEAD if page.startswith(b"SQLite format 3\0") else 0
    kind = page[start] if len(page) > start else 0
    if kind not in {_LEAF_TABLE, _LEAF_INDEX, _INTERIOR_INDEX}:
        return
    head = start + (12 if kind == _INTERIOR_INDEX else 8)
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    for place in range(head, min(head + 2 * count, len(page) - 1), 2):
        cell = int.from_bytes(page[place : place + 2], "big")
        try:
            yield _row(page, cell, kind, pages)
        except (IndexError, ValueError, KeyError, struct.error, OverflowError, RecursionError):
            continue


def _row(page: bytes, at: int, kind: int, pages: Mapping[int, bytes]) -> PageRow:
    at += 4 if kind == _INTERIOR_INDEX else 0
    length, at = _varint(page, at)
    number: int | None = None
    if kind == _LEAF_TABLE:
        number, at = _varint(page, at)
    if length > len(page) * len(pages):  # longer than all there is
        raise ValueError(length)
    row = _values(_payload(page, at, length, kind, pages))
    if number is None:
        return row
    if row[0] is not None:  # our tables keep the number apart and nothing in its place
        raise ValueError(number)
    return (number, *row[1:])


def _payload(page: bytes, at: int, length: int, kind: int, pages: Mapping[int, bytes]) -> bytes:
    """Return all bytes of a row, over as many pages as it needs."""
    size = len(page)
    most = size - 35 if kind == _LEAF_TABLE else (size - 12) * 64 // 255 - 23
    if length <= most:
        return page[at : at + length]
    least = (size - 12) * 32 // 255 - 23
    local = least + (length - least) % (size - 4)
    local = local if local <= most else least
    found, following = bytearray(page[at : at + local]), int.from_bytes(page[at + local : at + local + 4], "big")
    while len(found) < length:
        more = pages[following]
        if len(more) < 5:
            raise ValueError(following)
        found += more[4 : 4 + length - len(found)]
        following = int.from_bytes(more[:4], "big")
    return bytes(found)


def _values(payload: bytes) -> PageRow:
    head, at = _varint(payload, 0)
    body, values = head, []
    while at < head:
        kind, at = _varint(payload, at)
        value, body = _value(payload, body, kind)
        values.append(value)
    if body != len(payload):
        raise ValueError(body)
    return tuple(values)


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind == 0:
        return None, at
    if kind in {8, 9}:
        return kind - 8, at
    if kind == 7:
        return struct.unpack_from(">d", payload, at)[0], at + 8
    end = at + (_INTS[kind] if kind in _INTS else (kind - 12) // 2)
    raw = payload[at:end]
    if len(raw) != end - at:
        raise ValueError(kind)
    if kind in _INTS:
        return int.from_bytes(raw, "big", signed=True), end
    return (raw if kind % 2 == 0 else raw.decode()), end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for step in range(8):
        byte = data[at + step]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + step + 1
    return value << 8 | data[at + 8], at + 9


# -- the checks

SLICE = 5000  # letters checked between two reports of progress
MOST = 10  # complaints, ids or numbers that one finding names
PATIENCE = 1.0  # seconds; a process that reads for longer holds the log back
LARGE = 4 * FRAME * CHECKPOINT_PAGES  # bytes; a larger log was held back
GLANCE = 0.02  # seconds between two looks at the readers of the log
# Not letters: they have checksums.
TABLES = ("room", "mailboxes", "aliases", "deliveries", "records", "changes", "quarantine", "waiting")
_OF_AN_INDEX = re.compile(r"row \d+ missing from index |wrong # of entries in index ")
COPY = "restore a backup, or let repair=True save what can be read in a room beside it"


class Visit(Struct, kw_only=True):
    """One examination of one room."""

    conn: Connection
    path: Path
    durable: bool
    repair: bool
    full: bool
    step: Callable[[], None]  # reports progress
    sound: bool = True  # is the structure intact? If not, nothing inside is repaired

    @property
    def database(self) -> apsw.Connection:
        return self.conn.database


Check = Callable[[Visit], Iterator[Finding]]


def examine_room(
    conn: Connection, place: str, *, durable: bool, repair: bool, full: bool, progress: Progress
) -> Iterator[Finding]:
    """Run all checks, one after the other."""
    path = Path(place)
    done, total = 0, 1 + len(CHECKS) + _slices(conn.database)

    def step() -> None:
        nonlocal done
        done += 1
        progress(min(done, total), total)

    visit = Visit(conn=conn, path=path, durable=durable, repair=repair, full=full, step=step)
    yield from examine_place(path, repair=repair)
    step()
    with interruptible(conn.database):
        yield from _checked(visit, path)


def _checked(visit: Visit, path: Path) -> Iterator[Finding]:
    for name, check in CHECKS.items():
        try:
            yield from check(visit)
        except apsw.Error as broken:  # a damaged room must not stop its doctor
            refused = translate(broken, path)
            yield error(name, refused.message, refused.hint or COPY)
        except (PostroomError, OSError, ValueError, TypeError) as failed:
            yield error(name, f"could not be looked at: {failed}")
        visit.step()


def _slices(database: apsw.Connection) -> int:
    try:
        letters: int = database.execute("SELECT count(*) FROM letters").get
    except apsw.Error:
        return 0
    return -(-letters // SLICE)


@contextmanager
def _repairing(visit: Visit) -> Iterator[None]:
    """Commit what the block writes, with the same guarantees as any other commit."""
    conn = visit.conn
    with conn.lock:
        conn.recover()
        with conn.database:
            yield
        conn.log.maintain(conn.lock)
    conn.log.sync(conn.lock)


def _versions(visit: Visit) -> Iterator[Finding]:
    version = visit.database.pragma("user_version")
    needed = ".".join(map(str, OLDEST_SQLITE))
    yield ok(
        "versions",
        f"apsw {apsw.apsw_version()}, SQLite {apsw.sqlite_lib_version()} ({needed} or newer), schema {version} of"
        f" {len(STEPS)}",
    )
    copies = sorted(visit.path.parent.glob(f"{visit.path.name}.before-*"))
    if copies:
        names = ", ".join(copy.name for copy in copies)
        yield note("versions", f"older copies of this room lie beside it: {names}", "delete them if all is well")


def _durability(visit: Visit) -> Iterator[Finding]:
    if visit.durable:
        yield ok("durability", "power: once send returns, a letter survives kill -9, a crash and a power cut")
    else:
        meaning = "process: a letter survives kill -9, but a power cut may take the last moments"
        yield note("durability", meaning, 'durability="power" waits for the disk')


def _log_end(visit: Visit) -> Iterator[Finding]:
    """Check whether commits follow the place where the log becomes unreadable."""
    with visit.conn.lock:  # else a commit in between would seem to follow
        frames, _ = visit.database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        size = visit.database.pragma("page_size")
        behind = commits_behind(Path(f"{visit.path}-wal").read_bytes(), size, max(frames, 0))
    if behind:
        visit.sound = False  # any write now would overwrite them
        text = f"the log can be read up to page {frames}, and {behind} commits lie behind that"
        hint = "after a power cut these were never confirmed; else the disk is failing: repair=True saves them"
        yield warning("end of the log", text, hint)
    else:
        yield ok("end of the log", "nothing lies behind it")


def _integrity(visit: Visit) -> Iterator[Finding]:
    complaints = _complaints(visit)
    if not complaints:
        looked = "every page and index" if visit.full else "every page (indexes too with full=True)"
        yield ok("integrity", f"sound: {looked}")
        return
    was_sound, visit.sound = visit.sound, False
    text = "; ".join(complaints[:MOST])
    only_indexes = all(_OF_AN_INDEX.match(complaint) for complaint in complaints)
    # Indexes can be derived from the tables; a damaged table is never touched, only saved elsewhere.
    if visit.repair and only_indexes and was_sound:
        with _repairing(visit):
            visit.database.execute("REINDEX")
        visit.sound = not _complaints(visit)
        yield error("integrity", f"indexes were wrong and are rebuilt: {text}", repaired=visit.sound)
    elif only_indexes:
        yield error("integrity", f"indexes are wrong, letters are not: {text}", "repair=True rebuilds them")
    else:
        yield error("integrity", f"damaged: {text}", COPY)


def _complaints(visit: Visit) -> list[str]:
    """Return what SQLite finds wrong, in its words."""
    pragma = "integrity_check" if visit.full else "quick_check"
    try:
        texts = [str(text) for (text,) in visit.database.execute(f"PRAGMA {pragma}({MOST})")]
    except apsw.CorruptError as broken:
        return [str(broken)]
    return [] if texts == ["ok"] else [line for text in texts for line in text.splitlines()]


def _letters(visit: Visit) -> Iterator[Finding]:
    """Check every letter against its checksum."""
    damaged: list[tuple[int, str]] = []
    looked, after = 0, 0
    sql = "SELECT number, id, sum, body FROM letters WHERE number > ? ORDER BY number LIMIT ?"
    try:
        while rows := _rows(visit.database, sql, after, SLICE):
            damaged += [(n, id) for n, id, sum, body in rows if not isinstance(body, bytes) or crc32(body) != sum]
            looked, after = looked + len(rows), rows[-1][0]
            visit.step()
    except apsw.CorruptError:
        visit.sound = False
        yield error("letters", f"after number {after} letters cannot be read", COPY)
        return
    if not damaged:
        yield ok("letters", f"{looked} letters are what was accepted")
        return
    ids = ", ".join(id for _, id in damaged[:MOST])
    if visit.repair and visit.sound:
        with _repairing(visit):
            for number, _ in damaged:
                quarantine(visit.database, number)
        yield error("letters", f"{len(damaged)} damaged letters were set aside: {ids}", repaired=True)
    else:
        yield error("letters", f"{len(damaged)} letters are damaged: {ids}", "repair=True sets them aside")


def _rows(database: apsw.Connection, sql: str, *values: int) -> list[Row]:
    return database.execute(sql, values).fetchall()


def _orphans(visit: Visit) -> Iterator[Finding]:
    where = "FROM deliveries WHERE number NOT IN (SELECT number FROM letters)"
    lost = [number for (number,) in visit.database.execute(f"SELECT DISTINCT number {where} LIMIT {MOST}")]
    nowhere = "WHERE NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.number = l.number)"
    unsent = [id for (id,) in visit.database.execute(f"SELECT id FROM letters l {nowhere} LIMIT {MOST}")]
    if unsent:
        yield warning(
            "deliveries", f"letters that are in nobody's mailbox: {', '.join(unsent)}", "send them again"
        )
    if not lost:
        yield ok("deliveries", "every delivery has its letter")
    elif visit.repair and visit.sound:
        with _repairing(visit):
            visit.database.execute(f"DELETE {where}")
        yield error("deliveries", f"deliveries without a letter were removed: numbers {lost}", repaired=True)
    else:
        yield error("deliveries", f"deliveries without a letter: numbers {lost}", "repair=True removes them")


def _counts(visit: Visit) -> Iterator[Finding]:
    """Compare the kept counts, by which a full inbox is known, with a real count."""
    wrong = visit.database.execute(WRONG).get
    if not wrong:
        yield ok("counts", "the kept counts of waiting letters are right")
    elif visit.repair and visit.sound:
        with _repairing(visit):
            recount(visit.database.execute)
        yield error("counts", f"{wrong} kept counts of waiting letters were wrong; counted again", repaired=True)
    else:
        problem = f"{wrong} kept counts of waiting letters are wrong: an inbox may be full too early or too late"
        yield error("counts", problem, "repair=True counts again")


def _texts(visit: Visit) -> Iterator[Finding]:
    """Check that all text is UTF-8: SQLite does not, and queries that meet such a row fail."""
    own = "typeof(name) || typeof(epoch) || typeof(boot) || typeof(trimmed) = 'texttexttextinteger'"
    if visit.database.execute(f"SELECT count(*) FROM room WHERE {own}").get != 1:
        yield error("rows", "what the room says of itself is damaged", COPY)
    broken = [table for table in TABLES if visit.full and not _can_be_read(visit.database, table)]
    if broken:
        yield error("rows", f"damaged in {', '.join(broken)}", COPY)
    else:
        yield ok("rows", "every row can be read" if visit.full else "the room knows its name")


def _can_be_read(database: apsw.Connection, table: str) -> bool:
    try:
        for _ in database.execute(f"SELECT * FROM {table}"):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _records(visit: Visit) -> Iterator[Finding]:
    """Check all records: one that cannot be read keeps all of its kind from being listed."""
    found = visit.database.execute("SELECT kind, key, value FROM records").fetchall()
    broken = [f"{kind} {key}" for kind, key, value in found if not _is_json(value)]
    if broken:
        yield error("records", f"{len(broken)} records cannot be read: {', '.join(broken[:MOST])}", COPY)
    else:
        yield ok("records", f"{len(found)} records can be read")


def _is_json(value: object) -> bool:
    try:
        msgspec.json.decode(value if isinstance(value, bytes) else b"")
    except (msgspec.DecodeError, ValueError):
        return False
    return True


def _mailbox_names(visit: Visit) -> Iterator[Finding]:
    """Compare each mailbox's name with its folded form."""
    wrong = "SELECT count(*) FROM mailboxes WHERE folded IS NOT lower(name)"
    broken = visit.database.execute(wrong).get
    if broken:
        yield error("names", f"the names of {broken} mailboxes are damaged, and their mail is not shown", COPY)
    else:
        yield ok("names", "every mailbox has its name")


def _quarantine(visit: Visit) -> Iterator[Finding]:
    ids = [str(id) for (id,) in visit.database.execute(f"SELECT id FROM quarantine ORDER BY number LIMIT {MOST}")]
    if ids:
        hint = "look after the disk; let their senders send again"
        yield warning("quarantine", f"letters were found damaged and set aside: {', '.join(ids)}", hint)
    else:
        yield ok("quarantine", "no letter was ever set aside")


def _log(visit: Visit) -> Iterator[Finding]:
    """Check that the log can start over: a reader with an old view keeps it growing."""
    end = time.monotonic() + PATIENCE
    frames, done = _checkpoint(visit)
    suspects = set(sqlite_place.readers(visit.path))
    while frames > done and time.monotonic() < end:
        time.sleep(GLANCE)  # an ordinary reader ends within milliseconds
        frames, done = _checkpoint(visit)
        suspects &= set(sqlite_place.readers(visit.path))
    size = Path(f"{visit.path}-wal").stat().st_size
    if frames <= done:
        yield _grown(visit, size) if size > LARGE else ok("log", f"{frames} pages wait for nobody; {size:,} bytes")
        return
    who = ", ".join(sqlite_place.name_of(pid) for pid in sorted(suspects)) or "unknown"
    yield warning(
        "log",
        f"a reader has held the log back for more than {PATIENCE:g} s: process {who}; {frames - done} pages wait,"
        f" the log is {size:,} bytes",
        "let that process end its reading, or end it",
    )


def _grown(visit: Visit, size: int) -> Finding:
    """Report a log that a reader once held back; only its size does harm."""
    text = f"the log has grown to {size:,} bytes: something once read for long, a backup maybe"
    if not (visit.repair and visit.sound):
        return note("log", text, "repair=True makes it small again")
    with visit.conn.lock:
        visit.conn.recover()
        visit.conn.log.rebuild(visit.conn.lock)
    return note("log", text, repaired=True)


def _checkpoint(visit: Visit) -> tuple[int, int]:
    with visit.conn.lock:
        visit.conn.recover()
        try:
            return visit.database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            return visit.conn.log.pages, 0


CHECKS: dict[str, Check] = {
    "versions": _versions,
    "durability": _durability,
    "end of the log": _log_end,
    "integrity": _integrity,
    "letters": _letters,
    "deliveries": _orphans,
    "counts": _counts,
    "rows": _texts,
    "records": _records,
    "names": _mailbox_names,
    "quarantine": _quarantine,
    "log": _log,
}
