"""The doctor's checks of a room of files: index, journal, letter files, folders, and what lies beside them.

The index is examined like any room in a file; whatever is wrong with it, it can be rebuilt. Folders and letters
that other programs made are used as they are: their owner and mode are reported, never changed.
"""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ...errors import PostroomError, Unreadable
from ...model.report import Level, error, ok, verdict, warning
from ..sqlite.examine import examine_room
from . import durable as files_durable
from . import journal, reconcile
from .letter_files import LARGEST
from .quarantine import QUARANTINE
from .tree import is_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...model.report import Finding, Progress
    from ..sqlite.rows import Row
    from .connection import FileConnection
    from .ledger import IndexedFile
    from .store import FileStore
    from .watch import FileChanges


MOST = 10  # names that one finding lists
LEFT_BEHIND = 3600 * 1_000_000_000  # nanoseconds after which no process is still writing a temporary file
OTHERS = 0o077  # mode bits of other users
REBUILD = "with all agents stopped, delete index.db in .postroom: it is rebuilt from the files and the journal"
_FILES = """
SELECT f.number, m.name, f.folder, f.name FROM files f JOIN mailboxes m ON m.id = f.mailbox
ORDER BY f.folder, f.name"""


def examine(store: FileStore, *, durable: bool, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
    """Yield the findings about the index, the journal, the files and what lies around them."""
    if store.made_anew:
        lost = "leases and failed attempts, which no file holds, are lost"
        yield error("index", f"it was rebuilt from the files; {lost}: {store.made_anew}", repaired=True)
    conn = store.connection()
    for finding in examine_room(conn, store.path, durable=durable, repair=repair, full=full, progress=progress):
        if finding.check != "quarantine":  # files are set aside elsewhere
            yield _with_index_hint(finding)
    yield from _journal(conn, repair=repair)
    if full:
        yield from _files(store, conn, repair=repair)
    checks = {
        "folders": _folders(conn),
        "writing": _write(conn),
        "quarantine": _set_aside(conn),
        "mailboxes": _outside_mailboxes(conn),
        "leavings": _temporary_files(conn, repair=repair),
        "index": _compared(store, repair=repair, full=full),
    }
    for name, findings in checks.items():
        try:
            yield from findings
        except (PostroomError, OSError) as failed:
            yield error(name, f"could not be examined: {failed}")


def _with_index_hint(finding: Finding) -> Finding:
    """Return a finding about the index with the hint to rebuild it: no backup is needed."""
    if finding.level is Level.ERROR and not finding.repaired and "backup" in finding.hint:
        return replace(finding, hint=REBUILD)
    return finding


# -- journal and letters


def _journal(conn: FileConnection, *, repair: bool) -> Iterator[Finding]:
    with conn.lock:
        damaged = conn.journal.damaged()
        if damaged and repair:
            conn.recover()
            journal.compact(conn)
    if damaged:
        text = ", ".join(map(str, damaged[:MOST]))
        what = f"{len(damaged)} lines cannot be read: {text}; the index has their content"
        yield error("journal", what, "" if repair else "repair=True rewrites it from the index", repaired=repair)
    else:
        yield ok("journal", "every line can be read")


def _files(store: FileStore, conn: FileConnection, *, repair: bool) -> Iterator[Finding]:
    """Check that every file still holds the letter that was accepted."""
    wrong: dict[str, set[str]] = {}
    known: list[Row] = conn.database.execute(_FILES).fetchall()
    for number, owner, folder, name in known:
        if not _is_sound(conn, number, owner, folder, name):
            wrong.setdefault(folder, set()).add(name)
    count = sum(map(len, wrong.values()))
    if not count:
        yield ok("files", f"{len(known)} files say what was accepted")
        return
    text = ", ".join(f"{folder}/{name}" for folder, names in wrong.items() for name in sorted(names))
    if repair:
        store.recheck(wrong)
    hint = "" if repair else "repair=True sets them aside and writes the letters again"
    yield error("files", f"{count} files do not say what was accepted: {text}", hint, repaired=repair)


def _is_sound(conn: FileConnection, number: int, owner: str, folder: str, name: str) -> bool:
    message, _ = conn.letter(number)
    try:
        parsed, _ = conn.parse(folder, name, owner)
    except (FileNotFoundError, Unreadable):
        return False
    return reconcile.is_as_accepted(conn.tree.layout, message, parsed, folder, name)


# -- folders, quarantine, temporary files, and the index compared with the files


def _folders(conn: FileConnection) -> Iterator[Finding]:
    """Report who else may read or write the folders. They may belong to others, so nothing is changed."""
    closed, foreign, shared = [], [], []
    there = [conn.tree.root, *(conn.tree.path(folder) for folder in conn.tree.all_folders())]
    for path in dict.fromkeys(path.rstrip("/") for path in there):
        found = os.stat(path)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            closed.append(path)
        elif found.st_uid != os.geteuid():
            foreign.append(path)
        elif stat.S_IMODE(found.st_mode) & OTHERS:
            shared.append(path)
    if closed:
        yield error(
            "folders",
            f"cannot be used by this user: {_few(closed)}",
            "correct their owner and mode (chown, chmod)",
        )
    if foreign:
        what = f"belong to other users, and are used as they are: {_few(foreign)}"
        yield warning("folders", what, "their owners can read and delete the mail in them")
    if shared:
        what = f"other users can look into {len(shared)} folders, which are used as they are: {_few(shared)}"
        yield warning("folders", what, f"chmod -R go-rwx {conn.tree.root}, if no other user needs them")
    if not (closed or foreign or shared):
        yield ok("folders", "all folders of mail are for their owner alone")


def _write(conn: FileConnection) -> Iterator[Finding]:
    """Write a real file, sync, read and remove it."""
    began, content = time.monotonic(), os.urandom(64)
    path, _ = files_durable.write_temporary(conn.tree.home, content, durable=True)
    try:
        same = files_durable.read(path, LARGEST)[0] == content
    finally:
        os.unlink(path)
    fine = f"a file was written, read and removed in {(time.monotonic() - began) * 1000:.1f} ms"
    problem = "" if same else "the disk returned other data than was written"
    yield verdict("writing", problem, fine, "check or replace the disk")


def _set_aside(conn: FileConnection) -> Iterator[Finding]:
    """List the files that were set aside, and why. A rebuilt index has lost the reasons."""
    rows: list[Row] = conn.database.execute("SELECT id, body FROM quarantine ORDER BY number").fetchall()
    reasons = {id: body.decode("utf-8", "replace") for id, body in rows}
    files = [
        conn.tree.below_root(f"{home}/{QUARANTINE}/{name}")
        for home in conn.tree.homes()
        for name in _listed(conn.tree.path(f"{home}/{QUARANTINE}"))
    ]
    listed = [f"{name} ({reasons.get(name, 'before the index was rebuilt')})" for name in files]
    problem = f"{len(files)} file(s) set aside, since they are no letters: {_few(listed)}" if files else ""
    hint = "correct a file and move it back under its own name (without the last ending), or delete it"
    yield verdict("quarantine", problem, "no file is set aside", hint, warning)


def _outside_mailboxes(conn: FileConnection) -> Iterator[Finding]:
    """List files that look like letters in folders that no mailbox can have."""
    outside = {}
    for folder in conn.tree.folders():
        count = len(_letters_in(conn, folder))
        if count and (why := _why_no_mailbox(conn, conn.tree.of(folder)[0])):
            outside[conn.tree.below_root(folder)] = f"{count}: {why}"
    listed = _few([f"{folder} ({why})" for folder, why in outside.items()])
    problem = f"files lie in folders that are no mailboxes: {listed}" if listed else ""
    hint = "they are no mail and are left alone; put them into the mailbox of an agent if they are"
    yield verdict("mailboxes", problem, "no letters lie outside of mailboxes", hint, warning)


def _letters_in(conn: FileConnection, folder: str) -> list[str]:
    return list(filter(conn.tree.layout.may_hold, _listed(conn.tree.path(folder))))


def _why_no_mailbox(conn: FileConnection, home: str) -> str:
    try:
        conn.owner_of(home)
    except PostroomError as wrong:
        return wrong.message
    return ""


def _temporary_files(conn: FileConnection, *, repair: bool) -> Iterator[Finding]:
    """List, and repair by removing, temporary files older than an hour, whose writers are dead."""
    before = time.time_ns() - LEFT_BEHIND
    folders = [conn.tree.home, f"{conn.tree.root}/.postroom", *(conn.tree.path(f) for f in conn.tree.folders())]
    found = [
        path
        for folder in dict.fromkeys(folders)
        for name in _listed(folder)
        if name.startswith(".")
        and name.endswith(files_durable.TEMPORARY)
        and _is_older(path := f"{folder}/{name}", before)
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


def _is_older(path: str, nanoseconds: int) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime_ns < nanoseconds


def _compared(store: FileStore, *, repair: bool, full: bool) -> Iterator[Finding]:
    """Check that the index has each file, in the state that the file shows."""
    count, wrong = _differences(store.connection(), full=full)
    verdict = "says what they say" if full else "knows them (what they say is compared with full=True)"
    if not wrong:
        yield ok("index", f"{count} letters in files, and the index {verdict}")
        return
    what = f"the index and the files differ: {_few([f'{path} {why}' for path, why in wrong.items()])}"
    if not repair:
        yield warning("index", what, "repair=True lets the index follow the files")
        return
    store.recheck(_by_folder(wrong))
    _, left = _differences(store.connection(), full=full)
    yield warning("index", what, REBUILD if left else "", repaired=not left)


def _by_folder(paths: Iterable[str]) -> FileChanges:
    changes: dict[str, set[str]] = {}
    for folder, _, name in (path.rpartition("/") for path in paths):
        changes.setdefault(folder, set()).add(name)
    return changes


def _differences(conn: FileConnection, *, full: bool) -> tuple[int, dict[str, str]]:
    """Return the number of files, and what is wrong with which. Other programs may write meanwhile."""
    count, wrong = 0, dict[str, str]()
    with conn.lock:
        conn.recover()
        for folder in dict.fromkeys([*conn.tree.folders(), *conn.ledger.used_folders()]):
            if _why_no_mailbox(conn, conn.tree.of(folder)[0]):
                continue
            held = conn.ledger.files_in(folder)
            there = _letters_in(conn, folder)
            found = {name: _wrong(conn, folder, name, held.get(name), full=full) for name in there}
            found |= {name: "is gone" for name in held if name not in found}
            wrong |= {f"{folder}/{name}": why for name, why in found.items() if why}
            count += len(there)
    return count, wrong


def _wrong(conn: FileConnection, folder: str, name: str, held: IndexedFile | None, *, full: bool) -> str:
    if held is None:
        return "is not in the index"
    if held.stamp != files_durable.Stamp.of(os.lstat(f"{conn.tree.path(folder)}/{name}")):
        return "was changed"
    return _state_difference(conn, folder, name, held) if full else ""


def _state_difference(conn: FileConnection, folder: str, name: str, held: IndexedFile) -> str:
    """Return how the state in a file differs from the index; `_files` compares the letter itself."""
    message, _ = conn.letter(held.number)
    found = [(owner, each) for at, owner, each in conn.deliveries(message, held.number) if at == held.mailbox]
    if not found:
        return "has no delivery"
    owner, delivery = found[0]
    try:
        state = conn.parse(folder, name, owner)[0].state.state
    except Unreadable:
        return ""
    indexed = conn.tree.layout.visible_state(delivery)
    return "" if state is indexed else f"says {state}, the index {delivery.state}"


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _few(names: list[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(name if is_text(name) else ascii(name)[1:-1] for name in names[:MOST]) + more
