"""The mail folders on disk: which of them may hold letters, and when one changed.

Paths are relative to the home, the folder that holds all mailbox folders: `bob/inbox`, or `bob` where letters lie
directly in the mailbox folder. The quick look (`store.peek`) uses this module too, so it imports next to nothing.
"""

from __future__ import annotations

import os
import stat

from .layouts.paths import LayoutPaths

TYPE_CHECKING = False  # `typing` takes longer to load than the quick look
if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layouts.base import Layout

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


class MailFolders(FolderTree):
    """The folder tree of a room, with its layout."""

    def __init__(self, root: str, layout: Layout) -> None:
        super().__init__(root, layout)
        self.layout = layout
        self.warned_paths: set[str] = set()  # folders and files that a warning was logged for

    def below_root(self, path: str) -> str:
        """Return a path relative to the root, from one relative to the home."""
        return f"{self.layout.home}/{path}".lstrip("/")

    def of(self, folder: str) -> tuple[str, str]:
        """Split a mail folder into the mailbox folder and the place within it."""
        home, _, place = folder.partition("/")
        return home, place

    def all_folders(self) -> Iterator[str]:
        """Yield every folder in which a mailbox, a mail folder or a letter may appear."""
        yield ""
        for home in self.homes():
            yield home
            for place in self.layout.places:
                if place and _is_folder(self.path(f"{home}/{place}")):
                    yield f"{home}/{place}"


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


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
