"""Ears for the bells between processes: with inotify, or, where there is none, looking often but briefly."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import time
from functools import cache
from typing import TYPE_CHECKING

from .bells import EVERYONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .bells import DoorBells

POLL = 0.02  # seconds between looks where the system has no inotify (macOS), or no more of it
_EVENT = struct.Struct("iIII")
_IN_MODIFY = 0x2
_IN_IGNORED = 0x8000
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o4000


class InotifyWatch:
    """An ear with inotify (Linux): sleeps in the kernel until a bell is touched."""

    def __init__(self, bells: DoorBells, descriptor: int) -> None:
        self._bells = bells
        self._descriptor = descriptor
        self._mailboxes: dict[int, set[str]] = {}  # two spellings share a bell

    def add(self, mailbox: str) -> None:
        watch = add_watch(self._descriptor, self._bells.hang(mailbox), _IN_MODIFY)
        self._mailboxes.setdefault(watch, set()).add(mailbox)

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while readable(self._descriptor, timeout):
            if self.rung():
                return True
            timeout = end - time.monotonic()  # something moved that is no news
        return False

    def fileno(self) -> int:
        return self._descriptor

    def rung(self) -> set[str]:
        try:
            events = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return set()
        rung: set[str] = set()
        for watch, mask, name in read_events(events):
            if mask & _IN_IGNORED:  # of a watch that was taken away
                continue
            heard = self.heard(watch, name)
            rung |= set().union(*self._mailboxes.values()) if EVERYONE in heard else heard
        return rung - {EVERYONE}

    def heard(self, watch: int, name: str) -> set[str]:  # noqa: ARG002 - a bell is a file, not a folder with names
        """Whose bell that was."""
        return self._mailboxes.get(watch, {EVERYONE})  # an overflow (-1) may be about anyone

    def close(self) -> None:
        for watch in self._mailboxes:
            libc().inotify_rm_watch(self._descriptor, watch)
        self._mailboxes.clear()
        if self._descriptor >= 0:
            self.rung()
            self._bells.leave_ear(self._descriptor)
            self._descriptor = -1


class PollWatch:
    """An ear without inotify: looks at the bells' times, often but briefly."""

    def __init__(self, bells: DoorBells) -> None:
        self._bells = bells
        self._seen: dict[str, tuple[str, int]] = {}

    def add(self, mailbox: str) -> None:
        path = self._bells.hang(mailbox)
        self._seen[mailbox] = (path, os.stat(path).st_mtime_ns)

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while not self.rung():
            left = end - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(POLL, left))
        return True

    def fileno(self) -> int:
        return -1

    def rung(self) -> set[str]:
        rung = set()
        for mailbox, (path, seen) in self._seen.items():
            touched = os.stat(path).st_mtime_ns
            if touched != seen:
                self._seen[mailbox] = (path, touched)
                rung.add(mailbox)
        return (set(self._seen) if EVERYONE in rung else rung) - {EVERYONE}

    def close(self) -> None:
        self._seen.clear()


class DeafWatch:
    """No ear at all, where no bell can be hung. Whoever waits looks for themselves, often but briefly."""

    def __init__(self, mailboxes: Iterable[str]) -> None:
        self._mailboxes = set(mailboxes) - {EVERYONE}

    def add(self, mailbox: str) -> None:
        self._mailboxes.add(mailbox)

    def wait(self, timeout: float) -> bool:
        time.sleep(max(min(POLL, timeout), 0))
        return True

    def fileno(self) -> int:
        return -1

    def rung(self) -> set[str]:
        return set(self._mailboxes)

    def close(self) -> None:
        self._mailboxes.clear()


def read_events(events: bytes) -> Iterator[tuple[int, int, str]]:
    """Watch, mask and name of each; the name is that of a file in a watched folder."""
    at = 0
    while at < len(events):
        watch, mask, _, length = _EVENT.unpack_from(events, at)
        name = events[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
        at += _EVENT.size + length
        yield watch, mask, os.fsdecode(name)


def add_watch(descriptor: int, path: str, mask: int) -> int:
    """The number of the watch; OSError when there can be none."""
    watch = int(libc().inotify_add_watch(descriptor, os.fsencode(path), mask))
    if watch < 0:
        raise OSError(ctypes.get_errno(), "cannot watch", path)
    return watch


def open_inotify() -> int | None:
    """An inotify descriptor, or None where there is none to be had."""
    if sys.platform != "linux":
        return None
    descriptor = int(libc().inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK))
    if descriptor >= 0:
        return descriptor
    if ctypes.get_errno() in {errno.EMFILE, errno.ENFILE, errno.ENOSYS}:
        return None
    raise OSError(ctypes.get_errno(), "inotify_init1")


def readable(descriptor: int, timeout: float) -> bool:
    ear = select.poll()
    ear.register(descriptor, select.POLLIN)
    return bool(ear.poll(max(timeout, 0) * 1000))


@cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
