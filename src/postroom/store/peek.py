"""A quick look from outside that finds out whether a mailbox surely holds nothing unread.

Hooks and `postroom check` ask this at every prompt, and mostly there is nothing. So this module and all that it
imports stay light: no model, no store, no `typing`. It opens the file for reading only, and knows two answers:
surely nothing, or "ask the store". Time that has passed, a name spelt otherwise, another boot, another schema,
anything unusual: ask the store.

Of mail folders the files are the truth. There it also makes sure that no commit was cut off in the middle,
and that the folders in which mail of this mailbox may lie hold what the index knows, and nothing else. Like the
store, it trusts a folder's time where that was noted.
"""

from __future__ import annotations

import os
import stat
import time

import apsw

from ..constants import INDEX_APPLICATION, ONE_MAILBOX, ROOM_APPLICATION, WARNING_AT
from ..environment import boot_id
from .files.layouts.paths import LAYOUT_PATHS
from .files.tree import INDEX, LAYOUT, OWN_FOLDER, FolderTree, changed_at, marks_of
from .sqlite.note import number_in

FILES = "files:"
PATIENCE = 200  # milliseconds for a process that opens the room at the same moment
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_SCHEMA = os.path.join(os.path.dirname(__file__), "sqlite", "schema")
_HUMAN_NAMES = frozenset({*ONE_MAILBOX, *ONE_MAILBOX.values()})  # three names, and the store knows whose

# True: the same boot; no other agent has or had a name like this; nothing unread; and time did nothing to it.
# And all that was confirmed is there.
_QUESTION = """
WITH box AS (SELECT id, name FROM mailboxes WHERE folded = ?1)
SELECT (SELECT boot FROM room) = ?3
   AND max(coalesce((SELECT max(number) FROM letters), 0), coalesce((SELECT max(number) FROM changes), 0)) >= ?6
   AND NOT EXISTS (SELECT 1 FROM box WHERE name <> ?2)
   AND NOT EXISTS (SELECT 1 FROM aliases WHERE folded = ?1)
   AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 1 AND seen = 0 AND mailbox IN (SELECT id FROM box))
   AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 2 AND lease_until <= ?4
                   AND mailbox IN (SELECT id FROM box))
   AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 0 AND due_at <= ?5 AND mailbox IN (SELECT id FROM box))
   AND NOT EXISTS (SELECT 1 FROM deliveries WHERE state < 2 AND expires_at IS NOT NULL AND expires_at <= ?5
                   AND mailbox IN (SELECT id FROM box))
"""

_NAMES = """
SELECT name FROM mailboxes WHERE NOT EXISTS (SELECT 1 FROM mailboxes WHERE folded = ?1)
   AND abs(length(folded) - length(?1)) <= 2 LIMIT 1000
"""

MOST = 500  # files that are looked at one by one in a folder that changed; the store notes its time

# Folders of mail that is another's. Where nobody has this name yet there are none: any letter might bring it.
_OTHERS = "SELECT folder FROM homes WHERE mailbox <> (SELECT id FROM mailboxes WHERE folded = ?1 AND name = ?2)"
# Is this name known? And has another the same folder? Then whose a letter is stands in the letter alone.
_WHO = """
SELECT EXISTS (SELECT 1 FROM mailboxes WHERE folded = ?1 AND name = ?2),
       instr(?1, '_') AND EXISTS (SELECT 1 FROM mailboxes WHERE folded <> ?1 AND replace(folded, '/', '_') = ?1)
"""
_REGISTRY = "SELECT inode, size, written FROM registry"
_NOTED = "SELECT changed FROM folders WHERE folder = ?"
_FILES = "SELECT name, inode, size, written FROM files WHERE folder = ? LIMIT ?"


def is_surely_empty(room: str, mailbox: str, others: list[str] | None = None) -> bool:
    """Return whether the mailbox surely has nothing unread; False means that the store must be asked.

    `room` is a SQLite file, or an address `files:<root>?layout=<name>`. Where nobody has the name, the names that
    exist are put into `others`.
    """
    try:
        return (_folder_is_empty if room.startswith(FILES) else _room_is_empty)(room, mailbox, others)
    except (OSError, ValueError, apsw.Error):
        return False


def _room_is_empty(path: str, mailbox: str, others: list[str] | None) -> bool:
    values = _values(os.path.realpath(path), mailbox)
    database = _opened(os.path.realpath(path), ROOM_APPLICATION) if values else None
    return database is not None and _has_nothing(database, values, others)


def _folder_is_empty(address: str, mailbox: str, others: list[str] | None) -> bool:
    tree = _tree_at(address)
    if tree is None:
        return False
    own = f"{tree.root}/{OWN_FOLDER}"
    if not _is_laid_out(own, tree.paths.name) or _is_warned(own):
        return False
    path = os.path.realpath(f"{own}/{INDEX}")
    values = _values(path, mailbox)
    index = _opened(path, INDEX_APPLICATION) if values else None
    return index is not None and _is_current(index, tree, mailbox) and _has_nothing(index, values, others)


def _values(path: str, mailbox: str) -> tuple[str | float, ...]:
    """Return what the question is asked with; nothing where the store has checks to make, or things to do."""
    if mailbox.lower() in _HUMAN_NAMES or not _is_a_room_in_use(path):
        return ()
    now = (time.clock_gettime(_STEADY), time.time_ns() // 1000)
    return (mailbox.lower(), mailbox, boot_id(), *now, number_in(f"{path}.lock"))


def _is_a_room_in_use(path: str) -> bool:
    """Return whether it is a file of ours with one name, and its log beside it."""
    found = os.stat(path)
    log = os.stat(f"{path}-wal")
    os.stat(f"{path}-shm")
    if not found.st_size:  # of an emptied file SQLite deletes the log
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == log.st_nlink == 1


def _opened(path: str, application: int) -> apsw.Connection | None:
    """Open the file for reading; None where it is of another kind, or of another schema."""
    database = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW)
    database.set_busy_timeout(PATIENCE)
    database.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    database.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
    version = (application, sum(name.endswith(".sql") for name in os.listdir(_SCHEMA)))
    return database if (database.pragma("application_id"), database.pragma("user_version")) == version else None


def _has_nothing(database: apsw.Connection, values: tuple[str | float, ...], others: list[str] | None) -> bool:
    if not database.execute(_QUESTION, values).get:
        return False
    if others is not None:
        others += [name for (name,) in database.execute(_NAMES, values[:1])]
    return True


def _tree_at(address: str) -> FolderTree | None:
    """None: the address is for the store to read."""
    rest, _, layout = address.removeprefix("files:").partition("?layout=")
    root = rest.rstrip("/").removeprefix("//")
    if not root or root.startswith("~") or "?" in root or "\n" in root or layout not in LAYOUT_PATHS:
        return None
    return FolderTree(os.path.realpath(root), LAYOUT_PATHS[layout])


def _is_laid_out(own: str, layout: str) -> bool:
    with open(f"{own}/{LAYOUT}", "rb") as file:  # as text it would load a codec
        return file.read(100).strip() == layout.encode()


def _is_warned(own: str) -> bool:
    """Return whether a process is in the middle of a commit, or was cut off there.

    The file is opened as the store opens it: a place that cannot be written is for the store to judge.
    """
    descriptor = os.open(f"{own}/{INDEX}.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, 1, WARNING_AT) != b"\0"
    finally:
        os.close(descriptor)


def _is_current(index: apsw.Connection, tree: FolderTree, mailbox: str) -> bool:
    """Return whether the index knows all that may be mail for this mailbox."""
    names = (mailbox.lower(), mailbox)
    is_known, shares_folder = index.execute(_WHO, names).get
    if shares_folder or not (is_known or _is_registry_known(index, tree)):
        return False
    others = {folder for (folder,) in index.execute(_OTHERS, names)}
    return all(
        _is_known(index, tree, tree.folder(home, place))
        for home in tree.homes()
        if home not in others
        for place in tree.paths.places
    )


def _is_registry_known(index: apsw.Connection, tree: FolderTree) -> bool:
    """Return whether the registry file is as one of us left it. It may name an agent like this mailbox."""
    if tree.paths.registry is None:
        return True
    try:
        marks = marks_of(os.lstat(tree.path(tree.paths.registry)))
    except FileNotFoundError:
        marks = None
    return bool(index.execute(_REGISTRY).get == marks)


def _is_known(index: apsw.Connection, tree: FolderTree, folder: str) -> bool:
    path = tree.path(folder)
    changed = changed_at(path)
    return (
        changed is None or index.execute(_NOTED, (folder,)).get == changed or _is_same(index, tree, folder, path)
    )


def _is_same(index: apsw.Connection, tree: FolderTree, folder: str, path: str) -> bool:
    """Return whether the files in it are those that the index has. Most changes are our own."""
    names = os.listdir(path)
    if len(names) > MOST:
        return False
    there = {name: marks_of(os.lstat(f"{path}/{name}")) for name in names if tree.paths.may_hold(name)}
    return there == {name: tuple(marks) for name, *marks in index.execute(_FILES, (folder, MOST + 1))}
