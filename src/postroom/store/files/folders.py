"""The folders of a room that hold mail: whose they are, and where a new one may appear."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from .tree import Tree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layouts.base import Layout


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
