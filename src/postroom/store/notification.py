"""Waking those who wait in other processes: a bell for each mailbox. `ears` listen to them.

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
import time
from _thread import allocate_lock
from functools import cache
from typing import TYPE_CHECKING

from ..model.codec import blake2b

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


ROOM = "+room"  # one bell for whatever is written; who follows all of a room listens to it
EVERYONE = "+everyone"  # one bell for broadcasts, heard at every mailbox; no agent can have this name
MANY = 16  # with more recipients than this, the bell for everyone is rung instead of each one's own
LONGEST_NAME = 200  # of a bell's file; longer ones are hashed
KEPT_EARS = 8  # inotify descriptors kept open for the next who waits
_NO_BELLS = frozenset(  # a full disk, no handles, a folder that is read-only: waiting goes on without bells
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EACCES, errno.EPERM}
)
_TO_RING = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class ProcessNotifier:
    """Bells between processes: a file of one byte per mailbox, written after the sync, watched with inotify.

    The file exists once somebody has waited there, so ringing where nobody listens costs one failed call.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        self._is_hung = False  # did anybody ever wait in this room?
        self._paths: dict[str, str] = {}
        self._ears: list[int] = []
        self._pid = os.getpid()

    def grasp(self, mailboxes: Iterable[str]) -> list[int]:
        """The bells that hang there, ready to be rung. Call it once the mail can be seen: whoever hangs a bell
        later looks for mail after that, and finds it.
        """
        if not self._is_hung:
            self._is_hung = os.access(self._folder, os.X_OK)
            if not self._is_hung:
                return []
        grasped = []
        for mailbox in mailboxes:
            path = self._paths.get(mailbox) or self._paths.setdefault(mailbox, self.path(mailbox))
            if not os.access(path, os.W_OK):  # nobody ever waited here; asking is cheaper than failing to open
                continue
            try:  # noqa: SIM105 - every send passes here, and below: `suppress` takes longer than what it guards
                grasped.append(os.open(path, _TO_RING))
            except OSError:
                pass  # a hint is lost, which is legal
        return grasped

    def ring(self, grasped: Iterable[int]) -> None:
        for bell in grasped:
            try:  # noqa: SIM105 - as above
                os.write(bell, b"!")  # not utime: it would enter the journal and slow the next sync
            except OSError:
                pass

    def let_go(self, grasped: Iterable[int]) -> None:
        for bell in grasped:
            os.close(bell)

    def path(self, mailbox: str) -> str:
        """A mailbox's bell. Names are safe already; the slash of `swarm/agent` becomes `+`, which no name has."""
        name = mailbox.lower().replace("/", "+")
        if len(name) > LONGEST_NAME:
            name = blake2b(name.encode(), digest_size=20).hexdigest() + "+"
        return f"{self._folder}/{name}.bell"

    def watch(
        self, mailboxes: Iterable[str], listen: Callable[[int], InotifyWatch] | None = None
    ) -> InotifyWatch | PollWatch | DeafWatch:
        """`listen` makes an ear that hears more than bells, of an inotify descriptor."""
        wanted = (EVERYONE, *mailboxes)
        descriptor = self._take_ear()
        if descriptor is None:
            watch: InotifyWatch | PollWatch = PollWatch(self)
        else:
            watch = listen(descriptor) if listen else InotifyWatch(self, descriptor)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, mode=0o700)
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

    def hang(self, mailbox: str) -> str:
        """Make sure the bell is there."""
        path = self.path(mailbox)
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        return path


# Waking those who wait in the same process.


class LocalNotifier:
    """Bells for the threads of one process."""

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self._watches: set[LocalWatch] = set()

    def ring(self, mailboxes: Iterable[str]) -> None:
        rung = set(mailboxes)
        with self.lock:
            for watch in self._watches:
                watch.hear(rung)

    def watch(self, mailboxes: Iterable[str]) -> LocalWatch:
        watch = LocalWatch(self, set(mailboxes))
        with self.lock:
            self._watches.add(watch)
        return watch

    def forget(self, watch: LocalWatch) -> None:
        with self.lock:
            self._watches.discard(watch)


class LocalWatch:
    """An ear in the same process: a pipe that becomes readable."""

    def __init__(self, bells: LocalNotifier, mailboxes: set[str]) -> None:
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
        mailboxes_of = mailboxes & self._mailboxes
        if mailboxes_of:
            self._rung |= mailboxes_of
            with contextlib.suppress(BlockingIOError):  # the pipe is full: it rings already
                os.write(self._writer, b"!")

    def wait(self, timeout: float) -> bool:
        return readable(self._reader, timeout) and bool(self.rung())

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


# Ears for the bells between processes: with inotify, or, where there is none, looking often but briefly.

POLL = 0.02  # seconds between looks where the system has no inotify (macOS), or no more of it
_EVENT = struct.Struct("iIII")
_IN_MODIFY = 0x2
_IN_IGNORED = 0x8000
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o4000


class InotifyWatch:
    """An ear with inotify (Linux): sleeps in the kernel until a bell is touched."""

    def __init__(self, bells: ProcessNotifier, descriptor: int) -> None:
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
            mailboxes_of = self.mailboxes_of(watch, name)
            rung |= set().union(*self._mailboxes.values()) if EVERYONE in mailboxes_of else mailboxes_of
        return rung - {EVERYONE}

    def mailboxes_of(self, watch: int, name: str) -> set[str]:  # noqa: ARG002 - a bell is a file, not a folder with names
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

    def __init__(self, bells: ProcessNotifier) -> None:
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
