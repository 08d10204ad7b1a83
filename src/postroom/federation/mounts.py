"""The room in a mounted folder: opened, told who mounted it, and watched for being there. On a desk's threads."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..clock import SystemClock
from ..core import peers as core_peers
from ..core.authorize import OWNER
from ..errors import Conflict, LookAlike, Missing, NameTaken, PostroomError, StoreFailing
from ..formats.federation import federation_error
from ..formats.map import PING
from ..model.message import same_name
from ..model.peer import EVERYWHERE, Peer
from ..policy.trust import route_to, strategy_of
from ..room import chosen_settings, open_with
from ..room import open as open_room
from ..server.executor import Executor
from ..store.address import place_of
from ..store.files.store import FileStore
from ..store.protocol import Introduce
from . import exposure
from .connection import LineLost, paired
from .dialler import ANSWER
from .exchange import Exchange
from .incoming import Serving
from .link import End

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..core.arrivals import Arrival, Verdict
    from ..room import Room
    from ..settings import Settings
    from .link import Link


_ITS_OWN = frozenset({"store", "system", "file_root"})  # settings that each room has for itself


class Folder:
    """One that is open, as a system."""

    def __init__(self, room: Room, system: str, host: str, place: str) -> None:
        self.room = room
        self.system = system
        self._host = host
        self._place = place
        self._was = _identity(place)

    def check(self) -> None:
        """Refuse to go on where it was taken away, or another stands in its place."""
        if _identity(self._place) != self._was:
            raise StoreFailing(f"{self._place} is gone, or was replaced", field="place")

    def host(self) -> Peer:
        """Who mounted it, as its own programs know it."""
        return core_peers.known_peer(self.room._core, self._host)

    def is_host(self, peer: Peer) -> bool:
        return same_name(peer.system, self._host) and _mounts_us(peer)

    def leads_by_host(self, peers: Mapping[str, Peer], system: str) -> bool:
        """Is it ours to carry? A room may have peers of its own, or be mounted by two: one of them carries it."""
        first = route_to(peers, system, strategy_of(self.room._core.limits))
        return first is not None and self.is_host(first)

    def acquaint(self, names: Sequence[str]) -> None:
        """Whoever has a folder there is somebody, though nobody ever saw it do anything."""
        store = self.room._core.store
        if not isinstance(store, FileStore):
            return
        new = [name for name in names if name and store.has_folder(name) and not store.is_known(name)]
        with suppress(NameTaken, LookAlike):  # it reads like another's: that is told when the letter comes
            if new:
                store.commit([Introduce(name, known=True) for name in new])


def opened(peer: Peer, here: str, settings: Settings) -> Folder:
    """The room of a mount, which must be there: mounting makes no folder."""
    place = os.path.realpath(place_of(peer.place) or "")
    if _identity(place) is None:
        raise Missing(f"{place} is not there", field="place", hint="it is used as soon as it is back")
    same = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in _ITS_OWN}
    room = open_with(chosen_settings(peer.place, {**same, "system": peer.system}), SystemClock(), makes=False)
    try:
        introduce(room, peer.system, here)
        return Folder(room, peer.system, here, place)
    except BaseException:
        room.close()
        raise


def introduce(room: Room, system: str, here: str) -> None:
    """Tell the programs that use this room what it is called, and by whom all others are reached."""
    core = room._core
    held = core_peers.peer(core, here)
    if held is not None and not _mounts_us(held):
        text = f"the room has a peer {here!r} of its own"
        raise Conflict(text, field="place", hint=f"there: postroom peers remove {here}")
    core_peers.adopt(core, OWNER, system)
    host = Peer(system=here, is_mount=True, exposure="all", relays_for=(EVERYWHERE,))
    if held != host:
        core_peers.put(core, OWNER, host, ours=system)


def forget(peer: Peer, here: str) -> bool:
    """Nobody mounts it any more. Could it be told?"""
    try:
        if _identity(place_of(peer.place) or "") is None:
            return False
        with open_room(peer.place) as room:
            held = core_peers.peer(room._core, here)
            if held is not None and _mounts_us(held):
                core_peers.remove(room._core, OWNER, here)  # first: a daemon may be showing some just now
            exposure.show(room, here, [])
    except (PostroomError, OSError):
        return False
    return True


def _mounts_us(peer: Peer) -> bool:
    return peer.is_mount and not peer.place


def _identity(place: str) -> tuple[int, int] | None:
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# A foreign mail folder as a system: the far end of its link is a second post room, opened in this process.
#
# What goes there and what comes from there is asked, answered and written down as over any connection. So a
# process
# that dies between the two rooms loses nothing and doubles nothing: each letter has its id on both sides.
# Programs
# that use the folder without Postroom put files into folders such as `ann@home`; the store hears of them at once.
#
# A folder that is not there, or cannot be opened, is a link that is down: mail waits, and it is looked for again.

log = logging.getLogger("postroom")
AGAIN = 1.0  # seconds between two looks for a folder that is not there
LOOK = 5.0  # seconds between two looks at how our own agents are


class FarServing(Serving):
    """What is asked of the folder: nothing, once it is gone. Else it would be made anew, and be empty."""

    def __init__(self, executor: Executor, link: Link, folder: Folder, heard_of: Callable[[], object]) -> None:
        super().__init__(executor, link, folder.system)
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

    async def call(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        self._folder.check()
        return await super().call(name, params)

    def _accept(self, peer: Peer, arrival: Arrival) -> list[Verdict]:
        self._folder.acquaint([target.agent for target in arrival.targets])
        return super()._accept(peer, arrival)

    def _announce(self, params: dict[str, Any]) -> dict[str, Any]:
        self._heard_of()
        return super()._announce(params)


class FarExchange(Exchange):
    """Of the folder: with the room that mounted it, and with nobody else."""

    def __init__(self, executor: Executor, folder: Folder) -> None:
        super().__init__(executor)
        self._folder = folder

    def _is_linked(self, peer: Peer) -> bool:
        return peer.trusted and self._folder.is_host(peer)

    def _way(self, peers: dict[str, Peer], system: str) -> str | None:
        return super()._way(peers, system) if self._folder.leads_by_host(peers, system) else None

    async def _look(self) -> None:
        try:
            await self._executor.run_slow(self._folder.check)
        except PostroomError as gone:
            raise LineLost(str(gone)) from gone
        await super()._look()


class Mounter:
    """Of one link."""

    def __init__(self, executor: Executor, link: Link, here: str) -> None:
        self._executor = executor
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
        settings = self._executor.room.settings
        async with AsyncExitStack() as stack:
            folder = await self._executor.run_slow(partial(opened, self._link.peer, self._here, settings))
            stack.push_async_callback(_close, folder)
            executor = Executor(folder.room)
            stack.push_async_callback(executor.close)
            await self._talk(folder, executor)

    async def _talk(self, folder: Folder, executor: Executor) -> None:
        exchange, changed = FarExchange(executor, folder), asyncio.Event()
        far = exchange.link_to(await executor.run_slow(folder.host))
        announced = partial(asyncio.get_running_loop().call_soon_threadsafe, changed.set)
        ours = Serving(self._executor, self._link, self._here)
        theirs = FarServing(executor, far, folder, announced)
        near_line, far_line = paired(ours, theirs, ANSWER)
        near = End(near_line, near_line.cut, in_order=True)
        far_end = End(far_line, far_line.cut, in_order=True)
        tasks = [
            asyncio.ensure_future(one)
            for one in (exchange.run(), self._show_ours(folder, executor, changed), _until_cut(near_line.lost))
        ]
        try:
            await self._tell_each_other(executor, far.peer)
            far.join(far_end)
            self._link.join(near)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._link.leave(near)
            far.leave(far_end)
            await _end(tasks)
        _raise_of(tasks)

    async def _tell_each_other(self, executor: Executor, host: Peer) -> None:
        """Who is where, as two systems do when they meet."""
        ours, theirs = self._executor.room, executor.room
        shown = await self._executor.run_slow(partial(exposure.exposure, ours, self._link.peer))
        await executor.run_slow(partial(exposure.note, theirs._core, host.system, shown))
        there = await executor.run_slow(partial(exposure.exposure, theirs, host))
        await self._executor.run_slow(partial(exposure.note, ours._core, self._link.system, there))

    async def _show_ours(self, folder: Folder, executor: Executor, changed: asyncio.Event) -> None:
        """Where the programs of a design look for agents, ours stand too, as long as they are there."""
        while True:
            changed.clear()
            shown = await self._executor.run_slow(partial(exposure.shown, self._executor.room, self._link.peer))
            folder.check()
            await executor.run_slow(partial(exposure.show, executor.room, self._here, shown))
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
