"""Maintenance of rooms from outside: `doctor` for a room that may not open, `restore` for one that must be closed,
and `copy_room` for two rooms.
"""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .clock import SystemClock
from .core import transfer
from .core.authorize import OWNER
from .core.portable import check_path
from .core.verb import perform
from .errors import BadStore, Invalid, Missing, PostroomError
from .model.report import BackupReport, Diagnosis, Level, error, note
from .model.values import check_progress
from .room import open, open_with
from .settings import chosen_settings, default_room
from .store.address import file_of, folder_of, is_blank, is_on_server, local_place, place_of, server_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .core.core import Core
    from .core.transfer import Copied
    from .model.report import Finding, Progress
    from .settings import Settings

# Checks of a room's surroundings; a bad finding of any other check is damage inside the room.
AROUND = frozenset({"permissions", "folder", "file system", "space", "bells", "place", "settings"})
MOST = 10  # letters that cannot be read that one finding names
PATIENCE = 5.0  # seconds to wait for a room that is to be salvaged


def doctor(
    store: str | os.PathLike[str] | None = None,
    *,
    repair: bool = False,
    full: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Diagnosis:
    """Check the health of a room, also of one that cannot be opened. Creates no room."""
    check_progress(progress)
    try:
        chosen = chosen_settings(store, settings)
        path, place = _file(chosen), place_of(chosen.store)
    except Invalid as refused:
        return Diagnosis(findings=(_refused("settings", refused),))
    absent = f"there is no room at {place or chosen.store} yet"
    missing = Diagnosis(findings=(note("room", absent, "it is made when it is first opened"),))
    if place is not None and not _is_there(Path(place)):
        return missing
    try:
        if server_of(chosen.store) and not is_on_server(chosen.store):
            return missing
        with open(store, **settings) as room:
            findings = room.doctor(repair=repair, full=full, progress=progress).findings
    except PostroomError as refused:
        findings = (_refused("room", refused), *_around(path, repair=repair))
    # Only after the repairs: an index that could be rebuilt is no reason to copy the room.
    if path is not None and repair and any(_is_damage(finding) for finding in findings):
        findings = (*findings, *_salvaged(Path(os.path.realpath(path))))
    return Diagnosis(findings=findings)


def _is_there(path: Path) -> bool:
    """Return whether a room lies at this path; a path that no file can have is the caller's mistake."""
    try:
        return path.exists() and not is_blank(str(path))
    except OSError as broken:
        raise BadStore(f"{path} cannot be reached: {broken.strerror}", field="store") from None


def restore(
    backup: str | os.PathLike[str],
    store: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> BackupReport:
    """Replace a room by a backup. No process may have the room open.

    A room that holds mail is only replaced with `overwrite`, and is then kept beside the new one.
    """
    from .store.sqlite.backup import put_back  # noqa: PLC0415 - rare

    chosen = chosen_settings(store, settings)
    path, report = _file(chosen), check_progress(progress)
    if folder_of(chosen.store) is not None:
        raise BadStore(
            "a backup is a room in a file, and this room is a folder",
            field="store",
            hint="restore into a room in a file of its own, then copy that one into the folder",
        )
    if server_of(chosen.store):
        raise BadStore(
            "a backup is a room in a file, and this room is on a server",
            field="store",
            hint="pg_restore brings back what pg_dump wrote; or restore into a file, then copy that one here",
        )
    if path is None:
        raise BadStore("a room in memory cannot be restored", field="store", hint="use load() with an export")
    began = time.monotonic()
    letters, kept = put_back(
        check_path(backup, "backup"), path, overwrite=overwrite, busy_timeout=chosen.busy_timeout, progress=report
    )
    return BackupReport(
        path=str(path),
        letters=letters,
        bytes=path.stat().st_size,
        seconds=time.monotonic() - began,
        kept=None if kept is None else str(kept),
    )


def copy_room(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Copied:
    """Copy all mail of one room into another, of whatever kind each is. A second copy brings only what is new."""
    # Bad addresses are refused before anything is made.
    chosen = [_named(address, field, settings) for address, field in ((source, "source"), (target, "target"))]
    source_path, target_path = (_whereabouts(each.store) for each in chosen)
    # By real paths: through a link, a room would be copied into itself.
    if source_path == target_path:
        raise BadStore(f"{source_path} is the room that it is copied from", field="target", hint="name another")
    is_there = is_on_server(source_path) if server_of(chosen[0].store) else os.path.lexists(source_path)
    if not is_there:
        raise Missing(
            f"there is no room at {source_path}", field="source", hint="nothing was copied, and none is made"
        )
    source_core = _core(chosen[0])
    with closing(source_core.store):
        target_core = _core(chosen[1])
        with closing(target_core.store):
            return perform(target_core, OWNER, transfer.Copy(source=source_core, progress=progress))


def _whereabouts(address: str) -> str:
    """Return what tells two rooms apart."""
    return server_of(address) or os.path.realpath(place_of(address) or "")


def _named(address: str | os.PathLike[str], field: str, settings: dict[str, Any]) -> Settings:
    if not address:
        raise BadStore("names no room", field=field)
    try:
        chosen = chosen_settings(address, settings)
        place = local_place(chosen.store)
    except BadStore as refused:
        refused.field = field
        raise
    if place is None:
        raise BadStore(
            "only its own process can copy a room in memory", field=field, hint="name a file or a folder"
        )
    return chosen


def _core(chosen: Settings) -> Core:
    return open_with(chosen, SystemClock()).core


def _file(chosen: Settings) -> Path | None:
    file = file_of(chosen.store) if chosen.store else default_room()
    return None if file is None else Path(file)


def _refused(check: str, refused: PostroomError) -> Finding:
    what = f"{refused.field}: {refused.message}" if refused.field else refused.message
    return error(check, what, refused.hint or "keep a copy of the room's files, then restore a backup")


def _is_damage(finding: Finding) -> bool:
    """Return whether a finding is damage inside the room that was not repaired."""
    return finding.level is Level.ERROR and not finding.repaired and finding.check not in AROUND


def _salvaged(path: Path) -> Iterator[Finding]:
    """Save the readable letters of a damaged room into another file; the room itself is left as it is."""
    from shlex import quote  # noqa: PLC0415 - rare

    from .store.sqlite.salvage import salvage  # noqa: PLC0415

    if not Path(f"{path}.lock").exists():  # no room ever lay here
        return
    force = f" --room {quote(str(path))} --force"
    try:
        saved = salvage(path, PATIENCE)
    except PostroomError as refused:
        yield _refused("salvage", refused)
        return
    if saved is None:
        fresh = f"without one, stop all agents and move {path} and its {path.name}-* and {path.name}.* files away"
        yield note(
            "salvage",
            "no letter could be read",
            f"postroom rooms restore FILE{force} brings back a backup; {fresh}",
        )
        return
    text = (
        f"{saved.letters} letters could be read and lie in {saved.path}; {len(saved.lost)} others cannot be read"
    )
    if saved.lost:
        shown = [id or f"number {number}" for number, id in saved.lost.items()][:MOST]
        text = f"{text}: {', '.join(shown)}{', …' if len(saved.lost) > MOST else ''}"
    yield note("salvage", text, f"postroom rooms restore {quote(str(saved.path))}{force} makes it the room")


def _around(path: Path | None, *, repair: bool) -> Iterator[Finding]:
    """Check the surroundings of a room that does not open. A file that is no room is not touched."""
    from .store.sqlite.place import examine_place, is_room_file  # noqa: PLC0415 - rare

    if path is not None and is_room_file(path):
        yield from examine_place(Path(os.path.realpath(path)), repair=repair)
