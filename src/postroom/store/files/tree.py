"""The mail folders on disk: which of them may hold letters, and when one changed.

Paths are relative to the home, the folder that holds all mailbox folders: `bob/inbox`, or `bob` where letters lie
directly in the mailbox folder. The quick look (`store.peek`) uses this module too, so it imports next to nothing.
"""

from __future__ import annotations

import os

from .layouts.paths import LayoutPaths

OWN_FOLDER = ".postroom"
INDEX = "index.db"
_MOST = 2**63 - 1  # the largest number in SQLite
LAYOUT = "layout"  # the file that names the layout


class FolderTree:
    """The folder tree of a room, by the paths of its layout."""

    def __init__(self, root: str, paths: LayoutPaths) -> None:
        self.root = root
        self.paths = paths
        self.home = f"{root}/{paths.home}".rstrip("/")

    def path(self, folder: str) -> str:
        """Return the absolute path of a mail folder."""
        return f"{self.home}/{folder}"

    def folder(self, home: str, place: str) -> str:
        return f"{home}/{place}" if place else home

    def homes(self) -> list[str]:
        """Return the mailbox folders. Links are not followed, and hidden folders are no mailboxes."""
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
        """Return every folder that may hold letters."""
        return [self.folder(home, place) for home in self.homes() for place in self.paths.places]


def is_text(name: str) -> bool:
    """Return whether a file name is valid text. The system allows any bytes."""
    return name.isascii() or name.encode("utf-8", "replace").decode() == name


def changed_at(path: str) -> int | None:
    """Return when a file was last added or removed, in nanoseconds; None if there is no such folder.

    The index stores 64 bits, which end in the year 2262.
    """
    try:
        return max(-_MOST, min(os.lstat(path).st_mtime_ns, _MOST))
    except OSError:
        return None


def marks_of(found: os.stat_result) -> tuple[int, int, int]:
    """Return the values by which a change of a file is noticed: inode, size and modification time."""
    return found.st_ino & _MOST, found.st_size, found.st_mtime_ns
