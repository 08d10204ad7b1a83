"""The health of a room in folders: what is true of its files, and of the index beside them.

The index is examined as any room in a file is; whatever is wrong with it, it can be made anew. Folders and letters
that others made are used as they are: their owner and mode are told, and never changed. With `repair`, leavings of
writers that died are removed, and the index is brought together with the files.
"""

from __future__ import annotations

import os
import stat
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import PostroomError, Unreadable
from ...model.health import Level, error, ok, warning
from ..sqlite.examining import examine_room
from . import letters, paper, recovering
from .layouts.base import Where
from .reconciling import ASIDE, LARGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...model.health import Finding, Progress
    from ..sqlite.rows import Row
    from .connection import FileConnection
    from .ledger import Held

MOST = 10  # names that one finding tells
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)  # of no letter that says its own time
LEFT_BEHIND = 3600 * 1_000_000_000  # nanoseconds after which nobody is still writing a temporary file
OTHERS = 0o077
ANEW = "with all agents stopped, delete index.db in .postroom: it is made anew from the files and the journal"
_OF_ROOMS = frozenset({"quarantine"})  # what is said here in other words


def examine_files(
    here: FileConnection, path: str, *, durable: bool, repair: bool, full: bool, progress: Progress
) -> Iterator[Finding]:
    """All checks: first those of the index, then those of the files."""
    found = examine_room(here, path, durable=durable, repair=repair, full=full, progress=progress)
    yield from (_of_an_index(finding) for finding in found if finding.check not in _OF_ROOMS)
    for name, check in CHECKS.items():
        try:
            yield from check(here, repair=repair, full=full)
        except (PostroomError, OSError) as failed:
            yield error(name, f"could not be looked at: {failed}")


def _of_an_index(finding: Finding) -> Finding:
    """No letter is lost with an index, and no backup is needed to mend it."""
    if finding.level is Level.ERROR and not finding.repaired and "backup" in finding.hint:
        return replace(finding, hint=ANEW)
    return finding


def _folders(here: FileConnection, *, repair: bool, full: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Who else may look in or write there. They may be others' folders: nothing is changed."""
    closed, foreign, shared = [], [], []
    there = [here.places.root, *(here.places.path(folder) for folder in here.places.all_folders())]
    for path in dict.fromkeys(path.rstrip("/") for path in there):
        found = os.stat(path)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            closed.append(path)
        elif found.st_uid != os.geteuid():
            foreign.append(path)
        elif stat.S_IMODE(found.st_mode) & OTHERS:
            shared.append(path)
    if closed:
        yield error("folders", f"cannot be used by this user: {_few(closed)}", "mend their owner and mode")
    if foreign:
        what = f"belong to other users, and are used as they are: {_few(foreign)}"
        yield warning("folders", what, "their owners can read and delete the mail in them")
    if shared:
        what = f"other users can look into {len(shared)} folders, which are used as they are: {_few(shared)}"
        yield warning("folders", what, f"chmod -R go-rwx {here.places.root}, if nobody else needs them")
    if not (closed or foreign or shared):
        yield ok("folders", "all folders of mail are for their owner alone")


def _write(here: FileConnection, *, repair: bool, full: bool) -> Iterator[Finding]:  # noqa: ARG001
    """A real file, made to last, read and removed."""
    began, content = time.monotonic(), os.urandom(64)
    path, _ = paper.write_aside(here.places.home, content, durable=True)
    try:
        same = paper.read(path, LARGEST)[0] == content
    finally:
        os.unlink(path)
    if same:
        yield ok("files", f"a file was written, read and removed in {(time.monotonic() - began) * 1000:.1f} ms")
    else:
        yield error("files", "what was written is not what is read", "do not trust this disk")


def _set_aside(here: FileConnection, *, repair: bool, full: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Files that are no letters, and why. After the index was made anew nobody knows why any more."""
    rows: list[Row] = here.database.execute("SELECT id, body FROM quarantine ORDER BY number").fetchall()
    reasons = {id: body.decode("utf-8", "replace") for id, body in rows}
    lying = [
        f"{home}/{ASIDE}/{name}"
        for home in here.places.homes()
        for name in _listed(here.places.path(f"{home}/{ASIDE}"))
    ]
    if not lying:
        yield ok("quarantine", "no file is set aside")
        return
    told = [f"{name} ({reasons.get(name, 'before the index was made anew')})" for name in lying]
    hint = "mend a file and put it back into its folder, or delete it"
    yield warning("quarantine", f"{len(lying)} files are no letters and were set aside: {_few(told)}", hint)


def _leavings(here: FileConnection, *, repair: bool, full: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Temporary files of writers that died. One that is younger than an hour may still be written."""
    before = time.time_ns() - LEFT_BEHIND
    home = here.places.home
    folders = [home, f"{here.places.root}/.postroom", *(here.places.path(f) for f in here.places.folders())]
    found = [
        path
        for folder in dict.fromkeys(folders)
        for name in _listed(folder)
        if _is_temporary(name) and _is_older(path := f"{folder}/{name}", before)
    ]
    if not found:
        yield ok("leavings", "no temporary files were left behind")
        return
    what = f"{len(found)} temporary files were left behind: {_few(found)}"
    if not repair:
        yield warning("leavings", what, "repair=True removes them")
        return
    for path in found:
        os.unlink(path)
    yield warning("leavings", what, repaired=True)


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(paper.TEMPORARY)


def _is_older(path: str, nanoseconds: int) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime_ns < nanoseconds


def _compared(here: FileConnection, *, repair: bool, full: bool) -> Iterator[Finding]:
    """Does the index say what the files say?"""
    with here.lock:  # nobody of us writes meanwhile; a stranger may
        here.mend()
        count, wrong = _differences(here, full=full)
        left = wrong
        if wrong and repair:
            _distrust(here, wrong)
            recovering.recover(here)
            count, left = _differences(here, full=full)
    looked = "says what they say" if full else "knows them (what they say is compared with full=True)"
    if not wrong:
        yield ok("index", f"{count} letters in files, and the index {looked}")
        return
    what = f"the index and the files differ: {_few([f'{path} {why}' for path, why in wrong.items()])}"
    if repair and not left:
        yield warning("index", what, repaired=True)
    else:
        yield warning("index", what, ANEW if repair else "the next look at the mail takes it in; or repair=True")


def _differences(here: FileConnection, *, full: bool) -> tuple[int, dict[str, str]]:
    """How many files there are, and what is wrong with which."""
    count, wrong = 0, {}
    for folder in dict.fromkeys([*here.places.folders(), *here.ledger.used_folders()]):
        held, path = here.ledger.held_in(folder), here.places.path(folder)
        there = [name for name in _listed(path) if here.places.layout.may_hold(name)]
        for name in there:
            if name not in held:
                wrong[f"{folder}/{name}"] = "is not in the index"
            elif held[name].stamp != paper.Stamp.of(os.lstat(f"{path}/{name}")):
                wrong[f"{folder}/{name}"] = "was changed"
            elif full and (why := _says(here, folder, name, held[name])):
                wrong[f"{folder}/{name}"] = why
        count += len(there)
        wrong |= {f"{folder}/{name}": "is gone" for name in held if name not in there}
    return count, wrong


def _distrust(here: FileConnection, wrong: Iterable[str]) -> None:
    """Let these files be read again: they are the truth."""
    for path in wrong:
        folder, _, name = path.rpartition("/")
        held = here.ledger.held(folder, name)
        if held is not None:
            here.ledger.keep(held.number, held.mailbox, folder, name, paper.Stamp(0, 0, 0))


def _says(here: FileConnection, folder: str, name: str, held: Held) -> str:
    """What a file says otherwise than the index; nothing, if they agree."""
    message, _ = here.letter(held.number)
    found = [(owner, each) for at, owner, each in here.deliveries(message, held.number) if at == held.mailbox]
    if not found:
        return "has no delivery"
    owner, delivery = found[0]
    try:
        raw, _ = paper.read(f"{here.places.path(folder)}/{name}", LARGEST)
        where = Where(owner, here.places.of(folder)[1], name, _LONG_AGO)
        sheet = letters.read_sheet(here.places.layout, raw, where, LARGEST)
    except Unreadable as broken:
        return f"cannot be read: {broken}"
    if sheet.told.state is not here.places.layout.shown(delivery):
        return f"says {sheet.told.state}, the index {delivery.state}"
    if sheet.message.id != message.id or sheet.message.parts != message.parts:
        return "holds another letter"
    return ""


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


CHECKS: dict[str, Callable[..., Iterator[Finding]]] = {
    "folders": _folders,
    "files": _write,
    "quarantine": _set_aside,
    "leavings": _leavings,
    "index": _compared,
}
