"""Which folders hold mail, and whose. Paths below the root are text with `/`, as they stand in the index."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from . import paper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .layouts.base import Layout


class Places:
    def __init__(self, root: str, layout: Layout) -> None:
        self.root = root
        self.layout = layout
        self.home = f"{root}/{layout.home}".rstrip("/")
        self.complained: set[str] = set()  # of which folders somebody was told that they are nobody's

    def path(self, folder: str) -> str:
        """Of a folder of mail, as the index calls it: `bob/inbox`, or `bob` where letters lie at the top."""
        return f"{self.home}/{folder}"

    def below_root(self, path: str) -> str:
        """What lies below the home, as the owner of the root calls it."""
        return f"{self.layout.home}/{path}".lstrip("/")

    def folder(self, home: str, place: str) -> str:
        return f"{home}/{place}" if place else home

    def of(self, folder: str) -> tuple[str, str]:
        """The mailbox's folder, and the place in it."""
        home, _, place = folder.partition("/")
        return home, place

    def homes(self) -> Iterator[str]:
        """The folders of mailboxes. Links are not followed, hidden ones are nobody's."""
        try:
            with os.scandir(self.home) as found:
                for entry in found:
                    is_hidden = entry.name.startswith((".", "_")) or not paper.is_text(entry.name)
                    if not is_hidden and entry.is_dir(follow_symlinks=False):
                        yield entry.name
        except FileNotFoundError:
            return

    def folders(self) -> Iterator[str]:
        """Every folder that may hold letters."""
        for home in self.homes():
            for place in self.layout.places:
                yield self.folder(home, place)

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
