"""Noticing what strangers do in the mail folders.

Short programs compare each folder's time with the one that was noted when it was last read. Who stays longer lets
the kernel tell (inotify): then a look costs one system call, however many letters there are. Pull is the truth here
too: what is told is only where to look.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from ..ears import _libc, open_inotify

if TYPE_CHECKING:
    from collections.abc import Callable

    from .places import Places

News: TypeAlias = dict[str, "set[str] | None"]  # a folder -> the names to look at; None means all of them

UNSETTLED = 50_000_000  # nanoseconds: a folder that changed so lately may change again without another time
_EVENT = struct.Struct("iIII")
_CREATE, _FROM, _TO, _DELETE, _CLOSE_WRITE = 0x100, 0x40, 0x80, 0x200, 0x8
_SELF, _OVERFLOW, _IS_FOLDER, _ONLY_FOLDER = 0x400 | 0x800, 0x4000, 0x4000_0000, 0x100_0000
_MASK = _CREATE | _FROM | _TO | _DELETE | _CLOSE_WRITE | _SELF | _ONLY_FOLDER


class Eyes:
    """One for all threads of a process."""

    def __init__(self, places: Places, noted: Callable[[], dict[str, int]]) -> None:
        self._places = places
        self._noted = noted  # when each folder was last read, as the index has it
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
        return {
            folder: None
            for folder in self._places.folders()
            if (changed := changed_at(self._places.path(folder))) is not None and noted.get(folder) != changed
        }

    # -- by being told

    def _listen(self) -> None:
        if self._ear is None:
            return
        for folder in self._places.all_folders():
            self._watch(folder)

    def _watch(self, folder: str) -> None:
        path = os.fsencode(self._places.path(folder))
        watch = _libc().inotify_add_watch(self._ear, path, _MASK)
        if watch >= 0:
            self._folders[watch] = folder
        elif ctypes.get_errno() == 28:  # no more watches for this user: look at times, as before  # noqa: PLR2004
            os.close(self._ear or -1)
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
                return _merged(news, dict.fromkeys(self._places.folders()))

    def _take(self, events: bytes, news: News) -> bool:
        at, anew = 0, False
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            name = events[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            folder = self._folders.get(watch)
            if folder is not None and mask & _CREATE and mask & _IS_FOLDER and not name.startswith((b".", b"_")):
                self._look_into(folder, os.fsdecode(name), news)
                continue
            if mask & (_OVERFLOW | _SELF) or (mask & _IS_FOLDER and not name.startswith(b".")):
                anew = True
            elif folder is not None and name and not name.startswith(b"."):
                names = news.setdefault(folder, set())
                if names is not None:
                    names.add(os.fsdecode(name))
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


def changed_at(path: str) -> int | None:
    """When something was last put in or taken out; None where there is no such folder."""
    with suppress(OSError):
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    return None


def is_settled(changed: int) -> bool:
    """Would another change have another time?"""
    return time.time_ns() - changed > UNSETTLED


def _merged(first: News, second: News) -> News:
    merged = {**first}
    for folder, names in second.items():
        held = merged.get(folder, set())
        merged[folder] = None if names is None or held is None else held | names
    return merged


def news_of(folders: Iterable[str]) -> News:
    return dict.fromkeys(folders)
