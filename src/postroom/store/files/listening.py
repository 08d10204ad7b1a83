"""An ear at a mailbox of files: at its bell, which we ring, and at its folder, into which strangers drop mail."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ...model.names import AT
from ..bells import EVERYONE, ROOM
from ..ears import InotifyWatch, add_watch
from . import paper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..base import Watch
    from ..bells import DoorBells
    from .places import Places

_CREATED, _MOVED_IN = 0x100, 0x80
_DROPPED = _MOVED_IN | 0x8 | 0x40  # moved in, written, moved out


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
        if mailbox == EVERYONE:  # a bell, and nobody's folder
            return
        layout = self._places.layout
        folder = self._places.folder(layout.folder(mailbox), layout.places[0])
        paper.make_folder(self._places.path(folder))  # whoever waits has a mailbox
        self._listen_at(folder, _DROPPED, mailbox)

    def _listen_at(self, folder: str, mask: int, mailbox: str) -> None:
        with suppress(OSError):  # no more watches, or no such folder: the bell alone is heard
            watch = add_watch(self._descriptor, self._places.path(folder), mask)
            self._mailboxes.setdefault(watch, set()).add(mailbox)
            self._folders[watch] = folder

    def heard(self, watch: int, name: str) -> set[str]:
        folder = self._folders.get(watch)
        if folder is not None and not (self._places.layout.may_hold(name) and self._is_news(folder, name)):
            return set()
        return super().heard(watch, name)


class OutgoingWatch(FolderWatch):
    """Of whoever follows the whole room: hears its bell, and the folders of agents at other systems, into which
    strangers drop mail that is to go there. Those may appear at any time.
    """

    def add(self, mailbox: str) -> None:
        InotifyWatch.add(self, mailbox)
        if mailbox != ROOM:
            return
        self._listen_at("", _CREATED | _MOVED_IN, ROOM)
        for home in self._places.homes():
            self._listen_there(home)

    def _listen_there(self, home: str) -> None:
        """Both where letters lie at the top of a mailbox and where they lie below it."""
        if AT in home:
            inbox = self._places.folder(home, self._places.layout.places[0])
            for folder in dict.fromkeys((home, inbox)):
                self._listen_at(folder, _CREATED | _DROPPED, ROOM)

    def heard(self, watch: int, name: str) -> set[str]:
        folder = self._folders.get(watch)
        if folder is None or self._places.layout.may_hold(name):
            return super().heard(watch, name)
        home = folder.partition("/")[0] or name
        if AT not in home or name.startswith("."):
            return set()
        self._listen_there(home)  # before it is looked into: nothing comes in between
        return {ROOM}


def watch(
    bells: DoorBells, places: Places, mailboxes: Sequence[str], is_news: Callable[[str, str], bool]
) -> Watch:
    kind = OutgoingWatch if tuple(mailboxes) == (ROOM,) else FolderWatch  # no folder has that name
    return bells.watch(mailboxes, lambda ear: kind(bells, ear, places, is_news))
