"""Watching the mail folders for changes by other programs.

`DirWatcher` says where the index may be out of date. The first poll compares the modification time of each folder
with the one noted when it was last read. From the second poll on it uses inotify: then a poll costs one system
call, however many letters there are. Either way the result is only a hint where to look.

`FolderWatch` wakes callers that wait for mail: on the notification of a commit, and on files dropped into a
folder.
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
    from collections.abc import Callable, Mapping, Sequence

    from ..notification import ProcessNotifier
    from ..protocol import Watch
    from .ledger import Ledger
    from .tree import MailFolders


FileChanges: TypeAlias = "Mapping[str, set[str] | None]"  # folder -> names of files to compare; None means all

UNSETTLED = 50_000_000  # nanoseconds in which a second change may leave a folder with the same time
_NO_MORE = {errno.ENOSPC, errno.ENOMEM}  # this user has no inotify watches left
_CREATE, _FROM, _TO, _DELETE, _CLOSE_WRITE = 0x100, 0x40, 0x80, 0x200, 0x8
_SELF, _OVERFLOW, _IS_FOLDER, _ONLY_FOLDER = 0x400 | 0x800, 0x4000, 0x4000_0000, 0x100_0000
_MASK = _CREATE | _FROM | _TO | _DELETE | _CLOSE_WRITE | _SELF | _ONLY_FOLDER


class DirWatcher:
    """The watcher of a store, shared by all threads of a process."""

    def __init__(self, tree: MailFolders, ledger: Callable[[], Ledger]) -> None:
        self._tree = tree
        self._ledger = ledger  # what the index has of the folders, by the calling thread's connection
        self._lock = threading.Lock()
        self._polls = 0
        self._inotify: int | None = None
        self._folders: dict[int, str] = {}  # by watch descriptor
        self._pending: FileChanges = {}  # changes that were put back
        self._pid = os.getpid()

    def poll(self) -> FileChanges:
        """Return what may have changed since the last poll."""
        with self._lock:
            if self._pid != os.getpid():  # after a fork: the descriptor is the parent's
                self._inotify, self._folders, self._polls, self._pid = None, {}, 0, os.getpid()
            self._polls += 1
            changes, self._pending = self._pending, {}
            # A short program polls once: inotify pays only for those that stay.
            if self._inotify is None and self._polls == 2:
                self._inotify = open_inotify()
                self._watch_all()
                # After the watches are set: a change in between is found here or comes as an event.
                return _merged(changes, self._compare_times())
            return _merged(changes, self._compare_times() if self._inotify is None else self._read_inotify())

    def put_back(self, changes: FileChanges) -> None:
        """Return these changes again at the next poll, as they could not be handled now."""
        with self._lock:
            self._pending = _merged(self._pending, changes)

    def close(self) -> None:
        with self._lock:
            if self._inotify is not None and self._pid == os.getpid():
                os.close(self._inotify)
            self._inotify, self._folders, self._polls = None, {}, 0

    # -- by modification times

    def _compare_times(self) -> FileChanges:
        folder_times = self._ledger().folder_times()
        found = {folder: changed_at(self._tree.path(folder)) for folder in self._tree.folders()}
        changed = [folder for folder, at in found.items() if at is not None and folder_times.get(folder) != at]
        return dict.fromkeys([*changed, *self._missing_folders(found)])

    def _missing_folders(self, there: dict[str, int | None]) -> list[str]:
        """Return folders that hold letters in the index, but were deleted or renamed."""
        return [
            folder
            for folder in self._ledger().used_folders()
            if there.get(folder) is None and is_gone(self._tree.path(folder))
        ]

    # -- by inotify

    def _watch_all(self) -> None:
        if self._inotify is None:
            return
        for folder in self._tree.all_folders():
            if self._inotify is not None:
                self._watch(folder)

    def _watch(self, folder: str) -> None:
        try:
            self._folders[add_watch(self._inotify or -1, self._tree.path(folder), _MASK)] = folder
        except OSError as refused:
            if refused.errno in _NO_MORE and self._inotify is not None:  # fall back to modification times
                os.close(self._inotify)
                self._inotify, self._folders = None, {}

    def _read_inotify(self) -> FileChanges:
        changes: dict[str, set[str]] = {}
        while True:
            try:
                events = os.read(self._inotify or -1, 65536)
            except BlockingIOError:
                return changes
            if self._collect(events, changes):  # the tree has changed, or events were lost
                self._watch_all()
                return _merged(changes, dict.fromkeys([*self._tree.folders(), *self._missing_folders({})]))

    def _collect(self, events: bytes, changes: dict[str, set[str]]) -> bool:
        """Add the events to `changes`; return whether the tree has changed or events were lost."""
        is_incomplete = False
        for watch, mask, name in read_events(events):
            folder = self._folders.get(watch)
            if folder is not None and mask & _CREATE and mask & _IS_FOLDER and not name.startswith((".", "_")):
                self._watch_new_folder(folder, name, changes)
                continue
            if mask & (_OVERFLOW | _SELF) or (mask & _IS_FOLDER and not name.startswith(".")):
                # The kernel dropped events, or a folder came or went: look at all folders.
                is_incomplete = True
            elif folder is not None and name and not name.startswith("."):
                changes.setdefault(folder, set()).add(name)
        return is_incomplete

    def _watch_new_folder(self, folder: str, name: str, changes: dict[str, set[str]]) -> None:
        """Watch a new folder of a mailbox, or within one, and add its files. The rest of the tree may be large."""
        places = self._tree.layout.places
        made = [self._tree.folder(name, place) for place in ("", *places)] if not folder else []
        if folder and name in places:
            made = [f"{folder}/{name}"]
        for one in made:
            if changed_at(self._tree.path(one)) is None:
                continue
            self._watch(one)  # before it is listed, so that no file is missed in between
            with suppress(OSError):
                held = {each for each in os.listdir(self._tree.path(one)) if not each.startswith(".")}
                if held:
                    changes.setdefault(one, set()).update(held)


def is_gone(path: str) -> bool:
    """Return whether nothing is at this path; False if that cannot be known."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


def is_settled(changed: int) -> bool:
    """Return whether this time is old enough that another change would leave another time."""
    return time.time_ns() - changed > UNSETTLED


def _merged(first: FileChanges, second: FileChanges) -> FileChanges:
    merged = dict(first)
    for folder, names in second.items():
        held = merged.get(folder, set())
        # None stands for all files, so it swallows names.
        merged[folder] = None if names is None or held is None else held | names
    return merged


# -- waiting for mail

_CREATED, _MOVED_IN = 0x100, 0x80
_DROPPED = _MOVED_IN | 0x8 | 0x40  # moved in, written, moved out


class FolderWatch(InotifyWatch):
    """A watch on mailboxes, woken by the notifier of our commits and by files that other programs drop.

    Files that the index has already are ignored: our own commits use the notifier.
    """

    def __init__(
        self,
        notifier: ProcessNotifier,
        descriptor: int,
        tree: MailFolders,
        is_unindexed: Callable[[str, str], bool],
    ) -> None:
        super().__init__(notifier, descriptor)
        self._tree = tree
        self._is_unindexed = is_unindexed
        self._folders: dict[int, str] = {}

    def add(self, mailbox: str) -> None:
        super().add(mailbox)
        if mailbox == EVERYONE:  # a notification for all, which has no folder
            return
        layout = self._tree.layout
        folder = self._tree.folder(layout.folder(mailbox), layout.places[0])
        durable.make_folder(self._tree.path(folder))  # who waits for mail gets a mailbox
        self._add_folder(folder, _DROPPED, mailbox)

    def _add_folder(self, folder: str, mask: int, mailbox: str) -> None:
        with suppress(OSError):  # no watches left, or no such folder: then only the notifier wakes us
            watch = add_watch(self._descriptor, self._tree.path(folder), mask)
            self._mailboxes.setdefault(watch, set()).add(mailbox)
            self._folders[watch] = folder

    def mailboxes_of(self, watch: int, name: str) -> set[str]:
        folder = self._folders.get(watch)
        if folder is not None and not (self._tree.layout.may_hold(name) and self._is_unindexed(folder, name)):
            return set()
        return super().mailboxes_of(watch, name)


class OutgoingWatch(FolderWatch):
    """A watch on the whole room, which also sees mail for agents at other systems.

    Other programs drop such mail into folders named `agent@system`, which may appear at any time.
    """

    def add(self, mailbox: str) -> None:
        InotifyWatch.add(self, mailbox)
        if mailbox != ROOM:
            return
        self._add_folder("", _CREATED | _MOVED_IN, ROOM)
        for home in self._tree.homes():
            self._add_home(home)

    def _add_home(self, home: str) -> None:
        """Watch the folder of an agent at another system, and its folder for new mail."""
        if AT in home:
            inbox = self._tree.folder(home, self._tree.layout.places[0])
            for folder in dict.fromkeys((home, inbox)):
                self._add_folder(folder, _CREATED | _DROPPED, ROOM)

    def mailboxes_of(self, watch: int, name: str) -> set[str]:
        folder = self._folders.get(watch)
        if folder is None or self._tree.layout.may_hold(name):
            return super().mailboxes_of(watch, name)
        home = folder.partition("/")[0] or name
        if AT not in home or name.startswith("."):
            return set()
        self._add_home(home)  # before it is listed, so that no file is missed in between
        return {ROOM}


def watch(
    notifier: ProcessNotifier,
    tree: MailFolders,
    mailboxes: Sequence[str],
    is_unindexed: Callable[[str, str], bool],
) -> Watch:
    """Return a watch on these mailboxes, or on the whole room."""
    kind = OutgoingWatch if tuple(mailboxes) == (ROOM,) else FolderWatch
    return notifier.watch(mailboxes, lambda descriptor: kind(notifier, descriptor, tree, is_unindexed))
