"""The link for ever: dial, visit, and after a cut dial again, later and later, never all guests at once."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from .. import service
from ..errors import PostroomError
from ..lines.dialling import CUT, dial, pause, read, sender
from ..lines.line import Line, MapRefusal
from ..store.bells import ROOM
from . import directory
from .carrying import Carrier
from .memory import Memory
from .visit import Visit

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from ..desk import Desk
    from ..store.base import Watch
    from ..wire.events import Event
    from .wants import Wants

log = logging.getLogger("postroom")
A_MOMENT = 0.5  # seconds for the end of a visit
STEADY = 10.0  # seconds of a visit after which the next waiting is a short one again
LARGEST = 8 * 1024 * 1024  # bytes of one frame
ANSWER = 30.0  # seconds for one answer; the SDK's server may never give it
POLL = 1.0  # seconds between two looks where no bell can be heard
_ENDED = "the server closed the connection"
_CUT = (*CUT, MapRefusal, PostroomError)


def _looked_at(task: asyncio.Future[None]) -> None:
    """Its error is no news to the event loop."""
    if not task.cancelled():
        task.exception()


class Link:
    """Made inside an event loop."""

    def __init__(self, desk: Desk, wants: Wants) -> None:
        self._desk = desk
        self._wants = wants
        self._room = desk.room.acting_as(directory.LINK)
        office, named = self._room._office, self._room.settings.system
        name = service.identity.system_id(office, directory.LINK, named, gives_way=True)
        self._memory = Memory(office, wants.server, name)
        self._rang = asyncio.Event()
        self._carrier = Carrier(desk, self._room)
        self._visiting: Visit | None = None
        self._complaint = ""
        self.is_up = False

    def emitted(self, event: Event) -> None:
        """What somebody emits in the link's scope is told there, too, if the link is up; it is kept nowhere."""
        if self.is_up and self._visiting is not None and event.scope == self._wants.scope:
            self._visiting.emit(event)

    async def run(self) -> None:
        """For ever. What goes wrong is logged once, and tried again."""
        store = self._room._office.store
        watch = store.watch((ROOM,))
        poll = asyncio.ensure_future(self._listen(watch))
        tries = 0
        try:
            while True:
                began = monotonic()
                try:
                    why = await self._visit()
                except BaseException as fault:
                    if not isinstance(fault, Exception):
                        raise
                    log.exception("the link to the MAP server broke by a fault of ours")
                    why = ""
                tries = 1 if monotonic() - began >= STEADY else tries + 1
                wait = pause(tries)
                self._complain(why, wait)
                await asyncio.sleep(wait)
        finally:
            poll.cancel()
            if watch.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(watch.fileno())
            watch.close()

    async def _visit(self) -> str:
        """Until the line is cut; gives back why."""
        visit = Visit(self._desk, self._wants, self._memory, self._carrier, self._rang, self._welcomed)
        self._visiting = visit
        try:
            async with dial(self._wants.server, LARGEST) as socket:
                return await self._talk(visit, socket)
        except _CUT as cut:
            return str(cut) or type(cut).__name__
        finally:
            self.is_up = False
            with suppress(PostroomError):
                await self._desk.run_slow(lambda: directory.leave(self._room, list(visit.there)))
                await self._desk.run_slow(self._memory.keep)

    async def _talk(self, visit: Visit, socket: ClientConnection) -> str:
        line = Line(sender(socket), visit.hear, ANSWER)
        reading = asyncio.ensure_future(read(line, socket))
        visiting = asyncio.ensure_future(visit.run(line))
        for one in (reading, visiting):
            one.add_done_callback(_looked_at)  # also where we are stopped just then
        try:
            await asyncio.wait((reading, visiting), return_when=asyncio.FIRST_COMPLETED)
            line.cut()
            await asyncio.wait(
                (visiting,)
            )  # it puts down what came, and says of the letter in hand that it failed
        finally:
            line.cut()
            await asyncio.wait((visiting,), timeout=A_MOMENT)
            visiting.cancel()
            reading.cancel()
            ended = await asyncio.gather(reading, visiting, return_exceptions=True)
        for wrong in ended:
            if isinstance(wrong, BaseException) and not isinstance(wrong, asyncio.CancelledError):
                raise wrong
        return _ENDED

    def _welcomed(self, agents: int) -> None:
        self.is_up = True
        self._complaint = ""
        log.info("linked to a MAP server", extra={"server": self._wants.server, "agents": agents})

    def _complain(self, why: str, wait: float) -> None:
        """Once for each reason, until we were welcome again."""
        if why and why != self._complaint:
            told = "there is no link to the MAP server: %s; the next try is in %.1f s, then later and later"
            log.warning(told, why, wait, extra={"server": self._wants.server})
        self._complaint = why

    async def _listen(self, watch: Watch) -> None:
        if watch.fileno() >= 0:
            asyncio.get_running_loop().add_reader(watch.fileno(), self._hear, watch)
            return
        while True:
            await asyncio.sleep(POLL)
            self._hear(watch)

    def _hear(self, watch: Watch) -> None:
        watch.rung()
        self._rang.set()
