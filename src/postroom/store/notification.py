"""Notification of new mail: wakes waiting threads in this process and in others.

A notifier signals that a mailbox changed; a watch waits for such signals. Between processes the signal is a file
of one byte per mailbox (`ROOM.bells/NAME.bell`), written after the sync and watched with inotify, or by polling
where there is no inotify. Within one process it is a pipe.

A signal carries no news: push is a hint, pull is the truth. A woken waiter queries the store, and a waiter that
misses a signal finds the mail at its next look.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
import sys
import time
from _thread import allocate_lock
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from ..model.codec import blake2b

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Callable, Collection, Iterable, Iterator

    from .protocol import Watch


# No agent can have these two names.
ROOM = "+room"  # signalled at every commit, for subscribers to the whole room
EVERYONE = "+everyone"  # signalled for broadcasts; every watch listens to it
MANY = 16  # a commit with more recipients than this signals EVERYONE instead of each mailbox
LONGEST_NAME = 200  # of a signal file; longer names are hashed
IDLE_INOTIFY = 8  # inotify descriptors kept open for the next watch
_UNWATCHABLE = frozenset(  # a full disk, no handles, a read-only folder: waiting goes on with a timer
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EACCES, errno.EPERM}
)
_SIGNAL_FLAGS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Notifier(Protocol):
    """What a store needs to wake others: signals opened before the sync, sent after it."""

    def open_signals(self, *commits: Collection[str]) -> list[Any]: ...
    def notify(self, signals: Iterable[Any]) -> None: ...
    def close_signals(self, signals: Iterable[Any]) -> None: ...
    def watch(self, mailboxes: Iterable[str]) -> Watch: ...
    def close(self) -> None: ...


class ProcessNotifier:
    """A notifier between processes: one signal file per mailbox.

    The file exists once a process has waited for that mailbox, so a signal without a listener costs one failed
    call.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        self._has_waiters = False  # has any process ever waited in this room?
        self._paths: dict[str, str] = {}
        self._idle_inotify: list[int] = []
        self._pid = os.getpid()

    def open_signals(self, *commits: Collection[str]) -> list[int]:
        """Open the signal files of the room and of the mailboxes of some commits, as far as they exist.

        Call it once the mail is visible: a watch that creates its signal file later looks for mail after that, and
        finds it.
        """
        if not self._has_waiters:
            self._has_waiters = os.access(self._folder, os.X_OK)
            if not self._has_waiters:
                return []
        wanted = {ROOM: None}
        for mailboxes in commits:
            wanted |= dict.fromkeys((EVERYONE,) if len(mailboxes) > MANY else mailboxes)
        signals = []
        for mailbox in wanted:
            path = self._paths.get(mailbox) or self._paths.setdefault(mailbox, self.path(mailbox))
            if not os.access(path, os.W_OK):  # nobody ever waited here; access() is cheaper than a failed open()
                continue
            try:  # noqa: SIM105 - every send passes here, and below: `suppress` takes longer than what it guards
                signals.append(os.open(path, _SIGNAL_FLAGS))
            except OSError:
                pass  # a hint is lost, which is legal
        return signals

    def notify(self, signals: Iterable[int]) -> None:
        for signal in signals:
            try:  # noqa: SIM105 - as above
                os.write(signal, b"!")  # not utime: it would enter the journal and slow the next sync
            except OSError:
                pass

    def close_signals(self, signals: Iterable[int]) -> None:
        for signal in signals:
            os.close(signal)

    def path(self, mailbox: str) -> str:
        """Return the path of a mailbox's signal file.

        Names are safe in paths already; the slash of `swarm/agent` becomes `+`, which no name contains.
        """
        name = mailbox.lower().replace("/", "+")
        if len(name) > LONGEST_NAME:
            name = blake2b(name.encode(), digest_size=20).hexdigest() + "+"
        return f"{self._folder}/{name}.bell"

    def watch(
        self, mailboxes: Iterable[str], listen: Callable[[int], InotifyWatch] | None = None
    ) -> InotifyWatch | PollWatch:
        """Start to watch these mailboxes; `listen` makes a special watch from an inotify descriptor."""
        wanted = (EVERYONE, *mailboxes)
        descriptor = self._acquire_inotify()
        if descriptor is None:
            watch: InotifyWatch | PollWatch = PollWatch(self)
        else:
            watch = listen(descriptor) if listen else InotifyWatch(self, descriptor)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, mode=0o700)
            for mailbox in wanted:
                watch.add(mailbox)
        except OSError as error:
            watch.close()
            if error.errno in _UNWATCHABLE:
                blind = PollWatch(None)
                for mailbox in wanted:
                    blind.add(mailbox)
                return blind
            raise
        except BaseException:  # an interrupt must not leak the descriptor
            watch.close()
            raise
        return watch

    def _acquire_inotify(self) -> int | None:
        """Return an idle inotify descriptor or a new one, but never one from before a fork."""
        if self._pid != os.getpid():
            self._idle_inotify, self._pid = [], os.getpid()
        return self._idle_inotify.pop() if self._idle_inotify else open_inotify()

    def release_inotify(self, descriptor: int) -> None:
        """Keep the descriptor for the next watch: closing one takes the kernel milliseconds."""
        if self._pid == os.getpid() and len(self._idle_inotify) < IDLE_INOTIFY:
            self._idle_inotify.append(descriptor)
        else:
            os.close(descriptor)

    def close(self) -> None:
        while self._idle_inotify:
            os.close(self._idle_inotify.pop())

    def create_signal(self, mailbox: str) -> str:
        """Make sure that the mailbox's signal file exists, and return its path."""
        path = self.path(mailbox)
        os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        return path


# -- within one process


class LocalNotifier:
    """A notifier between the threads of one process; its signals are the names of mailboxes."""

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self._watches: set[LocalWatch] = set()

    def open_signals(self, *commits: Collection[str]) -> list[str]:
        return [ROOM, *(mailbox for mailboxes in commits for mailbox in mailboxes)]

    def notify(self, signals: Iterable[str]) -> None:
        if not self._watches:
            return
        mailboxes = set(signals)
        with self.lock:
            for watch in self._watches:
                watch.notify(mailboxes)

    def close_signals(self, signals: Iterable[str]) -> None:
        """Nothing was opened."""

    def watch(self, mailboxes: Iterable[str]) -> LocalWatch:
        watch = LocalWatch(self, set(mailboxes))
        with self.lock:
            self._watches.add(watch)
        return watch

    def forget(self, watch: LocalWatch) -> None:
        with self.lock:
            self._watches.discard(watch)

    def close(self) -> None:
        """Nothing is kept open; a watch closes itself."""


class LocalWatch:
    """A watch within one process: a pipe that becomes readable."""

    def __init__(self, notifier: LocalNotifier, mailboxes: set[str]) -> None:
        self._notifier = notifier
        self.mailboxes = mailboxes
        self._notified: set[str] = set()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        # A commit must never wait for a watch that nobody reads.
        os.set_blocking(self._writer, False)

    def add(self, mailbox: str) -> None:
        self.mailboxes.add(mailbox)

    def notify(self, mailboxes: set[str]) -> None:
        """Record the signal; called by the notifier, under its lock."""
        watched = mailboxes & self.mailboxes
        if watched:
            self._notified |= watched
            with contextlib.suppress(BlockingIOError):  # the pipe is full: it is readable already
                os.write(self._writer, b"!")

    def wait(self, timeout: float) -> bool:
        return readable(self._reader, timeout) and bool(self.notified())

    def fileno(self) -> int:
        return self._reader

    def notified(self) -> set[str]:
        with self._notifier.lock:
            with contextlib.suppress(BlockingIOError):
                os.read(self._reader, 65536)
            notified, self._notified = self._notified, set()
        return notified

    def close(self) -> None:
        if self._reader >= 0:
            self._notifier.forget(self)
            os.close(self._reader)
            os.close(self._writer)
            self._reader = self._writer = -1


# -- watches between processes

POLL = 0.02  # seconds between polls where the system has no inotify (macOS), or no descriptor is left
_EVENT = struct.Struct("iIII")
_IN_MODIFY = 0x2
_IN_IGNORED = 0x8000
_IN_CLOEXEC = 0o2000000
_IN_NONBLOCK = 0o4000


class InotifyWatch:
    """A watch with inotify (Linux): sleeps in the kernel until a signal file is written."""

    def __init__(self, notifier: ProcessNotifier, descriptor: int) -> None:
        self._notifier = notifier
        self._descriptor = descriptor
        self._mailboxes: dict[int, set[str]] = {}  # two spellings share a signal file

    def add(self, mailbox: str) -> None:
        watch = add_watch(self._descriptor, self._notifier.create_signal(mailbox), _IN_MODIFY)
        self._mailboxes.setdefault(watch, set()).add(mailbox)

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while readable(self._descriptor, timeout):
            if self.notified():
                return True
            timeout = end - time.monotonic()  # an event that was not about a watched mailbox
        return False

    def fileno(self) -> int:
        return self._descriptor

    def notified(self) -> set[str]:
        try:
            events = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return set()
        notified: set[str] = set()
        for watch, mask, name in read_events(events):
            if mask & _IN_IGNORED:  # the kernel's farewell to a watch that was removed
                continue
            touched = self.mailboxes_of(watch, name)
            # A broadcast signals EVERYONE: any of the watched mailboxes may have mail.
            notified |= set().union(*self._mailboxes.values()) if EVERYONE in touched else touched
        return notified - {EVERYONE}

    def mailboxes_of(self, watch: int, name: str) -> set[str]:  # noqa: ARG002 - for subclasses that watch folders
        """Return the mailboxes that an inotify event is about."""
        return self._mailboxes.get(watch, {EVERYONE})  # an overflow (-1) may be about anyone

    def close(self) -> None:
        for watch in self._mailboxes:
            # Removed one by one, because the descriptor is kept for the next watch.
            libc().inotify_rm_watch(self._descriptor, watch)
        self._mailboxes.clear()
        if self._descriptor >= 0:
            self.notified()
            self._notifier.release_inotify(self._descriptor)
            self._descriptor = -1


class PollWatch:
    """A watch without inotify: looks every `POLL` seconds which signal files were touched.

    Without a notifier, where no signal file can be made, it reports every mailbox at each look.
    """

    def __init__(self, notifier: ProcessNotifier | None) -> None:
        self._notifier = notifier
        self._seen: dict[str, tuple[str, int]] = {}  # mailbox -> its signal file, and when that was touched

    def add(self, mailbox: str) -> None:
        if self._notifier is None:
            self._seen[mailbox] = ("", 0)
        else:
            path = self._notifier.create_signal(mailbox)
            self._seen[mailbox] = (path, os.stat(path).st_mtime_ns)

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            time.sleep(max(min(POLL, left), 0))
            if self.notified():
                return True
            if left <= POLL:
                return False

    def fileno(self) -> int:
        return -1

    def notified(self) -> set[str]:
        notified = set()
        for mailbox, (path, seen) in self._seen.items():
            touched = os.stat(path).st_mtime_ns if path else 0
            if touched != seen or not path:
                self._seen[mailbox] = (path, touched)
                notified.add(mailbox)
        return (set(self._seen) if EVERYONE in notified else notified) - {EVERYONE}

    def close(self) -> None:
        self._seen.clear()


def read_events(events: bytes) -> Iterator[tuple[int, int, str]]:
    """Yield watch, mask and name of each inotify event; the name is that of a file in a watched folder."""
    at = 0
    while at < len(events):
        watch, mask, _, length = _EVENT.unpack_from(events, at)
        name = events[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
        at += _EVENT.size + length
        yield watch, mask, os.fsdecode(name)


def add_watch(descriptor: int, path: str, mask: int) -> int:
    """Add an inotify watch and return its number; OSError when there can be none."""
    import ctypes  # noqa: PLC0415 - only for processes that wait

    watch = int(libc().inotify_add_watch(descriptor, os.fsencode(path), mask))
    if watch < 0:
        raise OSError(ctypes.get_errno(), "cannot watch", path)
    return watch


def open_inotify() -> int | None:
    """Return a new inotify descriptor, or None where the system has none left or no inotify."""
    if sys.platform != "linux":
        return None
    import ctypes  # noqa: PLC0415 - only for processes that wait

    descriptor = int(libc().inotify_init1(_IN_CLOEXEC | _IN_NONBLOCK))
    if descriptor >= 0:
        return descriptor
    if ctypes.get_errno() in {errno.EMFILE, errno.ENFILE, errno.ENOSYS}:
        return None
    raise OSError(ctypes.get_errno(), "inotify_init1")


def readable(descriptor: int, timeout: float) -> bool:
    import select  # noqa: PLC0415 - a sender waits for nothing

    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(max(timeout, 0) * 1000))


@cache
def libc() -> ctypes.CDLL:
    """Return the C library, with errno."""
    import ctypes  # noqa: PLC0415 - only for processes that wait

    return ctypes.CDLL(None, use_errno=True)
