"""A foreign mail folder as a peer system: the far end of its link is a second room, opened in this process.

Letters go there and come from there as over any connection, with calls and confirmations. So a process that dies
between the two rooms loses nothing and doubles nothing: each letter has its id on both sides. Programs that use
the folder without Postroom put files into folders such as `ann@home`; the store notices them at once.

A folder that is missing, or cannot be opened, is a link that is down: mail waits, and the folder is looked for
again.
"""

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
from ..core.folders import introduce_folders
from ..errors import Conflict, LookAlike, Missing, NameTaken, PostroomError, StoreFailing
from ..formats.federation import federation_error
from ..formats.map import PING
from ..model.message import same_name
from ..model.peer import EVERYWHERE, Peer
from ..policy.trust import route_to
from ..room import open as open_room
from ..room import open_with
from ..server.executor import Executor
from ..settings import chosen_settings
from ..store.address import place_of
from . import exposure
from .connection import ConnectionLost, connected_pair
from .dialler import ANSWER, keep_connected
from .exchange import Exchange
from .link import PeerConnection
from .peer_calls import PeerHandler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..core.arrivals import TargetOutcome
    from ..core.core import Core
    from ..model.peer import Envelope
    from ..policy.limits import Limits
    from ..room import Room
    from .link import Link


log = logging.getLogger("postroom")
_ITS_OWN = frozenset({"store", "system", "file_root"})  # settings that each room has for itself


class MountedRoom:
    """The open room of a mounted folder. `host` is the system that has mounted it."""

    def __init__(self, room: Room, system: str, host: str, place: str) -> None:
        self.core = room.core
        self.close = room.close
        self.system = system
        self._host = host
        self._place = place
        self._was = _identity(place)

    def check(self) -> None:
        """Raise StoreFailing if the folder was removed or replaced."""
        # By device and inode: another folder that was put at the same path has other mail.
        if _identity(self._place) != self._was:
            raise StoreFailing(f"{self._place} is gone, or was replaced", field="place")

    def is_host(self, peer: Peer) -> bool:
        return same_name(peer.system, self._host) and _mounts_us(peer)

    def introduce_folders(self, names: Sequence[str]) -> None:
        """Introduce the names that have a folder: each is an agent, though it may never have done anything."""
        # The sender gets that error with its letter, where it can be read.
        with suppress(NameTaken, LookAlike):  # it looks like another name: the letter is refused with that error
            introduce_folders(self.core, filter(None, names))


def open_mounted(peer: Peer, here: str, limits: Limits) -> MountedRoom:
    """Open the room of a mount. The folder must exist: mounting makes none."""
    place = os.path.realpath(place_of(peer.place) or "")
    # Opening would make an empty room in its place, and mail there would be lost.
    if _identity(place) is None:
        raise Missing(
            f"{place} is not there", field="place", hint="the mount works again as soon as the folder is back"
        )
    # Limits and rules of the host hold in the folder too: mail that one side accepts must not be refused by the
    # other.
    same = {name: getattr(limits, name) for name in limits.__struct_fields__ if name not in _ITS_OWN}
    room = open_with(chosen_settings(peer.place, {**same, "system": peer.system}), SystemClock(), makes=False)
    try:
        introduce(room.core, peer.system, here)
        return MountedRoom(room, peer.system, here, place)
    except BaseException:
        room.close()
        raise


def introduce(core: Core, system: str, here: str) -> None:
    """Record in a mounted room its name as a system, and that all other systems are reached through `here`."""
    held = core_peers.peer(core, here)
    if held is not None and not _mounts_us(held):
        text = f"the room has a peer {here!r} of its own"
        raise Conflict(text, field="place", hint=f"in that room: postroom peers remove {here}")
    core_peers.adopt(core, system)
    host = Peer(system=here, is_mount=True, exposure="all", relays_for=(EVERYWHERE,))
    if held != host:
        core_peers.change(core, here, lambda _: host, ours=system)


def forget(peer: Peer, here: str) -> bool:
    """Remove our records from the room of a mount that ended; return whether that was possible."""
    try:
        if _identity(place_of(peer.place) or "") is None:
            return False
        with open_room(peer.place) as room:
            held = core_peers.peer(room.core, here)
            if held is not None and _mounts_us(held):
                core_peers.RemovePeer(system=here).run(
                    room.core, OWNER
                )  # first: a server may be showing some just now
            exposure.show(room.core, here, [])
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


# -- the link

AGAIN = 1.0  # seconds between two looks for a missing folder
LOOK = 5.0  # seconds between two updates of our agents in the folder


class MountHandler(PeerHandler):
    """The handler of calls to the folder. Once the folder is gone it refuses: else it would make an empty one."""

    def __init__(self, link: Link, folder: MountedRoom, on_announce: Callable[[], object]) -> None:
        super().__init__(link)
        self._folder = folder
        self._on_announce = on_announce

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method != PING:
            return await super().answer(method, params)
        try:
            self._folder.check()
        except PostroomError as gone:
            return {"error": federation_error(gone)}
        return {"result": {}}

    async def call(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        self._folder.check()
        return await super().call(name, params)

    def _accept(self, peer: Peer, envelope: Envelope) -> list[TargetOutcome]:
        self._folder.introduce_folders([target.agent for target in envelope.targets])
        return super()._accept(peer, envelope)

    def _announce(self, params: dict[str, Any]) -> dict[str, Any]:
        self._on_announce()
        return super()._announce(params)


class MountExchange(Exchange):
    """The exchange of the mounted room: with its host, and with no other peer."""

    def __init__(self, executor: Executor, folder: MountedRoom) -> None:
        super().__init__(executor)
        self._folder = folder

    def _is_linked(self, peer: Peer) -> bool:
        return peer.trusted and self._folder.is_host(peer)

    def _route(self, peers: dict[str, Peer], system: str) -> str | None:
        # The room may have other peers, or two hosts.
        first = route_to(peers, system, self.core.limits)
        return super()._route(peers, system) if first is not None and self._folder.is_host(first) else None

    async def _poll(self) -> None:
        try:
            await self._executor.run_slow(self._folder.check)
        except PostroomError as gone:
            raise ConnectionLost(str(gone)) from gone
        await super()._poll()


class MountRunner:
    """The task of one link that opens its folder and serves both ends."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def run(self) -> None:
        """Open the folder for ever, again after each error."""
        link = self._link
        await keep_connected(
            f"the folder {link.system}",
            self._run_once,
            lambda problem, _: link.report_problem(problem),
            link.sleep,
            pauses=lambda _: AGAIN,
        )

    async def _run_once(self) -> None:
        """Serve the folder until it is gone, or the link is cut."""
        link = self._link
        async with AsyncExitStack() as stack:
            opening = partial(open_mounted, link.peer, link.here, link.core.limits)
            folder = await link.executor.run_slow(opening)
            stack.push_async_callback(_close, folder)
            executor = Executor(folder.core)
            stack.push_async_callback(executor.close)
            await self._run_connection(folder, executor)

    async def _run_connection(self, folder: MountedRoom, executor: Executor) -> None:
        exchange, changed = MountExchange(executor, folder), asyncio.Event()
        await executor.read(exchange.read_name)
        host = await executor.run_slow(partial(core_peers.known_peer, folder.core, self._link.here))
        far = exchange.link_to(host)
        announced = partial(asyncio.get_running_loop().call_soon_threadsafe, changed.set)
        ours = PeerHandler(self._link)
        theirs = MountHandler(far, folder, announced)
        near_rpc, far_rpc = connected_pair(ours, theirs, ANSWER)
        near = PeerConnection(near_rpc, near_rpc.abort, in_order=True)
        far_connection = PeerConnection(far_rpc, far_rpc.abort, in_order=True)
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(one)
            for one in (
                exchange.run(),
                self._keep_ours_shown(folder, executor, changed),
                near_rpc.lost.wait(),
            )
        ]
        try:
            # Before the connections count as up, as in a handshake: routes are known when the first letter goes.
            await self._exchange_exposure(executor, far.peer)
            far.join(far_connection)
            self._link.join(near)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._link.leave(near)
            far.leave(far_connection)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises the error of the first task that failed

    async def _exchange_exposure(self, executor: Executor, host: Peer) -> None:
        """Announce the agents of both rooms to each other, as two systems do in their handshake."""
        ours, theirs = self._link.core, executor.core
        shown = await self._link.executor.run_slow(partial(exposure.exposure, ours, self._link.peer))
        await executor.run_slow(partial(exposure.note, theirs, host.system, shown))
        there = await executor.run_slow(partial(exposure.exposure, theirs, host))
        await self._link.executor.run_slow(partial(exposure.note, ours, self._link.system, there))

    async def _keep_ours_shown(self, folder: MountedRoom, executor: Executor, changed: asyncio.Event) -> None:
        """Keep our agents in the directory of the mounted room, where its programs look for agents."""
        while True:
            changed.clear()
            shown = await self._link.executor.run_slow(partial(exposure.shown, self._link.core, self._link.peer))
            folder.check()
            await executor.run_slow(partial(exposure.show, executor.core, self._link.here, shown))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await changed.wait()


async def _close(folder: MountedRoom) -> None:
    with suppress(PostroomError, OSError):
        await asyncio.to_thread(folder.close)
