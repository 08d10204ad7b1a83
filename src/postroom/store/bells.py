"""Waking those who wait in other processes: a bell for each mailbox. `ears` listen to them.

A bell carries no news. Whoever hears it asks the store; whoever misses it finds the mail there anyway.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from .. import store
from ..model.hashing import blake2b

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .ears import DeafWatch, InotifyWatch, PollWatch

ROOM = "+room"  # one bell for whatever is written; who follows all of a room listens to it
EVERYONE = "+everyone"  # one bell for broadcasts, heard at every mailbox; no agent can have this name
MANY = 16  # with more recipients than this, the bell for everyone is rung instead of each one's own
LONGEST_NAME = 200  # of a bell's file; longer ones are hashed
KEPT_EARS = 8  # inotify descriptors kept open for the next who waits
_NO_BELLS = frozenset(  # a full disk, no handles, a folder that is read-only: waiting goes on without bells
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EACCES, errno.EPERM}
)
_TO_RING = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class DoorBells:
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
            watch: InotifyWatch | PollWatch = store.ears.PollWatch(self)
        else:
            watch = listen(descriptor) if listen else store.ears.InotifyWatch(self, descriptor)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._folder, mode=0o700)
            for mailbox in wanted:
                watch.add(mailbox)
        except BaseException as error:
            watch.close()
            if isinstance(error, OSError) and error.errno in _NO_BELLS:
                return store.ears.DeafWatch(wanted)
            raise
        return watch

    def _take_ear(self) -> int | None:
        """An inotify descriptor: one that was left behind, or a new one. Never one from before a fork."""
        if self._pid != os.getpid():
            self._ears, self._pid = [], os.getpid()
        return self._ears.pop() if self._ears else store.ears.open_inotify()

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
