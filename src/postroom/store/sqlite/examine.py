"""The checks of `postroom doctor` inside a room: versions, log, structure, letters, counts, records.

Each check is one function that yields findings. Nothing is written unless `repair` is set, and then only what is
safe: an index is rebuilt, a damaged letter is quarantined, deliveries of a deleted letter are removed. When the
structure itself is damaged, nothing inside is changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

import apsw
import msgspec
from msgspec import Struct

from ...errors import PostroomError
from ...model.report import Finding, Level, error, note, ok, verdict, warning
from ...model.values import passes
from . import place as sqlite_place
from .connection import OLDEST_SQLITE, Connection, interruptible, translate
from .place import examine_place
from .schema import STEPS
from .wal import CHECKPOINT_PAGES, FRAME
from .writes import WRONG, quarantine, recount

if TYPE_CHECKING:
    from ...model.report import Progress
    from .rows import Row


SLICE = 5000  # letters checked between two reports of progress
MOST = 10  # complaints, ids or numbers that one finding names
PATIENCE = 1.0  # seconds; a process that reads for longer holds the log back
LARGE = 4 * FRAME * CHECKPOINT_PAGES  # bytes; a larger log was held back
GLANCE = 0.02  # seconds between two looks at the readers of the log
# Not letters: they have checksums.
TABLES = ("room", "mailboxes", "aliases", "deliveries", "records", "changes", "quarantine", "waiting")
_OF_AN_INDEX = re.compile(r"row \d+ missing from index |wrong # of entries in index ")
COPY = "restore a backup, or let repair=True save what can be read in a room beside it"
LOG_HEAD, FRAME_HEAD = 32, 24  # bytes in SQLite's format of the log


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
    with visit.conn.writing():
        yield
    visit.conn.log.sync(visit.conn.lock)


def _repaired(visit: Visit, finding: Finding, mend: Callable[[], object], done: str) -> Finding:
    """Return a finding; of a problem that may be mended now, that it is."""
    if finding.level is Level.OK or not (visit.repair and visit.sound):
        return finding
    with _repairing(visit):
        mend()
    return error(finding.check, done, repaired=True)


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
        behind = _commits_behind(Path(f"{visit.path}-wal").read_bytes(), size, max(frames, 0))
    text = f"the log can be read up to page {frames}, and {behind} commits lie behind that; they are lost"
    hint = "after a power cut these were never confirmed; else the disk is failing: restore a backup"
    yield verdict("end of the log", text if behind else "", "nothing lies behind it", hint, warning)


def _commits_behind(log: bytes, page_size: int, end: int) -> int:
    """Count the commits of the log's present round that follow its first `end` pages."""
    step = FRAME_HEAD + page_size
    heads = [log[at : at + FRAME_HEAD] for at in range(LOG_HEAD, len(log) - step + 1, step)]
    # All frames of one round carry the salts of the log's head, which may be damaged itself.
    salts, first = log[16:24], [head[8:16] for head in heads[:3]]
    if first and salts not in first:
        salts = max(first, key=first.count)
    return sum(head[8:16] == salts and any(head[4:8]) for head in heads[end:]) if any(salts) else 0


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
    ids = ", ".join(id for _, id in damaged[:MOST])
    problem = f"{len(damaged)} letters are damaged: {ids}" if damaged else ""
    finding = verdict("letters", problem, f"{looked} letters are what was accepted", "repair=True sets them aside")

    def set_aside() -> None:
        for number, _ in damaged:
            quarantine(visit.database, number)

    yield _repaired(visit, finding, set_aside, f"{len(damaged)} damaged letters were set aside: {ids}")


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
    problem = f"deliveries without a letter: numbers {lost}" if lost else ""
    finding = verdict("deliveries", problem, "every delivery has its letter", "repair=True removes them")
    done = f"deliveries without a letter were removed: numbers {lost}"
    yield _repaired(visit, finding, lambda: visit.database.execute(f"DELETE {where}"), done)


def _counts(visit: Visit) -> Iterator[Finding]:
    """Compare the kept counts, by which a full inbox is known, with a real count."""
    wrong = visit.database.execute(WRONG).get
    what = f"{wrong} kept counts of waiting letters"
    problem = f"{what} are wrong: an inbox may be full too early or too late" if wrong else ""
    fine = "the kept counts of waiting letters are right"
    finding = verdict("counts", problem, fine, "repair=True counts again")
    yield _repaired(visit, finding, lambda: recount(visit.database.execute), f"{what} were wrong; counted again")


def _texts(visit: Visit) -> Iterator[Finding]:
    """Check that all text is UTF-8: SQLite does not, and queries that meet such a row fail."""
    own = "typeof(name) || typeof(epoch) || typeof(boot) || typeof(trimmed) = 'texttexttextinteger'"
    if visit.database.execute(f"SELECT count(*) FROM room WHERE {own}").get != 1:
        yield error("rows", "the row that describes the room (table room) is damaged", COPY)
    broken = [table for table in TABLES if visit.full and not _can_be_read(visit.database, table)]
    fine = "every row can be read" if visit.full else "the room knows its name"
    yield verdict("rows", f"damaged in {', '.join(broken)}" if broken else "", fine, COPY)


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
    problem = f"{len(broken)} records cannot be read: {', '.join(broken[:MOST])}" if broken else ""
    yield verdict("records", problem, f"{len(found)} records can be read", COPY)


def _is_json(value: object) -> bool:
    return isinstance(value, bytes) and passes(ValueError, msgspec.json.decode, value)


def _mailbox_names(visit: Visit) -> Iterator[Finding]:
    """Compare each mailbox's name with its folded form."""
    wrong = "SELECT count(*) FROM mailboxes WHERE folded IS NOT lower(name)"
    broken = visit.database.execute(wrong).get
    problem = f"the names of {broken} mailboxes are damaged, and their mail is not shown" if broken else ""
    yield verdict("names", problem, "every mailbox has its name", COPY)


def _quarantine(visit: Visit) -> Iterator[Finding]:
    ids = [str(id) for (id,) in visit.database.execute(f"SELECT id FROM quarantine ORDER BY number LIMIT {MOST}")]
    problem = f"letters were found damaged and set aside: {', '.join(ids)}" if ids else ""
    hint = "check the disk; ask the senders to send again"
    yield verdict("quarantine", problem, "no letter was ever set aside", hint, warning)


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
