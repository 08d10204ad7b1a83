"""All links of a running server, and the choice of the link that a waiting letter goes by.

It also announces our agents to peers.

The exchange polls the room whenever the store notifies it of a commit, and now and then besides. Where there are
no peers, it does nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..core import outbox
from ..core import peers as core_peers
from ..errors import PostroomError
from ..formats.map import ANNOUNCE
from ..model.names import ANYWHERE, fold, system_of
from ..policy.trust import routes_to
from ..server.requests import Schedule
from ..watcher import room_watch
from . import exposure
from .connection import ConnectionLost, RpcConnection
from .courier import Courier, RetryLog
from .dialler import ANSWER, Dialler
from .link import Link, LinkState, PeerConnection, ping, report
from .lookup import AgentLookup
from .peer_calls import PeerHandler, abilities, connect_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..model.peer import Peer
    from ..server.executor import Executor


log = logging.getLogger("postroom")
LOOK = 5.0  # seconds between two polls without a notification: for retries that are due
NOBODY = 60.0  # seconds between two polls while there is no peer
ALONE = 1.0  # least seconds between two polls of a room without peers, or after an error
PACE = 0.005  # least seconds between two polls
A_MOMENT = 0.005  # seconds by which clocks may differ
A_LITTLE = 0.5  # seconds for a last record
SELDOM = 0.5  # seconds between two looks for mail to unknown names
_OF_CONNECTION = (
    "url",
    "auth",
    "token",
    "proof",
    "pin",
    "is_mount",
    "place",
)  # fields that a new connection needs
MOST = 10_000  # remote mailboxes with mail that are read at once


class Exchange:
    """All links of one room, made inside an event loop and used on its thread."""

    def __init__(self, executor: Executor, certificate: str = "", key: str = "") -> None:
        self._executor = executor
        self.core = executor.core
        self._certificate = (certificate, key)  # files, for peers that want a certificate of us
        self.here = ""  # our own name, once a peer needs it (`read_name`)
        self._links: dict[str, Link] = {}  # by folded name
        self._tasks: dict[str, list[asyncio.Future[None]]] = {}
        self._woken = asyncio.Event()
        self._cards = exposure.CardWatch(self.core)
        self.address: dict[str, str] = {}  # where peers reach us, `url` and `pin`; empty: not known
        # Called with the certificates that peers may show.
        self.admit: Callable[[list[str]], object] = lambda _: None
        self._last_exposure: dict[str, Any] = {}  # by link: what was announced to the peer of our agents
        self._admitted: list[str] = []  # what `admit` was called with
        self._announced_at = 0.0  # when our agents were last announced to all peers, by the loop's clock
        self._looked_up_at = 0.0  # when unknown names were last looked up
        self._lookup = AgentLookup(executor, lambda: self.links)
        self._retry_log = RetryLog("mail for other systems")
        self._began = self.core.now().wall
        self._recorded: dict[str, str | None] = {}  # by system, why its link is down, as the room was told
        self._recorded_at = 0.0  # when, by the loop's clock

    def read_name(self) -> None:
        """Read our own name, which is fixed when the first peer needs it; on a thread."""
        self.here = self.here or core_peers.announced(self.core)

    @property
    def links(self) -> list[Link]:
        return list(self._links.values())

    # -- peers that connect to us

    async def accept(
        self,
        peer: Peer,
        params: dict[str, Any],
        send: Callable[[dict[str, Any]], Awaitable[None]],
        close: Any,
        rpc_type: type[RpcConnection] = RpcConnection,
    ) -> tuple[dict[str, Any], PeerHandler]:
        """Begin federation with a peer that has proven itself; return the answer for it, and its handler."""
        await self._executor.read(self.read_name)
        # The link may not be open yet: the peer can call before our next poll sees its record.
        link = self.link_to(peer)
        result = await self._executor.submit(partial(connect_answer, self._executor, peer, self.here, params))
        self._last_exposure[fold(peer.system)] = result["exposure"]
        handler = PeerHandler(link)
        handler.rpc = rpc_type(send, handler.notified, ANSWER)
        connection = PeerConnection(handler.rpc, close, **abilities(params))
        handler.leave = partial(link.leave, connection)
        link.join(connection)
        return result, handler

    # -- for people

    def describe(self) -> list[dict[str, Any]]:
        """Return the state of each link."""
        return [{"system": link.system, **link.describe()} for link in self.links]

    async def ping(self, system: str) -> dict[str, Any]:
        """Return the round-trip time to a peer, or what is wrong and what to do about it."""
        self._sync_links((await self._executor.run_slow(self._read_room))[0])
        link = self._links.get(fold(system))
        if link is None:
            peer = await self._executor.run_slow(partial(core_peers.known_peer, self.core, system))
            hint = f"postroom peers trust {peer.system}"
            return report(peer, LinkState.DISCONNECTED, "it is not trusted", hint)
        return await ping(link, self.here)

    # -- the main loop

    async def run(self) -> None:
        """Run all links for ever."""
        try:
            while True:
                began = monotonic()
                # Before the poll: what comes during it wakes us for the next one.
                self._woken.clear()
                with room_watch(self.core, self._woken.set):
                    await self._poll_safely()
                    polled = monotonic()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK if self._links else NOBODY):
                            await self._woken.wait()
                # Every local letter causes a notification, and a poll is slow where much waits.
                pause = max(PACE, polled - began) if self._links else ALONE
                await asyncio.sleep(max(0.0, polled + pause - monotonic()))
        finally:
            await self._record_end()
            await self._stop()

    async def _poll_safely(self) -> None:
        try:
            await self._poll()
            self._retry_log.recovered()
        except PostroomError as wrong:
            self._retry_log.failed(wrong)
            await asyncio.sleep(ALONE)
        except ConnectionLost:  # of a mounted folder, which is gone: see `mounts`
            raise
        except Exception:  # the loop must go on: else no peer would get mail any more
            log.exception("mail for other systems waits because of an internal error")
            await asyncio.sleep(ALONE)

    def _poll_later(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + A_MOMENT, self._woken.set)

    async def _poll(self) -> None:
        peers, waiting, has_cards = await self._executor.submit(self._read_room, kind=Schedule.READ)
        self._sync_links(peers)
        await self._record_links()
        if not self._links:
            return
        await self._look_up_strangers()
        self._distribute(peers, waiting)
        loop = asyncio.get_running_loop()
        # At half the time for which peers believe it, so that one lost announcement does no harm.
        is_time = loop.time() - self._announced_at >= self.core.limits.federation_table_ttl / 2
        has_news = [link for link in self.links if link.has_news]
        for link in has_news:
            link.has_news = False
        if has_cards or has_news or is_time:
            self._announced_at = loop.time() if is_time else self._announced_at
            await self._announce(again=is_time)

    async def _record_links(self) -> None:
        """Record in the room which links are up, when that has changed, and now and then that it is served."""
        now = {link.system: None if link.connection else link.why_down for link in self.links}
        time = asyncio.get_running_loop().time()
        if now != self._recorded or (now and time - self._recorded_at >= outbox.LINK_BEAT):
            await self._executor.submit(partial(outbox.record_links, self.core, now, self._began))
            self._recorded, self._recorded_at = now, time

    async def _record_end(self) -> None:
        """Record that nobody serves the room any more, if that can be written at once."""
        if self._recorded:
            with suppress(PostroomError, TimeoutError):
                async with asyncio.timeout(A_LITTLE):
                    await self._executor.submit(partial(outbox.record_end, self.core, self._began))

    def _read_room(self) -> tuple[dict[str, Peer], list[str], bool]:
        peers = core_peers.all_peers(self.core)
        if not peers:
            return {}, [], False
        self.read_name()
        return peers, outbox.waiting_mailboxes(self.core, MOST), self._cards.have_changed()

    # -- links

    def _sync_links(self, peers: dict[str, Peer]) -> None:
        """Open a link for each trusted peer, and end those of others."""
        wanted = {fold(system): peer for system, peer in peers.items() if self._is_linked(peer)}
        for key, link in list(self._links.items()):
            if wanted.get(key) != link.peer:
                after = wanted.get(key)
                if after is not None and all(
                    getattr(link.peer, name) == getattr(after, name) for name in _OF_CONNECTION
                ):
                    # The terms have changed, not the peer: keep the connection, and announce to the peer
                    # our agents again.
                    link.peer = after
                    self._last_exposure.pop(key, None)
                    self._announced_at = 0.0
                else:
                    self._end(key)
        for key in wanted.keys() - self._links.keys():
            self._begin(key, wanted[key])
        shown = sorted(peer.certificate for peer in wanted.values() if peer.auth == "mtls" and peer.certificate)
        if shown != self._admitted:
            self._admitted = shown
            self.admit(shown)

    def _is_linked(self, peer: Peer) -> bool:
        """Return whether this peer gets a link: not the room that has mounted us, which carries mail both ways."""
        return peer.trusted and (not peer.is_mount or bool(peer.place))

    def link_to(self, peer: Peer) -> Link:
        """Return the link to a peer; it is opened if there is none."""
        self._sync_links({**{link.system: link.peer for link in self.links}, peer.system: peer})
        return self._links[fold(peer.system)]

    def _begin(self, key: str, peer: Peer) -> None:
        link = Link(self._executor, peer, self.here, self._wake_all)
        courier = Courier(link, self._poll_later)
        runs = [courier.run()]
        if peer.is_dialled:
            runs.append(Dialler(link, self._certificate).run())
        elif peer.place:
            from .mounts import MountRunner  # noqa: PLC0415 - it imports this module

            runs.append(MountRunner(link).run())
        self._links[key], self._tasks[key] = link, [asyncio.ensure_future(one) for one in runs]

    def _end(self, key: str) -> None:
        for task in self._tasks.pop(key):
            task.cancel()
        self._links.pop(key).drop()
        self._last_exposure.pop(key, None)

    async def _stop(self) -> None:
        tasks = [task for tasks in self._tasks.values() for task in tasks] + self._lookup.tasks
        for key in list(self._links):
            self._end(key)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _wake_all(self) -> None:
        """Wake all couriers: a connection came or went, so letters may have another route."""
        self._woken.set()
        for link in self._links.values():
            link.has_mail.set()

    # -- letters that wait

    def _distribute(self, peers: dict[str, Peer], waiting: list[str]) -> None:
        for mailbox in waiting:
            system = system_of(mailbox)
            if system == ANYWHERE:
                self._lookup.look_up(mailbox)
                continue
            key = self._route(peers, system)
            if key is not None:
                self._links[key].waiting[mailbox] = system
        for link in self._links.values():
            if link.waiting:
                link.has_mail.set()

    async def _look_up_strangers(self) -> None:
        """Ask peers, at most every SELDOM seconds, for names that are not known here and have mail here."""
        if not outbox.refreshes_on_miss(self.core) or not any(link.connection for link in self._links.values()):
            return
        loop = asyncio.get_running_loop()
        soon = self._looked_up_at + SELDOM - loop.time()
        if soon > 0:
            self._poll_later(soon)
            return
        self._looked_up_at = loop.time()
        unknown_names = await self._executor.run_slow(partial(outbox.unknown_names, self.core))
        for name, newest in unknown_names.items():
            self._lookup.look_up_stranger(name, newest)

    def _route(self, peers: dict[str, Peer], system: str) -> str | None:
        """Return the first link towards a system that is connected, else the first one that could be."""
        keys = [fold(peer.system) for peer in routes_to(peers, system, self.core.limits)]
        known = [key for key in keys if key in self._links]
        return next((key for key in known if self._links[key].connection is not None), next(iter(known), None))

    # -- our agents

    async def _announce(self, *, again: bool) -> None:
        """Announce our agents to each connected peer, if they have changed or with `again`."""
        for key, link in list(self._links.items()):
            connection = link.connection
            if connection is None:
                continue
            shown = await self._executor.run_slow(partial(exposure.exposure, self.core, link.peer))
            if again or shown != self._last_exposure.get(key):
                self._last_exposure[key] = shown
                with suppress(ConnectionLost):
                    await connection.rpc.notify(ANNOUNCE, systemId=self.here, exposure=shown)
