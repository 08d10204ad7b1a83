"""The mail folders of a room on the disk: which may hold messages, and how a change in one is seen.

Paths below the home are text with `/`, as they stand in the index. The quick look (`store.peek`) walks here as the
store does, so this module imports little.
"""

from __future__ import annotations

import os

from ...constants import INDEX_APPLICATION as APPLICATION
from .layouts.paths import LayoutPaths

__all__ = ["APPLICATION", "INDEX", "LAYOUT", "OWN_FOLDER", "Tree", "changed_at", "is_text", "marks_of"]

OWN_FOLDER = ".postroom"
INDEX = "index.db"
_MOST = 2**63 - 1  # the largest number in SQLite
LAYOUT = "layout"  # the file that names it


class Tree:
    """The mail folders of a room on the disk."""

    def __init__(self, root: str, shape: LayoutPaths) -> None:
        self.root = root
        self.shape = shape
        self.home = f"{root}/{shape.home}".rstrip("/")

    def path(self, folder: str) -> str:
        """Of a folder of mail, as the index calls it: `bob/inbox`, or `bob` where letters lie at the top."""
        return f"{self.home}/{folder}"

    def folder(self, home: str, place: str) -> str:
        return f"{home}/{place}" if place else home

    def homes(self) -> list[str]:
        """Return the folders of mailboxes. Links are not followed, and hidden folders belong to nobody."""
        try:
            with os.scandir(self.home) as found:
                return [
                    entry.name
                    for entry in found
                    if not entry.name.startswith((".", "_"))
                    and is_text(entry.name)
                    and entry.is_dir(follow_symlinks=False)
                ]
        except FileNotFoundError:
            return []

    def folders(self) -> list[str]:
        """Return every folder that may hold messages."""
        return [self.folder(home, place) for home in self.homes() for place in self.shape.places]


def is_text(name: str) -> bool:
    """Can this name of a file be written down? A system allows any bytes."""
    return name.isascii() or name.encode("utf-8", "replace").decode() == name


def changed_at(path: str) -> int | None:
    """When something was last put in or taken out; None where there is no such folder. The index keeps 64 bits of
    nanoseconds, which end in the year 2262.
    """
    try:
        return max(-_MOST, min(os.lstat(path).st_mtime_ns, _MOST))
    except OSError:
        return None


def marks_of(found: os.stat_result) -> tuple[int, int, int]:
    """By what a file is known to be the one that was seen: inode, size, and when it was written."""
    return found.st_ino & _MOST, found.st_size, found.st_mtime_ns
