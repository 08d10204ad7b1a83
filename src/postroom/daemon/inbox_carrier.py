"""Carries news of each new letter into the `inbox.jsonl` files, whoever sent it and by whatever way.

How far it has come stands in a file beside them, written after the lines: after a crash a letter may be told
twice, never not at all; and what a file still holds is not told twice. At its very first start it tells of what is
unread. A letter that was read before we looked is no news any more.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ..errors import Invalid, PostroomError
from ..model.change import Cursor
from ..model.delivery import State
from ..model.query import Query
from ..store.bells import ROOM
from ..wire.inbox_entries import line_of, notice_of
from .inbox_doubts import MOMENT
from .inbox_eye import Eye
from .inbox_files import InboxFolder
from .plain_files import InTheWay, read, write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..desk import Desk
    from ..model.query import Found
    from ..store.base import Watch

log = logging.getLogger("postroom")
SLICE = 500  # numbers looked at in one go
POLL = 1.0  # seconds between two looks where no bell can be heard
AGAIN = 5.0  # seconds after a failure


class Carrier:
    """Made inside an event loop."""

    def __init__(self, desk: Desk, folder: str) -> None:
        self._desk = desk
        self._office = desk.room._office
        self._store = self._office.store
        self.folder = InboxFolder(
            folder, lambda name, n: notice_of(name, n, self._office.now().wall), tell=log.warning
        )
        self.folder.prepare()
        self._is_kept = not desk.room.settings.store.startswith("memory:")
        self._rang = asyncio.Event()
        self._number = -1  # told up to here; not known yet
        self._is_first = True  # may some of the next slice have been told already?
        self._unsure: dict[str, float] = {}  # whose file is to be looked at again, and when
        self._emptied: set[str] = set()  # whose of these was emptied just now

    async def run(self) -> None:
        """For ever. What goes wrong is logged, and tried again."""
        watch = self._store.watch((ROOM,))
        loop = asyncio.get_running_loop()
        if watch.fileno() >= 0:
            loop.add_reader(watch.fileno(), self._hear, watch)
        eye = Eye(self.folder.path, self._see)
        try:
            while True:
                eye.look()
                await self._round(watch)
        finally:
            eye.close()
            if watch.fileno() >= 0:
                loop.remove_reader(watch.fileno())
            watch.close()

    async def _round(self, watch: Watch) -> None:
        self._rang.clear()
        try:
            await self._desk.run_slow(self.carry)
        except BaseException as failed:
            if not isinstance(failed, Exception):
                raise
            is_ours = not isinstance(failed, PostroomError | OSError)
            log.warning("the inbox files could not be written: %s", failed, exc_info=is_ours)
            self._is_first = True  # some of the slice may stand there
            await asyncio.sleep(AGAIN)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience(watch)):
                await self._rang.wait()

    def _patience(self, watch: Watch) -> float | None:
        """Until somebody rings, or a doubt is due."""
        bounds = [] if watch.fileno() >= 0 else [POLL]
        if self._unsure:
            bounds.append(max(min(self._unsure.values()) - time.monotonic(), 0.0))
        return min(bounds, default=None)

    def _hear(self, watch: Watch) -> None:
        watch.rung()
        self._rang.set()

    def _see(self) -> None:
        """Something was written or emptied. Who read it before is told by the file until it is read again."""
        self._emptied |= {name for name in list(self._unsure) if self.folder.is_emptied(name)}
        if self._emptied:
            self._rang.set()

    # -- on a thread of its own

    def carry(self) -> None:
        """Tell of everything that came since the last time."""
        self.folder.prepare()  # somebody may have cleared it away
        self.folder.mend_names()
        while self._emptied:
            self._check(self._emptied.pop(), is_over=False)
        now = time.monotonic()
        for name in [name for name, due in self._unsure.items() if due <= now]:
            del self._unsure[name]
            self._check(name)
        self._tell_news()

    def _check(self, name: str, *, is_over: bool = True) -> None:
        with _alone(name):
            if self.folder.check(name, is_over=is_over):
                self._look_again_at(name)

    def _tell_news(self) -> None:
        now = self._store.cursor()
        if self._number < 0:
            self._number = self._begin(now)
        while self._number < now.number:
            until = min(self._number + SLICE, now.number)
            self._tell(self._news(until))
            self._number, self._is_first = until, False
            self._keep(Cursor(now.store, now.epoch, until))

    def _news(self, until: int) -> list[Found]:
        open_ones = (State.UNREAD, State.CLAIMED)
        return self._store.find(
            Query(
                states=open_ones, unread_only=True, shown_only=True, after=self._number, until=until, order="age"
            )
        )

    def _tell(self, found: list[Found]) -> None:
        by_name: dict[str, list[Found]] = {}
        for one in found:
            if is_here(one.delivery.mailbox):
                by_name.setdefault(one.delivery.mailbox, []).append(one)
        for name, news in by_name.items():
            with _alone(name):
                self._tell_one(name, news)

    def _tell_one(self, name: str, news: list[Found]) -> None:
        told = self.folder.content(name) if self._is_first else b""
        lines = [line_of(one.message, name) for one in news if _mark(one.message.id) not in told]
        gone = self.folder.append(name, lines) if lines else 0
        if lines:
            self._look_again_at(name)
        if gone:
            words = "the inbox file of %s was full: its %d oldest lines were dropped; the letters are in the inbox"
            log.warning(words, name, gone)

    def _look_again_at(self, name: str) -> None:
        self._unsure[name] = time.monotonic() + MOMENT / 1e9

    # -- how far we are

    def _begin(self, now: Cursor) -> int:
        """Where we stopped. A room that was set back has fewer numbers: then from the beginning."""
        path = self._cursor_file(now)
        try:
            held = read(path).decode("ascii", "replace").strip()
            number = Cursor.parse(held).number if held else 0
        except (Invalid, InTheWay) as refused:
            log.warning("%s cannot be read; what is unread is told from the beginning: %s", path, refused)
            return 0
        return number if number <= now.number else 0

    def _keep(self, cursor: Cursor) -> None:
        if not self._is_kept:
            return
        try:
            write(self._cursor_file(cursor), f"{cursor}\n".encode())
        except InTheWay as refused:
            log.warning("how far the inbox files are cannot be noted: %s", refused)

    def _cursor_file(self, cursor: Cursor) -> str:
        return os.path.join(self.folder.path, f".cursor-{cursor.store}")


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """What is in one agent's way, or goes wrong with its file by a fault of ours, is no reason to tell the others
    nothing. A disk that is full is everybody's.
    """
    try:
        yield
    except BaseException as refused:
        is_everybodys = isinstance(refused, OSError) and not isinstance(refused, InTheWay)
        if is_everybodys or not isinstance(refused, Exception):
            raise
        is_ours = not isinstance(refused, PostroomError | InTheWay)
        log.warning("the inbox file of %s cannot be written: %s", name, refused, exc_info=is_ours)


def _mark(id: str) -> bytes:
    """How a letter's id stands in its line."""
    return f'"messageId":"{id}"'.encode()


def is_here(name: str) -> bool:
    """Is this an agent of this room? Those of other systems have files there."""
    return "@" not in name
