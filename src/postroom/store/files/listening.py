"""An ear at a mailbox in a room of files: at its bell, which we ring, and at its folder, into which strangers drop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..ears import InotifyWatch, _libc
from . import paper

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..bells import DoorBells
    from ..base import Watch
    from .places import Places

_DROPPED = 0x100 | 0x80 | 0x8 | 0x40  # created, moved in or out, written


class FolderWatch(InotifyWatch):
    """Hears both."""

    def __init__(self, bells: DoorBells, descriptor: int, places: Places) -> None:
        super().__init__(bells, descriptor)
        self._places = places

    def add(self, mailbox: str) -> None:
        super().add(mailbox)
        layout = self._places.layout
        folder = self._places.path(self._places.folder(layout.folder(mailbox), layout.places[0]))
        paper.make_folder(folder)  # whoever waits has a mailbox
        watch = _libc().inotify_add_watch(self._descriptor, os.fsencode(folder), _DROPPED)
        if watch >= 0:  # else there are no more watches, and the bell alone is heard
            self._mailboxes.setdefault(watch, set()).add(mailbox)


def watch(bells: DoorBells, places: Places, mailboxes: Sequence[str]) -> Watch:
    return bells.watch(mailboxes, lambda ear: FolderWatch(bells, ear, places))
