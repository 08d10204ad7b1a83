"""One quick look from outside at a room of files: is there surely nothing unread in a mailbox?

The index is asked as any room is. But the files are the truth: first it is made sure that nobody was cut off in
the middle, and that the folders in which mail of this mailbox may lie hold what the index knows, and nothing else.
Like the store, it trusts a folder's time where that was noted. What others did elsewhere is left to whoever looks
there. Nothing is written, and anything odd is for the store.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..sqlite.peek import has_nothing
from .folders import APPLICATION, INDEX, LAYOUT, OWN_FOLDER, Tree, changed_at, marks_of
from .layouts.paths import SHAPES

if TYPE_CHECKING:
    import apsw


WARNING_AT = 20  # in the lock file, as in lock.py
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


def is_surely_empty(address: str, /, mailbox: str, others: list[str] | None = None) -> bool:
    """As in any room; this is one at `files:<root>?layout=<name>`."""
    try:
        tree = _tree_at(address)
        if tree is None:
            return False
        own = f"{tree.root}/{OWN_FOLDER}"
        if not _is_laid_out(own, tree.shape.name) or _is_warned(own):
            return False
        return has_nothing(
            f"{own}/{INDEX}", mailbox, others, APPLICATION, lambda index: _is_current(index, tree, mailbox)
        )
    except (OSError, ValueError):
        return False


def _tree_at(address: str) -> Tree | None:
    """None: the address is for the store to read."""
    rest, _, layout = address.removeprefix("files:").partition("?layout=")
    root = rest.rstrip("/").removeprefix("//")
    if not root or root.startswith("~") or "?" in root or "\n" in root or layout not in SHAPES:
        return None
    return Tree(os.path.realpath(root), SHAPES[layout])


def _is_laid_out(own: str, layout: str) -> bool:
    with open(f"{own}/{LAYOUT}", "rb") as file:  # as text it would load a codec
        return file.read(100).strip() == layout.encode()


def _is_warned(own: str) -> bool:
    """Is somebody in the middle of a commit, or was cut off there? It is looked at as the store opens it: a place
    that cannot be written is for the store to judge.
    """
    descriptor = os.open(f"{own}/{INDEX}.lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, 1, WARNING_AT) != b"\0"
    finally:
        os.close(descriptor)


def _is_current(index: apsw.Connection, tree: Tree, mailbox: str) -> bool:
    """Does the index know all that may be mail for this mailbox?"""
    names = (mailbox.lower(), mailbox)
    is_known, shares_folder = index.execute(_WHO, names).get
    if shares_folder or not (is_known or _is_registry_known(index, tree)):
        return False
    others = {folder for (folder,) in index.execute(_OTHERS, names)}
    return all(
        _is_known(index, tree, tree.folder(home, place))
        for home in tree.homes()
        if home not in others
        for place in tree.shape.places
    )


def _is_registry_known(index: apsw.Connection, tree: Tree) -> bool:
    """Is the file that shows all agents as one of us left it? It may name somebody like this mailbox."""
    if tree.shape.registry is None:
        return True
    try:
        marks = marks_of(os.lstat(tree.path(tree.shape.registry)))
    except FileNotFoundError:
        marks = None
    return bool(index.execute(_REGISTRY).get == marks)


def _is_known(index: apsw.Connection, tree: Tree, folder: str) -> bool:
    path = tree.path(folder)
    changed = changed_at(path)
    return (
        changed is None or index.execute(_NOTED, (folder,)).get == changed or _is_same(index, tree, folder, path)
    )


def _is_same(index: apsw.Connection, tree: Tree, folder: str, path: str) -> bool:
    """Are the files in it those that the index has? Most changes are our own."""
    names = os.listdir(path)
    if len(names) > MOST:
        return False
    there = {name: marks_of(os.lstat(f"{path}/{name}")) for name in names if tree.shape.may_hold(name)}
    return there == {name: tuple(marks) for name, *marks in index.execute(_FILES, (folder, MOST + 1))}
