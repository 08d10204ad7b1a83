"""Waking those who wait: bells inside one process, and bells between processes.

A bell carries no news. Whoever hears it asks the store; whoever misses it finds the mail there anyway.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from ..model.hashing import blake2b

EVERYONE = "+everyone"  # one bell for broadcasts, heard at every mailbox; no agent can have this name
MANY = 16  # with more recipients than this, the bell for everyone is rung instead of each one's own
LONGEST_NAME = 200  # of a bell's file; longer ones are hashed
KEPT_EARS = 8  # inotify descriptors kept open for the next who waits
POLL = 0.02  # seconds between looks where the system has no inotify (macOS), or no more of it
_NO_BELLS = frozenset(  # a full disk, no handles, a folder that is read-only: waiting goes on without bells
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EACCES, errno.EPERM}
)
_TO_RING = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_EVENT = struct.Struct("iIII")
_IN_MODIFY = 0x2
_IN_IGNORED = 0x8000
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o4000


class HouseBells:
    """Bells for the threads of one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._watches: set[HouseWatch] = set()

    def ring(self, mailboxes: Iterable[str]) -> None:
        rung = set(mailboxes)
        with self.lock:
            for watch in self._watches:
                watch.hear(rung)

    def watch(self, mailboxes: Iterable[str]) -> HouseWatch:
        watch = HouseWatch(self, set(mailboxes))
        with self.lock:
            self._watches.add(watch)
        return watch

    def forget(self, watch: HouseWatch) -> None:
        with self.lock:
            self._watches.discard(watch)


class HouseWatch:
    """An ear in the same process: a pipe that becomes readable."""

    def __init__(self, bells: HouseBells, mailboxes: set[str]) -> None:
        self._bells = bells
        self._mailboxes = mailboxes
        self._rung: set[str] = set()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)

    def add(self, mailbox: str) -> None:
        self._mailboxes.add(mailbox)

    def hear(self, mailboxes: set[str]) -> None:
        """Called by the bells, under their lock."""
        heard = mailboxes & self._mailboxes
        if heard:
            self._rung |= heard
            with contextlib.suppress(BlockingIOError):  # the pipe is full: it rings already
                os.write(self._writer, b"!")

    def wait(self, timeout: float) -> bool:
        return _readable(self._reader, timeout) and bool(self.rung())

    def fileno(self) -> int:
        return self._reader

    def rung(self) -> set[str]:
        with self._bells.lock:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 65536)
            rung, self._rung = self._rung, set()
        return rung

    def close(self) -> None:
        if self._reader >= 0:
            self._bells.forget(self)
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1


class DoorBells:
    """Bells between processes: a file of one byte per mailbox, written after the sync, watched with inotify.

    The file exists once somebody has waited there, so ringing where nobody listens costs one failed call.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: dict[str, str] = {}
        self._ears: list[int] = []
        self._pid = os.getpid()

    def grasp(self, mailboxes: Iterable[str]) -> list[int]:
        """The bells that hang there, ready to be rung. Call it once the mail can be seen: whoever hangs a bell
        later looks for mail after that, and finds it.
        """
        grasped = []
        for mailbox in mailboxes:
            path = self._paths.get(mailbox) or self._paths.setdefault(mailbox, str(self.path(mailbox)))
            if not os.access(path, os.W_OK):  # nobody ever waited here; asking is cheaper than failing to open
                continue
            with contextlib.suppress(OSError):  # a hint is lost, which is legal
                grasped.append(os.open(path, _TO_RING))
        return grasped

    def ring(self, grasped: Iterable[int]) -> None:
        for bell in grasped:
            with contextlib.suppress(OSError):
                os.write(bell, b"!")  # not utime: it would enter the journal and slow the next sync

    def let_go(self, grasped: Iterable[int]) -> None:
        for bell in grasped:
            os.close(bell)

    def path(self, mailbox: str) -> Path:
        """A mailbox's bell. Names are safe already; the slash of `swarm/agent` becomes `+`, which no name has."""
        name = mailbox.lower().replace("/", "+")
        if len(name) > LONGEST_NAME:
            name = blake2b(name.encode(), digest_size=20).hexdigest() + "+"
        return self._folder / f"{name}.bell"

    def watch(self, mailboxes: Iterable[str]) -> InotifyWatch | PollWatch | DeafWatch:
        wanted = (EVERYONE, *mailboxes)
        descriptor = self._take_ear()
        watch = PollWatch(self) if descriptor is None else InotifyWatch(self, descriptor)
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            for mailbox in wanted:
                watch.add(mailbox)
        except BaseException as error:
            watch.close()
            if isinstance(error, OSError) and error.errno in _NO_BELLS:
                return DeafWatch(wanted)
            raise
        return watch

    def _take_ear(self) -> int | None:
        """An inotify descriptor: one that was left behind, or a new one. Never one from before a fork."""
        if self._pid != os.getpid():
            self._ears, self._pid = [], os.getpid()
        return self._ears.pop() if self._ears else open_inotify()

    def leave_ear(self, descriptor: int) -> None:
        """Kept for the next who waits: closing one takes the kernel milliseconds."""
        if self._pid == os.getpid() and len(self._ears) < KEPT_EARS:
            self._ears.append(descriptor)
        else:
            os.close(descriptor)

    def close(self) -> None:
        while self._ears:
            os.close(self._ears.pop())

    def hang(self, mailbox: str) -> Path:
        """Make sure the bell is there."""
        path = self.path(mailbox)
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        return path


class InotifyWatch:
    """An ear with inotify (Linux): sleeps in the kernel until a bell is touched."""

    def __init__(self, bells: DoorBells, descriptor: int) -> None:
        self._bells = bells
        self._descriptor = descriptor
        self._mailboxes: dict[int, set[str]] = {}  # two spellings share a bell

    def add(self, mailbox: str) -> None:
        path = os.fsencode(self._bells.hang(mailbox))
        watch = _libc().inotify_add_watch(self._descriptor, path, _IN_MODIFY)
        if watch < 0:
            raise OSError(ctypes.get_errno(), "cannot watch", os.fsdecode(path))
        self._mailboxes.setdefault(watch, set()).add(mailbox)

    def wait(self, timeout: float) -> bool:
        return _readable(self._descriptor, timeout) and bool(self.rung())

    def fileno(self) -> int:
        return self._descriptor

    def rung(self) -> set[str]:
        try:
            events = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return set()
        rung: set[str] = set()
        at = 0
        while at < len(events):
            watch, mask, _, length = _EVENT.unpack_from(events, at)
            at += _EVENT.size + length
            if mask & _IN_IGNORED:  # of a watch that was taken away
                continue
            heard = self._mailboxes.get(watch, {EVERYONE})  # an overflow (-1) may be about anyone
            rung |= set().union(*self._mailboxes.values()) if EVERYONE in heard else heard
        return rung - {EVERYONE}

    def close(self) -> None:
        for watch in self._mailboxes:
            _libc().inotify_rm_watch(self._descriptor, watch)
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
        path = str(self._bells.hang(mailbox))
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


def open_inotify() -> int | None:
    """An inotify descriptor, or None where there is none to be had."""
    if sys.platform != "linux":
        return None
    descriptor = int(_libc().inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK))
    if descriptor >= 0:
        return descriptor
    if ctypes.get_errno() in {errno.EMFILE, errno.ENFILE, errno.ENOSYS}:
        return None
    raise OSError(ctypes.get_errno(), "inotify_init1")


def _readable(descriptor: int, timeout: float) -> bool:
    ear = select.poll()
    ear.register(descriptor, select.POLLIN)
    return bool(ear.poll(max(timeout, 0) * 1000))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
