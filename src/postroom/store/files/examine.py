"""The health of what surrounds the letters: folders and who may look in, files set aside, leavings; and whether
the index knows every file.

The index is examined as any room in a file is; whatever is wrong with it, it can be made anew. Folders and letters
that others made are used as they are: their owner and mode are told, and never changed.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import PostroomError, Unreadable
from ...model.report import Level, error, ok, warning
from ..sqlite.examine import examine_room
from . import durable as files_durable
from . import journal, letter_files, reconcile
from .layouts.base import Where
from .quarantine import ASIDE
from .reconcile import LARGEST
from .tree import is_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ...model.report import Finding, Progress
    from ..sqlite.rows import Row
    from .connection import FileConnection
    from .ledger import Held
    from .store import FileStore
    from .watch import News


MOST = 10  # names that one finding tells
LEFT_BEHIND = 3600 * 1_000_000_000  # nanoseconds after which nobody is still writing a temporary file
OTHERS = 0o077
ANEW = "with all agents stopped, delete index.db in .postroom: it is made anew from the files and the journal"
_OF_ROOMS = frozenset({"quarantine"})  # what is said here in other words


def examine_index(
    here: FileConnection, path: str, *, durable: bool, repair: bool, full: bool, progress: Progress
) -> Iterator[Finding]:
    """As of any room, with what is different for one that can be made anew."""
    found = examine_room(here, path, durable=durable, repair=repair, full=full, progress=progress)
    return (_of_an_index(finding) for finding in found if finding.check not in _OF_ROOMS)


def examine_surroundings(store: FileStore, *, repair: bool, full: bool) -> Iterator[Finding]:
    checks = {name: check(store.connection(), repair=repair) for name, check in CHECKS.items()}
    checks["index"] = _compared(store, repair=repair, full=full)
    for name, findings in checks.items():
        try:
            yield from findings
        except (PostroomError, OSError) as failed:
            yield error(name, f"could not be looked at: {failed}")


def _of_an_index(finding: Finding) -> Finding:
    """No letter is lost with an index, and no backup is needed to mend it."""
    if finding.level is Level.ERROR and not finding.repaired and "backup" in finding.hint:
        return replace(finding, hint=ANEW)
    return finding


def _folders(here: FileConnection, *, repair: bool) -> Iterator[Finding]:  # noqa: ARG001
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


def _write(here: FileConnection, *, repair: bool) -> Iterator[Finding]:  # noqa: ARG001
    """A real file, made to last, read and removed."""
    began, content = time.monotonic(), os.urandom(64)
    path, _ = files_durable.write_aside(here.places.home, content, durable=True)
    try:
        same = files_durable.read(path, LARGEST)[0] == content
    finally:
        os.unlink(path)
    if same:
        yield ok("writing", f"a file was written, read and removed in {(time.monotonic() - began) * 1000:.1f} ms")
    else:
        yield error("writing", "what was written is not what is read", "do not trust this disk")


def _set_aside(here: FileConnection, *, repair: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Files that are no letters, and why. After the index was made anew nobody knows why any more."""
    rows: list[Row] = here.database.execute("SELECT id, body FROM quarantine ORDER BY number").fetchall()
    reasons = {id: body.decode("utf-8", "replace") for id, body in rows}
    lying = [
        here.places.below_root(f"{home}/{ASIDE}/{name}")
        for home in here.places.homes()
        for name in _listed(here.places.path(f"{home}/{ASIDE}"))
    ]
    if not lying:
        yield ok("quarantine", "no file is set aside")
        return
    results = [f"{name} ({reasons.get(name, 'before the index was made anew')})" for name in lying]
    hint = "mend a file and move it back under its own name (without the last ending), or delete it"
    yield warning(
        "quarantine", f"{len(lying)} file(s) set aside, since they are no letters: {_few(results)}", hint
    )


def _strange(here: FileConnection, *, repair: bool) -> Iterator[Finding]:  # noqa: ARG001
    """Files that look like letters, in folders that can be nobody's."""
    strange = {}
    for folder in here.places.folders():
        count = len(_letters_in(here, folder))
        if count and (why := _why_nobodys(here, here.places.of(folder)[0])):
            strange[here.places.below_root(folder)] = f"{count}: {why}"
    if strange:
        results = [f"{folder} ({why})" for folder, why in strange.items()]
        hint = "they are no mail and are left alone; put them into the mailbox of an agent if they are"
        yield warning("mailboxes", f"files lie in folders that are no mailboxes: {_few(results)}", hint)
    else:
        yield ok("mailboxes", "no letters lie outside of mailboxes")


def _letters_in(here: FileConnection, folder: str) -> list[str]:
    return list(filter(here.places.layout.may_hold, _listed(here.places.path(folder))))


def _why_nobodys(here: FileConnection, home: str) -> str:
    try:
        here.whose(home)
    except PostroomError as wrong:
        return wrong.message
    return ""


def _leavings(here: FileConnection, *, repair: bool) -> Iterator[Finding]:
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
    return name.startswith(".") and name.endswith(files_durable.TEMPORARY)


def _is_older(path: str, nanoseconds: int) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime_ns < nanoseconds


def _compared(store: FileStore, *, repair: bool, full: bool) -> Iterator[Finding]:
    """Does the index know every file, and where each letter stands?"""
    count, wrong = _differences(store.connection(), full=full)
    looked = "says what they say" if full else "knows them (what they say is compared with full=True)"
    if not wrong:
        yield ok("index", f"{count} letters in files, and the index {looked}")
        return
    what = f"the index and the files differ: {_few([f'{path} {why}' for path, why in wrong.items()])}"
    if not repair:
        yield warning("index", what, "repair=True lets the index follow the files")
        return
    store.set_right(_by_folder(wrong))
    _, left = _differences(store.connection(), full=full)
    yield warning("index", what, ANEW if left else "", repaired=not left)


def _by_folder(paths: Iterable[str]) -> News:
    news: News = {}
    for folder, _, name in (path.rpartition("/") for path in paths):
        names = news.setdefault(folder, set())
        if names is not None:
            names.add(name)
    return news


def _differences(here: FileConnection, *, full: bool) -> tuple[int, dict[str, str]]:
    """How many files there are, and what is wrong with which. Nobody of us writes meanwhile; a stranger may."""
    count, wrong = 0, dict[str, str]()
    with here.lock:
        here.mend()
        for folder in dict.fromkeys([*here.places.folders(), *here.ledger.used_folders()]):
            if _why_nobodys(here, here.places.of(folder)[0]):
                continue
            held = here.ledger.held_in(folder)
            there = _letters_in(here, folder)
            found = {name: _wrong(here, folder, name, held.get(name), full=full) for name in there}
            found |= {name: "is gone" for name in held if name not in found}
            wrong |= {f"{folder}/{name}": why for name, why in found.items() if why}
            count += len(there)
    return count, wrong


def _wrong(here: FileConnection, folder: str, name: str, held: Held | None, *, full: bool) -> str:
    if held is None:
        return "is not in the index"
    if held.stamp != files_durable.Stamp.of(os.lstat(f"{here.places.path(folder)}/{name}")):
        return "was changed"
    return _state_told(here, folder, name, held) if full else ""


def _state_told(here: FileConnection, folder: str, name: str, held: Held) -> str:
    """Where its letter stands, if a file tells it otherwise than the index. What the letter says is looked at in
    `examining`.
    """
    message, _ = here.letter(held.number)
    found = [(owner, each) for at, owner, each in here.deliveries(message, held.number) if at == held.mailbox]
    if not found:
        return "has no delivery"
    owner, delivery = found[0]
    try:
        raw, stamp = files_durable.read(f"{here.places.path(folder)}/{name}", LARGEST)
        where = Where(owner, here.places.of(folder)[1], name, stamp.time)
        result = letter_files.parse_file(here.places.layout, raw, where, LARGEST).state.state
    except Unreadable:
        return ""
    shown = here.places.layout.shown(delivery)
    return "" if result is shown else f"says {result}, the index {delivery.state}"


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(name if is_text(name) else ascii(name)[1:-1] for name in names[:MOST]) + more


CHECKS: dict[str, Callable[..., Iterator[Finding]]] = {
    "folders": _folders,
    "writing": _write,
    "quarantine": _set_aside,
    "mailboxes": _strange,
    "leavings": _leavings,
}


# The health of a room of files: its index, as of any room; and are files and journal what they were?

_FILES = """
SELECT f.number, m.name, f.folder, f.name FROM files f JOIN mailboxes m ON m.id = f.mailbox
ORDER BY f.folder, f.name"""


def examine(store: FileStore, of_the_index: Iterator[Finding], *, repair: bool, full: bool) -> Iterator[Finding]:
    if store.made_anew:
        lost = "leases and failed attempts, which no file tells, are gone"
        yield error("index", f"it was made anew from the files; {lost}: {store.made_anew}", repaired=True)
    yield from of_the_index
    here = store.connection()
    yield from _journal(here, repair=repair)
    if full:
        yield from _files(store, here, repair=repair)


def _journal(here: FileConnection, *, repair: bool) -> Iterator[Finding]:
    with here.lock:
        damaged = here.journal.damaged()
        if damaged and repair:
            here.mend()
            journal.compact(here)
    if damaged:
        text = ", ".join(map(str, damaged[:MOST]))
        what = f"{len(damaged)} lines cannot be read: {text}; the index has what they said"
        yield error(
            "journal", what, "" if repair else "repair=True writes it anew from the index", repaired=repair
        )
    else:
        yield ok("journal", "every line can be read")


def _files(store: FileStore, here: FileConnection, *, repair: bool) -> Iterator[Finding]:
    """Does every file still say what was accepted?"""
    wrong: dict[str, set[str] | None] = {}
    known: list[Row] = here.database.execute(_FILES).fetchall()
    for number, owner, folder, name in known:
        if not _is_sound(here, number, owner, folder, name):
            names = wrong.setdefault(folder, set())
            if names is not None:
                names.add(name)
    count = sum(len(names or ()) for names in wrong.values())
    if not count:
        yield ok("files", f"{len(known)} files say what was accepted")
        return
    text = ", ".join(f"{folder}/{name}" for folder, names in wrong.items() for name in sorted(names or ()))
    if repair:
        store.set_right(wrong)
    hint = "" if repair else "repair=True sets them aside and writes the letters again"
    yield error("files", f"{count} files do not say what was accepted: {text}", hint, repaired=repair)


def _is_sound(here: FileConnection, number: int, owner: str, folder: str, name: str) -> bool:
    _, place = here.places.of(folder)
    message, _ = here.letter(number)
    try:
        raw, stamp = files_durable.read(f"{here.places.path(folder)}/{name}", reconcile.LARGEST)
        where = Where(owner, place, name, stamp.time)
        sheet = letter_files.parse_file(here.places.layout, raw, where, reconcile.LARGEST)
    except (FileNotFoundError, Unreadable):
        return False
    return reconcile.is_as_accepted(here.places.layout, message, sheet, folder, name)
