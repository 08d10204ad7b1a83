"""The folders of a room as they lie on the disk: which may hold letters, and by what it is seen that one changed.

Paths below the home are text with `/`, as they stand in the index. It weighs next to nothing: a quick look walks
here as the store does.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layouts.base import Layout
    from .layouts.paths import LayoutPaths


OWN_FOLDER = ".postroom"
INDEX = "index.db"
APPLICATION = 0x506F7369  # "Posi": marks a SQLite file as the index of a room, which is no room by itself
_MOST = 2**63 - 1  # the largest number in SQLite
LAYOUT = "layout"  # the file that names it


class Tree:
    def __init__(self, root: str, shape: LayoutPaths) -> None:
        self.root = root
        self.shape = shape
        self.home = f"{root}/{shape.home}".rstrip("/")

    def path(self, folder: str) -> str:
        """Of a folder of mail, as the index calls it: `bob/inbox`, or `bob` where letters lie at the top."""
        return f"{self.home}/{folder}"

    def folder(self, home: str, place: str) -> str:
        return f"{home}/{place}" if place else home

    def homes(self) -> Iterator[str]:
        """The folders of mailboxes. Links are not followed, hidden ones are nobody's."""
        try:
            with os.scandir(self.home) as found:
                for entry in found:
                    is_hidden = entry.name.startswith((".", "_")) or not is_text(entry.name)
                    if not is_hidden and entry.is_dir(follow_symlinks=False):
                        yield entry.name
        except FileNotFoundError:
            return

    def folders(self) -> Iterator[str]:
        """Every folder that may hold letters."""
        for home in self.homes():
            for place in self.shape.places:
                yield self.folder(home, place)


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


# Which folders hold mail, whose they are, and in which a new one may appear.


class Places(Tree):
    def __init__(self, root: str, layout: Layout) -> None:
        super().__init__(root, layout)
        self.layout = layout
        self.complained: set[str] = set()  # of which folders somebody was told that they are nobody's

    def below_root(self, path: str) -> str:
        """What lies below the home, as the owner of the root calls it."""
        return f"{self.layout.home}/{path}".lstrip("/")

    def of(self, folder: str) -> tuple[str, str]:
        """The mailbox's folder, and the place in it."""
        home, _, place = folder.partition("/")
        return home, place

    def all_folders(self) -> Iterator[str]:
        """Every folder in which a mailbox or a folder of mail may appear, and those that hold letters."""
        yield ""
        for home in self.homes():
            yield home
            for place in self.layout.places:
                if place and _is_folder(self.path(f"{home}/{place}")):
                    yield f"{home}/{place}"


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
