"""An ear at a mailbox of files: at its bell, which we ring, and at its folder, into which strangers drop mail."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..ears import InotifyWatch, add_watch
from . import paper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..base import Watch
    from ..bells import DoorBells
    from .places import Places

_DROPPED = 0x80 | 0x8 | 0x40  # moved in, written, moved out


class FolderWatch(InotifyWatch):
    """Hears both. What we did in a folder ourselves is no news: for that there is the bell."""

    def __init__(
        self, bells: DoorBells, descriptor: int, places: Places, is_news: Callable[[str, str], bool]
    ) -> None:
        super().__init__(bells, descriptor)
        self._places = places
        self._is_news = is_news
        self._folders: dict[int, str] = {}

    def add(self, mailbox: str) -> None:
        super().add(mailbox)
        layout = self._places.layout
        folder = self._places.folder(layout.folder(mailbox), layout.places[0])
        paper.make_folder(self._places.path(folder))  # whoever waits has a mailbox
        with suppress(OSError):  # no more watches: the bell alone is heard
            watch = add_watch(self._descriptor, self._places.path(folder), _DROPPED)
            self._mailboxes.setdefault(watch, set()).add(mailbox)
            self._folders[watch] = folder

    def heard(self, watch: int, name: str) -> set[str]:
        folder = self._folders.get(watch)
        if folder is not None and not (self._places.layout.may_hold(name) and self._is_news(folder, name)):
            return set()
        return super().heard(watch, name)


def watch(
    bells: DoorBells, places: Places, mailboxes: Sequence[str], is_news: Callable[[str, str], bool]
) -> Watch:
    return bells.watch(mailboxes, lambda ear: FolderWatch(bells, ear, places, is_news))
