"""A whole copy of a room in use, as of one moment, in a file of its own.

The copy is read inside one transaction: writers go on meanwhile, and what they write is not in it. Only the log
grows, because a checkpoint must wait for the reader. Nothing stands at the copy's name before it is whole and on
stable storage.
"""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from ...errors import BadStore, Conflict, StoreFailing
from .ground import create, sync_path
from .place import belongs_to
from .schema import APPLICATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...model.health import Progress

PAGES = 2048  # copied between two words about the progress: 8 MB


def copy_room(
    source: apsw.Connection, path: Path, *, overwrite: bool, progress: Progress, more_tables: Sequence[str] = ()
) -> int:
    """Copy a room into a new file, without tables that are no part of one; how many letters the copy holds."""
    _check_place(source.filename, path, overwrite=overwrite)
    with made_whole(path, overwrite=overwrite) as growing:
        source.execute("BEGIN")  # one view for the whole copy: without it, each write would start it over
        try:
            letters: int = source.execute("SELECT count(*) FROM letters").get
            copy_pages(source, growing, progress, more_tables)
        finally:
            source.execute("ROLLBACK")
        for end in ("-wal", ".lock"):  # a log must never meet another file than its own, nor must a note
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
    """Of the copy of an index, which is none: what stands beside its letters means nothing elsewhere."""
    for table in more_tables:
        copy.execute(f"DROP TABLE {table}")
    copy.pragma("application_id", APPLICATION)


@contextmanager
def made_whole(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """An empty file to fill, for its owner alone; it gets its name once it is on stable storage."""
    growing = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        create(growing)
        yield growing
        sync_path(growing)
        if overwrite:
            growing.replace(path)
        else:
            _name(growing, path)
        sync_path(path.parent)
    except FileExistsError:
        raise _taken(path) from None
    except OSError as failed:
        raise StoreFailing(f"{path} cannot be written: {failed.strerror}", hint="is there space?") from None
    finally:
        for left in (growing, growing.with_name(f"{growing.name}-journal")):
            left.unlink(missing_ok=True)


def _name(growing: Path, path: Path) -> None:
    """Give it its name, if that is still free."""
    try:
        os.link(growing, path)  # unlike a rename, this never replaces what somebody put there meanwhile
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError from None
        growing.rename(path)


def _check_place(room: str, path: Path, *, overwrite: bool) -> None:
    if not path.parent.is_dir():
        raise BadStore(f"there is no folder {path.parent}", field="path")
    if path.is_dir():
        raise BadStore(f"{path} is a folder", field="path", hint="name a file in it")
    if path.exists() and not path.is_file():
        raise BadStore(f"{path} is no plain file", field="path", hint="choose another name")
    if belongs_to(Path(room), path):
        raise BadStore(f"{path} is a file of the room itself", field="path", hint="choose another name")
    if os.path.lexists(path) and not overwrite:
        raise _taken(path)


def _taken(path: Path) -> Conflict:
    return Conflict(f"{path} exists already", field="path", hint="choose another name, or overwrite=True")
