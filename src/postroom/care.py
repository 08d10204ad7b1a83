"""Care from outside a room: look after one that may not open, put a backup back in its place, and carry mail from
one room into another.

What needs an open room is a verb of `Room`; this stands above it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import service
from .clock import SystemClock
from .errors import BadStore, Invalid, Missing, PostroomError
from .model.health import BackupReport, Diagnosis, Level, error, note
from .room import chosen_settings, open, open_with
from .service.authorize import OWNER
from .service.copying import check_path
from .service.doctor import LOG_END
from .service.given import told
from .settings import default_room
from .store.opening import file_of, folder_of, is_blank, place_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .model.health import Finding, Progress
    from .service.office import Office
    from .service.transfer import Copied
    from .settings import Settings

AROUND = frozenset({"permissions", "folder", "file system", "space", "bells", "place", "settings"})  # not inside
PATIENCE = 5.0  # seconds to wait for a room that is to be salvaged


def doctor(
    store: str | os.PathLike[str] | None = None,
    *,
    repair: bool = False,
    full: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Diagnosis:
    """Check the health of a room, also of one that cannot be opened. Makes no room where there is none."""
    told(progress)
    try:
        chosen = chosen_settings(store, settings)
        path, place = _file(chosen), place_of(chosen.store)
    except Invalid as refused:
        return Diagnosis(findings=(_refused("settings", refused),))
    if place is not None and not _is_there(Path(place)):
        missing = note("room", f"there is no room at {place} yet", "it is made when it is first opened")
        return Diagnosis(findings=(missing,))
    try:
        with open(store, **settings) as room:
            findings = room.doctor(repair=repair, full=full, progress=progress).findings
    except PostroomError as refused:
        findings = (_refused("room", refused), *_around(path, repair=repair))
    if path is not None and repair and any(_is_damage(finding) for finding in findings):
        findings = (*findings, *_salvaged(Path(os.path.realpath(path))))
    return Diagnosis(findings=findings)


def _is_there(path: Path) -> bool:
    """A name that no file can have is the caller's mistake, and not what ails a room."""
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
    """Make a room what a backup holds. Nobody may have the room open; one that holds mail is only replaced with
    `overwrite`, and is then kept beside the new one.
    """
    from .store.sqlite.restoring import put_back  # noqa: PLC0415 - rare

    chosen = chosen_settings(store, settings)
    path, tell = _file(chosen), told(progress)
    if folder_of(chosen.store) is not None:
        hint = "restore into a room in a file of its own, then copy that one into the folder"
        raise BadStore("a backup is a room in a file, and this room is a folder", field="store", hint=hint)
    if path is None:
        raise BadStore("a room in memory cannot be restored", field="store", hint="use load() with an export")
    began = time.monotonic()
    letters, kept = put_back(
        check_path(backup, "backup"), path, overwrite=overwrite, busy_timeout=chosen.busy_timeout, progress=tell
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
    move: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Copied:
    """Copy all mail of one room into another, of whatever kind each is. Again, it copies only what is new.

    With `move`, what is open is worked on in the other room from then on: at the source it is done and archived.
    """
    here, there, places = _both(source, target, settings)
    try:
        return service.transfer.copy_room(here, there, OWNER, move=move, places=places, progress=progress)
    finally:
        there.store.close()
        here.store.close()


def follow_room(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    move: bool = False,
    progress: Progress | None = None,
    **settings: Any,
) -> Iterator[Copied]:
    """The same, and then whatever comes, for as long as one asks for more."""
    here, there, places = _both(source, target, settings)
    try:
        yield from service.transfer.follow(here, there, OWNER, move=move, places=places, progress=progress)
    finally:
        there.store.close()
        here.store.close()


def _both(
    source: str | os.PathLike[str], target: str | os.PathLike[str], settings: dict[str, Any]
) -> tuple[Office, Office, tuple[str, str]]:
    """Both rooms, open, and where they lie. Everything is refused before anything is made."""
    chosen = [_named(address, field, settings) for address, field in ((source, "source"), (target, "target"))]
    here, there = (os.path.realpath(place_of(each.store) or "") for each in chosen)
    if here == there:
        raise BadStore(f"{here} is the room that it is copied from", field="target", hint="name another")
    if not os.path.lexists(here):
        raise Missing(f"there is no room at {here}", field="source", hint="nothing was copied, and none is made")
    source_office = _office(chosen[0])
    try:
        return source_office, _office(chosen[1]), (here, there)
    except BaseException:
        source_office.store.close()
        raise


def _named(address: str | os.PathLike[str], field: str, settings: dict[str, Any]) -> Settings:
    if not address:
        raise BadStore("names no room", field=field)
    try:
        chosen = chosen_settings(address, settings)
        place = place_of(chosen.store)
    except BadStore as refused:
        refused.field = field
        raise
    if place is None:
        raise BadStore("a room in memory is nobody else's to copy", field=field, hint="name a file or a folder")
    return chosen


def _office(chosen: Settings) -> Office:
    return open_with(chosen, SystemClock())._office  # noqa: SLF001 - a copy goes from room to room, not by verbs


def _file(chosen: Settings) -> Path | None:
    file = file_of(chosen.store) if chosen.store else default_room()
    return None if file is None else Path(file)


def _refused(check: str, refused: PostroomError) -> Finding:
    what = f"{refused.field}: {refused.message}" if refused.field else refused.message
    return error(check, what, refused.hint or "keep a copy of the room's files, then restore a backup")


def _is_damage(finding: Finding) -> bool:
    """Is something broken inside that could not be mended in its place?"""
    if finding.repaired or finding.check in AROUND:
        return False
    return finding.level is Level.ERROR or (finding.level is Level.WARNING and finding.check == LOG_END)


def _salvaged(path: Path) -> Iterator[Finding]:
    """Save what can be read of a room that is damaged; it is left as it is."""
    from shlex import quote  # noqa: PLC0415 - rare

    from .store.sqlite.salvaging import salvage  # noqa: PLC0415

    if not Path(f"{path}.lock").exists():  # no room ever lay here
        return
    force = f" --room {quote(str(path))} --force"
    try:
        saved = salvage(path, PATIENCE)
    except PostroomError as refused:
        yield _refused("salvage", refused)
        return
    if saved is None:
        anew = f"without one, stop all agents and move {path} and its {path.name}-* and {path.name}.* files away"
        yield note(
            "salvage", "no letter could be read", f"postroom restore FILE{force} brings back a backup; {anew}"
        )
        return
    told = (
        f"{saved.letters} letters could be read and lie in {saved.path}; {saved.lost} others are known to be lost"
    )
    yield note("salvage", told, f"postroom restore {quote(str(saved.path))}{force} makes it the room")


def _around(path: Path | None, *, repair: bool) -> Iterator[Finding]:
    """What can be told of a room that does not open. What is no room at all is not ours to judge or to mend."""
    from .store.sqlite.place import examine_place, is_room_file  # noqa: PLC0415 - rare

    if path is not None and is_room_file(path):
        yield from examine_place(Path(os.path.realpath(path)), repair=repair)
