"""A foreign mail folder as a system: the far end of its link is a second post room, opened in this process.

What goes there and what comes from there is asked, answered and written down as over any connection. So a process
that dies between the two rooms loses nothing and doubles nothing: each letter has its id on both sides. Programs
that use the folder without Postroom put files into folders such as `ann@home`; the store hears of them at once.

A folder that is not there, or cannot be opened, is a link that is down: mail waits, and it is looked for again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..desk import Desk
from ..errors import PostroomError
from ..lines.line import LineLost
from ..lines.pair import paired
from ..wire.federation_problems import federation_error
from ..wire.map_names import PING
from . import exposing, guests, mounted
from .dialler import ANSWER
from .exchange import Exchange
from .link import End
from .serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..model.peer import Peer
    from ..service.arriving import Arrival, Verdict
    from .link import Link
    from .mounted import Folder

log = logging.getLogger("postroom")
AGAIN = 1.0  # seconds between two looks for a folder that is not there
LOOK = 5.0  # seconds between two looks at how our own agents are


class FarServing(Serving):
    """What is asked of the folder: nothing, once it is gone. Else it would be made anew, and be empty."""

    def __init__(self, desk: Desk, link: Link, folder: Folder, heard_of: Callable[[], object]) -> None:
        super().__init__(desk, link, folder.system)
        self._folder = folder
        self._heard_of = heard_of

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return await super().answer(method, params) if method != PING else self._is_there()

    def _is_there(self) -> dict[str, Any]:
        try:
            self._folder.check()
        except PostroomError as gone:
            return {"error": federation_error(gone)}
        return {"result": {}}

    async def call(self, name: str, said: dict[str, Any]) -> dict[str, Any]:
        self._folder.check()
        return await super().call(name, said)

    def _accept(self, peer: Peer, arrival: Arrival) -> list[Verdict]:
        self._folder.acquaint([target.agent for target in arrival.targets])
        return super()._accept(peer, arrival)

    def _announce(self, said: dict[str, Any]) -> dict[str, Any]:
        self._heard_of()
        return super()._announce(said)


class FarExchange(Exchange):
    """Of the folder: with the room that mounted it, and with nobody else."""

    def __init__(self, desk: Desk, folder: Folder) -> None:
        super().__init__(desk)
        self._folder = folder

    def _is_linked(self, peer: Peer) -> bool:
        return peer.trusted and self._folder.is_host(peer)

    def _way(self, peers: dict[str, Peer], system: str) -> str | None:
        return super()._way(peers, system) if self._folder.leads_by_host(peers, system) else None

    async def _look(self) -> None:
        try:
            await self._desk.run_slow(self._folder.check)
        except PostroomError as gone:
            raise LineLost(str(gone)) from gone
        await super()._look()


class Mounter:
    """Of one link."""

    def __init__(self, desk: Desk, link: Link, here: str) -> None:
        self._desk = desk
        self._link = link
        self._here = here

    async def run(self) -> None:
        """For ever. What goes wrong is logged once, and tried again."""
        while True:
            try:
                await self._visit()
            except (PostroomError, LineLost, OSError) as cut:
                self._link.complain(str(cut) or type(cut).__name__)
            except BaseException as fault:
                if not isinstance(fault, Exception):
                    raise
                log.exception("the link to the folder %s broke by a fault of ours", self._link.system)
            await self._link.sleep(AGAIN)

    async def _visit(self) -> None:
        """Until the folder is gone, or the link is cut."""
        settings = self._desk.room.settings
        async with AsyncExitStack() as stack:
            folder = await self._desk.run_slow(partial(mounted.opened, self._link.peer, self._here, settings))
            stack.push_async_callback(_close, folder)
            desk = Desk(folder.room)
            stack.push_async_callback(desk.close)
            await self._talk(folder, desk)

    async def _talk(self, folder: Folder, desk: Desk) -> None:
        exchange, changed = FarExchange(desk, folder), asyncio.Event()
        far = exchange.link_to(await desk.run_slow(folder.host))
        announced = partial(asyncio.get_running_loop().call_soon_threadsafe, changed.set)
        ours = Serving(self._desk, self._link, self._here)
        theirs = FarServing(desk, far, folder, announced)
        near_line, far_line = paired(ours, theirs, ANSWER)
        near = End(near_line, near_line.cut, in_order=True)
        far_end = End(far_line, far_line.cut, in_order=True)
        tasks = [
            asyncio.ensure_future(one)
            for one in (exchange.run(), self._show_ours(folder, desk, changed), _until_cut(near_line.lost))
        ]
        try:
            await self._tell_each_other(desk, far.peer)
            far.join(far_end)
            self._link.join(near)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._link.leave(near)
            far.leave(far_end)
            await _end(tasks)
        _raise_of(tasks)

    async def _tell_each_other(self, desk: Desk, host: Peer) -> None:
        """Who is where, as two systems do when they meet."""
        ours, theirs = self._desk.room, desk.room
        shown = await self._desk.run_slow(partial(exposing.exposure, ours, self._link.peer))
        await desk.run_slow(partial(exposing.note, theirs._office, host.system, shown))
        there = await desk.run_slow(partial(exposing.exposure, theirs, host))
        await self._desk.run_slow(partial(exposing.note, ours._office, self._link.system, there))

    async def _show_ours(self, folder: Folder, desk: Desk, changed: asyncio.Event) -> None:
        """Where the programs of a design look for agents, ours stand too, as long as they are there."""
        while True:
            changed.clear()
            shown = await self._desk.run_slow(partial(exposing.shown, self._desk.room, self._link.peer))
            folder.check()
            await desk.run_slow(partial(guests.show, desk.room, self._here, shown))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await changed.wait()


async def _until_cut(lost: asyncio.Event) -> None:
    await lost.wait()


async def _close(folder: Folder) -> None:
    with suppress(PostroomError, OSError):
        await asyncio.to_thread(folder.room.close)


async def _end(tasks: Sequence[asyncio.Future[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def _raise_of(tasks: Sequence[asyncio.Future[None]]) -> None:
    """What one of them ended by."""
    for task in tasks:
        if not task.cancelled():
            task.result()
