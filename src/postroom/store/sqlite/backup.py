"""Backup and restore of a room.

A backup is a consistent copy of a room in use. It is read inside one transaction: writers go on meanwhile, and
what they write is not in it. Only the log grows, because a checkpoint must wait for the reader. The copy gets
its name once it is complete and on stable storage.

A restore checks the copy first, then puts it in place by one rename. A process that has the old file open would
go on reading it, so the writers' lock is held, and the restore is refused while any process has the room open.
At every moment an intact room stands at the path: the old one with its log, or the new one with none.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from ...errors import BadStore, Conflict, Damaged, PostroomError, SchemaTooNew, StoreBusy, StoreFailing
from . import ground, place
from .connection import NEXT_NUMBER, interruptible, translated
from .ground import create, sync_path
from .lock import WriterLock
from .place import belongs_to
from .schema import APPLICATION, STEPS, version_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...model.report import Progress
    from .note import Note


PAGES = 2048  # copied between two reports of progress: 8 MB


def copy_room(
    source: apsw.Connection, path: Path, *, overwrite: bool, progress: Progress, more_tables: Sequence[str] = ()
) -> int:
    """Copy a room into a new file, without `more_tables`, and return how many letters the copy holds."""
    check_place(source.filename, path, overwrite=overwrite)
    with made_whole(path, overwrite=overwrite) as growing:
        source.execute("BEGIN")  # one view for the whole copy: otherwise each write would start it over
        try:
            letters: int = source.execute("SELECT count(*) FROM letters").get
            copy_pages(source, growing, progress, more_tables)
        finally:
            source.execute("ROLLBACK")
        for end in ("-wal", ".lock"):  # SQLite would replay a log, and we would trust a note, of another file
            Path(f"{path}{end}").unlink(missing_ok=True)
    return letters


def copy_pages(
    source: apsw.Connection, growing: Path, progress: Progress, more_tables: Sequence[str] = ()
) -> None:
    target = apsw.Connection(str(growing))
    try:
        target.pragma("synchronous", "off")  # synced once, at the end
        with target.backup("main", source, "main") as copying:
            while not copying.done:
                copying.step(PAGES)
                progress(copying.page_count - copying.remaining, copying.page_count)
        if more_tables:
            _make_a_room(target, more_tables)
        target.pragma("journal_mode", "delete")  # one file, with no log beside it
    finally:
        target.close()


def _make_a_room(copy: apsw.Connection, more_tables: Sequence[str]) -> None:
    """Turn the copy of an index of files into a room: its own tables mean nothing elsewhere."""
    for table in more_tables:
        copy.execute(f"DROP TABLE {table}")
    copy.pragma("application_id", APPLICATION)


@contextmanager
def made_whole(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield an empty file to fill, readable by its owner alone; it gets its name once it is on stable storage."""
    growing = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        create(growing)
        yield growing
        # Content first, then the name, then the folder: a backup with a name is whole (G2).
        sync_path(growing)
        if overwrite:
            growing.replace(path)
        else:
            _name(growing, path)
        sync_path(path.parent)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as failed:
        raise StoreFailing(
            f"{path} cannot be written: {failed.strerror}",
            hint="check the free space and permissions of that folder",
        ) from None
    finally:
        for left in (growing, growing.with_name(f"{growing.name}-journal")):
            left.unlink(missing_ok=True)


def _name(growing: Path, path: Path) -> None:
    """Give the file its name, if that is still free."""
    try:
        os.link(growing, path)  # unlike a rename, this never replaces another file
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError from None
        growing.rename(path)


def check_place(room: str, path: Path, *, overwrite: bool) -> None:
    if not path.parent.is_dir():
        raise BadStore(f"there is no folder {path.parent}", field="path")
    if path.is_dir():
        raise BadStore(f"{path} is a folder", field="path", hint="name a file in it")
    if path.exists() and not path.is_file():
        raise BadStore(f"{path} is not a regular file", field="path", hint="choose another name")
    if room and belongs_to(Path(room), path):
        raise BadStore(f"{path} is a file of the room itself", field="path", hint="choose another name")
    if os.path.lexists(path) and not overwrite:
        raise _taken(path)


def _taken(path: Path) -> Conflict:
    return Conflict(f"{path} exists already", field="path", hint="choose another name, or overwrite=True")


# -- restore

CHUNK = 16 * 1024 * 1024
KEPT = ".before-restore"


def put_back(
    backup: Path, path: Path, *, overwrite: bool, busy_timeout: float, progress: Progress
) -> tuple[int, Path | None]:
    """Restore a backup to `path`; return how many letters it has, and where the old room is kept."""
    if place.is_open_here(Path(os.path.realpath(backup))):  # reading and closing it would drop SQLite's locks
        raise StoreBusy(
            f"this process has {backup} open", field="backup", hint="close it first, or copy it with backup()"
        )
    letters = check_copy(backup)
    path = Path(ground.prepare(path))
    if os.path.realpath(backup) == str(path):
        raise BadStore("the backup is the room itself", field="backup")
    if place.is_open_here(path):
        raise StoreBusy(f"this process has {path} open", hint="close the room first")
    with translated(path):
        lock = WriterLock(Path(f"{path}.lock"), busy_timeout)
    try:
        with translated(path), lock:
            # Under the lock, so nobody can open it meanwhile: opening takes the same lock.
            check_nobody_inside(path)
            kept = _keep_old_room(path, lock.noted, overwrite=overwrite)
            with made_whole(path, overwrite=True) as growing:
                _copy(backup, growing, progress)
                # Cursors of the old room must not be taken for cursors of this one.
                leave_one_file(growing, "UPDATE room SET epoch = ?", (secrets.token_hex(4),))
                # The note speaks of the old room, which reached further than the backup may.
                lock.forget_note()
    finally:
        lock.close()
    return letters, kept


def check_copy(backup: Path) -> int:
    """Return how many letters a backup holds; raise if it is no backup, damaged, or too new."""
    if not backup.is_file():
        raise BadStore(f"there is no file {backup}", field="backup")
    with _opened(backup, "backup") as database, interruptible(database):
        _check_version(database, backup)
        complaints = [text for (text,) in database.execute("PRAGMA quick_check(3)")]
        if complaints != ["ok"]:
            raise Damaged(f"{backup} is damaged: {complaints[0]}", field="backup", hint="use another backup")
        letters: int = database.execute("SELECT count(*) FROM letters").get
    return letters


def _copy(backup: Path, growing: Path, progress: Progress) -> None:
    if not _has_log(backup):
        copy_bytes(backup, growing, progress)
        return
    with _opened(backup, "backup") as database, interruptible(database):
        database.execute("BEGIN")  # one view for the whole copy
        copy_pages(database, growing, progress)


def copy_bytes(source: Path, target: Path, progress: Progress) -> None:
    """Copy the bytes of a file into one that no process has open yet."""
    total, done = source.stat().st_size, 0
    with source.open("rb") as reading, target.open("r+b") as writing:
        while piece := reading.read(CHUNK):
            writing.write(piece)
            done += len(piece)
            progress(done, total)


@contextmanager
def _opened(path: Path, field: str) -> Iterator[apsw.Connection]:
    """Open a backup for reading, with its log if it was used as a room since."""
    # `immutable` makes no `-shm` beside a backup, and works on read-only media.
    how = "mode=ro" if _has_log(path) else "immutable=1"
    try:
        database = apsw.Connection(f"file:{_quoted(path)}?{how}", flags=_TO_LOOK)
        try:
            yield database
        finally:
            database.close()
    except apsw.NotADBError:
        raise BadStore(f"{path} is not a backup of a room", field=field) from None
    except apsw.CorruptError as broken:
        raise Damaged(f"{path} is damaged: {broken}", field=field, hint="use another backup") from None
    except apsw.Error as broken:
        raise StoreFailing(f"{path} cannot be read: {broken}", field=field) from None


def _has_log(path: Path) -> bool:
    """Return whether a log with content belongs to this file.

    A backup that was never opened says in its header that it has none: a log beside it is of an earlier file.
    """
    log = Path(f"{path}-wal")
    if not log.exists() or not log.stat().st_size:
        return False
    with path.open("rb") as file:
        return file.read(_HEAD)[_LOGGED_AT:] == b"\2\2"


_LOGGED_AT, _HEAD = 18, 20  # where a SQLite file says that it has a log
_TO_LOOK = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def _quoted(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _check_version(database: apsw.Connection, backup: Path) -> None:
    try:
        version = version_of(database, backup)
    except PostroomError as refused:
        refused.field = "backup"
        raise
    if database.pragma("application_id") != APPLICATION or not version:
        raise BadStore(f"{backup} is not a backup of a room", field="backup")
    if version > len(STEPS):
        raise SchemaTooNew(
            f"{backup} has schema {version}, this Postroom knows {len(STEPS)}",
            field="backup",
            hint="upgrade: pip install -U postroom",
        )


def check_nobody_inside(path: Path) -> None:
    """Raise StoreBusy, with the names of the processes, while another process has the room open."""
    inside = [place.name_of(pid) for pid in place.holders(path) if pid != os.getpid()]
    if inside:
        raise StoreBusy(f"{path} is open in process {', '.join(inside)}", hint="end it first, then try again")


def _keep_old_room(path: Path, noted: Note, *, overwrite: bool) -> Path | None:
    """Keep the old room under another name, and leave no log behind: SQLite would replay it into the new room."""
    log = Path(f"{path}-wal")
    if not path.exists():
        _drop_log(log)
        return None
    sound = _reaches(path, noted) and _empty_log(path)
    if sound and _is_empty(path):
        return None
    if not overwrite:
        raise Conflict(f"{path} is not empty", field="store", hint="overwrite=True keeps the old room beside it")
    kept = _free_name(path)
    _keep(path, kept)
    if not sound and log.exists():
        _keep(log, Path(f"{kept}-wal"))
    _drop_log(log)
    return kept


@contextmanager
def opened_alone(path: Path) -> Iterator[apsw.Connection]:
    """Open a room that nobody else uses, and leave its log where it is."""
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW)
    try:
        database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        yield database
    finally:
        database.close()


def _reaches(path: Path, noted: Note) -> bool:
    """Return whether all confirmed changes are there; else the log is damaged, and must be kept as it is."""
    if not noted[0]:
        return True
    with opened_alone(path) as database, suppress(apsw.Error):
        return bool(database.execute(NEXT_NUMBER).get > noted[0])
    return False


def _empty_log(path: Path) -> bool:
    """Bring the log into the room's file; False if the room is too damaged for that."""
    try:
        with opened_alone(path) as database:
            database.pragma("locking_mode", "exclusive")  # fails if any program has it open
            database.execute("BEGIN EXCLUSIVE; COMMIT")
            database.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.BusyError:
        raise StoreBusy(f"another program has {path} open", hint="end it first, then try again") from None
    except apsw.Error:
        return False
    return True


def _is_empty(path: Path) -> bool:
    with opened_alone(path) as database, suppress(apsw.Error):
        if not database.execute("SELECT count(*) FROM sqlite_schema").get:
            return True
        return version_of(database, path) > 0 and not database.execute("SELECT 1 FROM mailboxes LIMIT 1").get
    return False


def _keep(path: Path, kept: Path) -> None:
    with made_whole(kept, overwrite=True) as growing:
        copy_bytes(path, growing, lambda _done, _total: None)


def _free_name(path: Path) -> Path:
    first = path.with_name(path.name + KEPT)
    further = (path.with_name(f"{path.name}{KEPT}-{number}") for number in range(2, 10_000))
    return next(name for name in (first, *further) if not os.path.lexists(name))


def _drop_log(log: Path) -> None:
    if log.exists():
        os.truncate(log, 0)
        ground.sync_path(log)


def leave_one_file(room: Path, change: str, values: tuple[str, ...] = ()) -> None:
    """Change a room that is not in use, and leave it without a log beside it."""
    with opened_alone(room) as database:
        database.execute(change, values)
        database.pragma("journal_mode", "delete")
