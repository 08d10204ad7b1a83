"""One agent's mail, to its connection. A letter stays unread until its receipt is sure, then it is acknowledged.

No lease is needed. One agent is on one connection, and a letter that was handed out and not received is simply
unread: a cut connection or a killed daemon leaves it so. At most `WINDOW` letters are on their way at once.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core import inbox, work
from ..core.inbox import seconds_to_sleep
from ..errors import NotAllowed, PostroomError
from ..formats.map import MESSAGE, map_letter
from ..server.protocol import notification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..model.query import Found
    from ..room import Room
    from ..server.executor import Executor


log = logging.getLogger("postroom")
WINDOW = 64  # letters that were handed out and not received
READY = 0.25  # seconds after it registered: the SDK's programs hang up their handlers behind that answer
AGAIN = 5.0  # seconds after something failed


class AgentDelivery:
    """`push` says a notification, or answers False: not now. `told` hears of each letter that was received."""

    def __init__(
        self,
        executor: Executor,
        room: Callable[[], Room],
        agent: str,
        push: Callable[[dict[str, Any]], int],
        result: Callable[[Found], None],
    ) -> None:
        self._executor = executor
        self._room = room  # as its connection may use it today: it may show another token
        self._agent = agent
        self._push = push
        self._told = result
        self._on_its_way: dict[str, tuple[int, Found]] = {}  # by letter: the number it was said under
        self._settling: set[str] = set()
        self._settled_since: set[str] = set()  # the last look was asked for: it may show them still
        self._bell: asyncio.Event | None = None
        self.is_paused = False
        self._task = asyncio.ensure_future(self._run())

    def wake(self) -> None:
        """There may be something to do."""
        if self._bell is not None:
            self._bell.set()

    def pause(self, *, is_paused: bool) -> None:
        self.is_paused = is_paused
        self.wake()

    def close(self) -> None:
        """What is on its way stays unread."""
        self._task.cancel()
        self._on_its_way.clear()

    # -- receipts

    def received_up_to(self, number: int) -> None:
        """Everything that was said up to this number has arrived."""
        self._settle([id for id, (params, _) in self._on_its_way.items() if params <= number])

    def received(self, ids: Iterable[str]) -> list[str]:
        """These letters have; which of them were on their way."""
        mine = [id for id in ids if id in self._on_its_way]
        self._settle(mine)
        return mine

    def _settle(self, ids: list[str]) -> None:
        some = [self._on_its_way[id][1] for id in ids if id not in self._settling]
        if not some:
            return
        self._settling.update(found.message.id for found in some)
        done = self._executor.submit(partial(self._acknowledge, self._room(), some))
        done.add_done_callback(lambda done: self._settled(some, done.exception()))

    def _acknowledge(self, room: Room, some: list[Found]) -> None:
        """Together where nobody else had a hand in it, else one by one: somebody may have taken one meanwhile."""
        core, who = room._core, room.principal
        if who.scopes is not None and "work" not in who.scopes:  # its token is good for reading alone
            for found in some:
                inbox.read(core, who, self._agent, found.message.id)
            return
        try:
            work.ack(core, who, self._agent, some)
        except PostroomError as refused:
            if refused.temporary or len(some) == 1:
                raise
            for found in some:
                self._acknowledge_one(room, found)

    def _acknowledge_one(self, room: Room, found: Found) -> None:
        try:
            work.ack(room._core, room.principal, self._agent, [found])
        except PostroomError as refused:
            if refused.temporary:  # then all of it is tried again
                raise

    def _settled(self, some: list[Found], error: BaseException | None) -> None:
        for found in some:
            self._settling.discard(found.message.id)
            self._settled_since.add(found.message.id)
            self._on_its_way.pop(found.message.id, None)  # where that failed it is unread still, and comes again
            if error is None:
                self._told(found)
        if error is not None:
            log.info("what %s received could not be acknowledged: %s", self._agent, error)
        self.wake()

    # -- handing out

    async def _run(self) -> None:
        await asyncio.sleep(READY)
        with self._executor.listen([self._agent]) as bell:
            self._bell = bell
            while True:
                bell.clear()
                try:
                    is_full = await self._hand_out()
                    nap = 3600.0 if is_full or self.is_paused else self._nap()
                except NotAllowed as refused:
                    log.warning("%s is handed no mail: %s", self._agent, refused)
                    return
                except PostroomError as later:
                    log.info("the mail of %s waits: %s", self._agent, later)
                    nap = AGAIN
                with suppress(TimeoutError):
                    async with asyncio.timeout(nap):
                        await bell.wait()

    def _nap(self) -> float:
        return seconds_to_sleep(self._room()._core, [self._agent])

    async def _hand_out(self) -> bool:
        """All there is room for. True: whoever reads, or receives, wakes us."""
        if self.is_paused:
            return True
        while (room := WINDOW - len(self._on_its_way)) > 0:
            self._settled_since.clear()
            found = await self._executor.submit(partial(self._look, self._room()))
            known = self._on_its_way.keys() | self._settled_since
            fresh = [one for one in found if one.message.id not in known][:room]
            for one in fresh:
                number = self._push(
                    notification(MESSAGE, {"message": map_letter(one.message.seen_by(self._agent))})
                )
                if not number:
                    return True
                self._on_its_way[one.message.id] = (number, one)
            if len(found) < WINDOW or not fresh:
                return False
        return True

    def _look(self, room: Room) -> list[Found]:
        return inbox.check(room._core, room.principal, self._agent, limit=WINDOW, peek=True)
