"""The mail folders of a room with its layout: whose they are, and where a new one may appear."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from .tree import FolderTree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layouts.base import Layout


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


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False
