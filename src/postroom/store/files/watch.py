"""Noticing what strangers do in the mail folders.

Short programs compare each folder's time with the one that was noted when it was last read. Who stays longer lets
the kernel tell (inotify): then a look costs one system call, however many letters there are. What is told is only
where to look.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from ...model.names import AT
from ..notification import EVERYONE, ROOM, InotifyWatch, add_watch, open_inotify, read_events
from . import durable
from .tree import changed_at

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..notification import ProcessNotifier
    from ..protocol import Watch
    from .folders import Places


News: TypeAlias = dict[str, "set[str] | None"]  # a folder -> the names to look at; None means all of them

UNSETTLED = 50_000_000  # nanoseconds: a folder that changed so lately may change again without another time
_NO_MORE = {errno.ENOSPC, errno.ENOMEM}  # watches, for this user
_CREATE, _FROM, _TO, _DELETE, _CLOSE_WRITE = 0x100, 0x40, 0x80, 0x200, 0x8
_SELF, _OVERFLOW, _IS_FOLDER, _ONLY_FOLDER = 0x400 | 0x800, 0x4000, 0x4000_0000, 0x100_0000
_MASK = _CREATE | _FROM | _TO | _DELETE | _CLOSE_WRITE | _SELF | _ONLY_FOLDER


class DirWatcher:
    """One for all threads of a process."""

    def __init__(self, places: Places, noted: Callable[[], dict[str, int]], used: Callable[[], list[str]]) -> None:
        self._places = places
        self._noted = noted  # when each folder was last read, as the index has it
        self._used = used  # the folders in which letters lie, as the index has it
        self._lock = threading.Lock()
        self._looks = 0
        self._ear: int | None = None
        self._folders: dict[int, str] = {}  # by watch
        self._again: News = {}  # what could not be dealt with
        self._pid = os.getpid()

    def look(self) -> News:
        """What may have changed since the last look."""
        with self._lock:
            if self._pid != os.getpid():  # the parent's ear is not ours
                self._ear, self._folders, self._looks, self._pid = None, {}, 0, os.getpid()
            self._looks += 1
            news, self._again = self._again, {}
            if self._ear is None and self._looks == 2:
                self._ear = open_inotify()
                self._listen()
                return _merged(news, self._compared())
            return _merged(news, self._compared() if self._ear is None else self._heard())

    def put_back(self, news: News) -> None:
        """It was not dealt with; the next look tells it again."""
        with self._lock:
            self._again = _merged(self._again, news)

    def close(self) -> None:
        with self._lock:
            if self._ear is not None and self._pid == os.getpid():
                os.close(self._ear)
            self._ear, self._folders, self._looks = None, {}, 0

    # -- by their times

    def _compared(self) -> News:
        noted = self._noted()
        found = {folder: changed_at(self._places.path(folder)) for folder in self._places.folders()}
        changed = [folder for folder, at in found.items() if at is not None and noted.get(folder) != at]
        return dict.fromkeys([*changed, *self._taken_away(found)])

    def _taken_away(self, there: dict[str, int | None]) -> list[str]:
        """Folders with mail that somebody deleted or renamed, of those that are not there."""
        return [
            folder for folder in self._used() if there.get(folder) is None and is_gone(self._places.path(folder))
        ]

    # -- by being told

    def _listen(self) -> None:
        if self._ear is None:
            return
        for folder in self._places.all_folders():
            if self._ear is not None:
                self._watch(folder)

    def _watch(self, folder: str) -> None:
        try:
            self._folders[add_watch(self._ear or -1, self._places.path(folder), _MASK)] = folder
        except OSError as refused:
            if refused.errno in _NO_MORE and self._ear is not None:  # look at times, as before
                os.close(self._ear)
                self._ear, self._folders = None, {}

    def _heard(self) -> News:
        news: News = {}
        while True:
            try:
                events = os.read(self._ear or -1, 65536)
            except BlockingIOError:
                return news
            if self._take(events, news):  # the tree has changed, or something was missed
                self._listen()
                return _merged(news, dict.fromkeys([*self._places.folders(), *self._taken_away({})]))

    def _take(self, events: bytes, news: News) -> bool:
        """Note what they tell. Has the tree changed, or was something missed?"""
        anew = False
        for watch, mask, name in read_events(events):
            folder = self._folders.get(watch)
            if folder is not None and mask & _CREATE and mask & _IS_FOLDER and not name.startswith((".", "_")):
                self._look_into(folder, name, news)
                continue
            if mask & (_OVERFLOW | _SELF) or (mask & _IS_FOLDER and not name.startswith(".")):
                anew = True
            elif folder is not None and name and not name.startswith("."):
                names = news.setdefault(folder, set())
                if names is not None:
                    names.add(name)
        return anew

    def _look_into(self, folder: str, name: str, news: News) -> None:
        """A folder is new: of a mailbox, or within one. Only that is looked at; the tree may be large."""
        places = self._places.layout.places
        made = [self._places.folder(name, place) for place in ("", *places)] if not folder else []
        if folder and name in places:
            made = [f"{folder}/{name}"]
        for one in made:
            if changed_at(self._places.path(one)) is None:
                continue
            self._watch(one)  # before it is read: nothing comes in between
            with suppress(OSError):
                held = {each for each in os.listdir(self._places.path(one)) if not each.startswith(".")}
                names = news.setdefault(one, set()) if held else None
                if names is not None:
                    names |= held


def is_gone(path: str) -> bool:
    """Nothing is there, as far as one may know."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def is_settled(changed: int) -> bool:
    """Would another change have another time?"""
    return time.time_ns() - changed > UNSETTLED


def _merged(first: News, second: News) -> News:
    merged = {**first}
    for folder, names in second.items():
        held = merged.get(folder, set())
        merged[folder] = None if names is None or held is None else held | names
    return merged


# An ear at a mailbox of files: at its bell, which we ring, and at its folder, into which strangers drop mail.

_CREATED, _MOVED_IN = 0x100, 0x80
_DROPPED = _MOVED_IN | 0x8 | 0x40  # moved in, written, moved out


class FolderWatch(InotifyWatch):
    """Hears both. What we did in a folder ourselves is no news: for that there is the bell."""

    def __init__(
        self, bells: ProcessNotifier, descriptor: int, places: Places, is_news: Callable[[str, str], bool]
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
        durable.make_folder(self._places.path(folder))  # whoever waits has a mailbox
        self._listen_at(folder, _DROPPED, mailbox)

    def _listen_at(self, folder: str, mask: int, mailbox: str) -> None:
        with suppress(OSError):  # no more watches, or no such folder: the bell alone is heard
            watch = add_watch(self._descriptor, self._places.path(folder), mask)
            self._mailboxes.setdefault(watch, set()).add(mailbox)
            self._folders[watch] = folder

    def mailboxes_of(self, watch: int, name: str) -> set[str]:
        folder = self._folders.get(watch)
        if folder is not None and not (self._places.layout.may_hold(name) and self._is_news(folder, name)):
            return set()
        return super().mailboxes_of(watch, name)


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

    def mailboxes_of(self, watch: int, name: str) -> set[str]:
        folder = self._folders.get(watch)
        if folder is None or self._places.layout.may_hold(name):
            return super().mailboxes_of(watch, name)
        home = folder.partition("/")[0] or name
        if AT not in home or name.startswith("."):
            return set()
        self._listen_there(home)  # before it is looked into: nothing comes in between
        return {ROOM}


def watch(
    bells: ProcessNotifier, places: Places, mailboxes: Sequence[str], is_news: Callable[[str, str], bool]
) -> Watch:
    kind = OutgoingWatch if tuple(mailboxes) == (ROOM,) else FolderWatch  # no folder has that name
    return bells.watch(mailboxes, lambda ear: kind(bells, ear, places, is_news))
