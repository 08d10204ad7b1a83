"""All links of a running post room. What waits is given to the link that leads there; who is new in the directory
is told to those who may know; peers come and go as the allow-list says.

A bell says that something was written; then we look. Where nobody is a peer, that is all.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import cached_property, partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..core import outbox
from ..core import peers as core_peers
from ..core.authorize import OWNER
from ..errors import PostroomError, Resync
from ..formats.map import ANNOUNCE
from ..model.names import ANYWHERE, fold, system_of
from ..model.record import CARD
from ..policy.trust import routes_to, strategy_of
from ..store.notification import ROOM
from . import exposure
from . import link as federation_link
from .connection import Line, LineLost
from .courier import Courier, Trouble
from .dialler import ANSWER, Dialler, Own
from .incoming import Serving, knows_order, met, reads, takes
from .link import End, Link
from .lookup import Seeking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..model.peer import Peer
    from ..server.executor import Executor
    from ..store.protocol import Watch


log = logging.getLogger("postroom")
LOOK = 5.0  # seconds between two looks where no bell rings: what is due again, what was not heard
NOBODY = 60.0  # the same while nobody is a peer
ALONE = 1.0  # seconds between two looks of a room without peers
PACE, SLOWEST, QUIET = 0.001, 0.02, 0.1  # seconds between looks in vain: more with each, at most; then anew
BUSY = 0.02  # seconds between two looks while letters are on their way by all links
OFTEN = 20  # looks in vain that are nothing yet: what we write ourselves rings, too
A_MOMENT = 0.005  # seconds by which clocks may differ
SELDOM = 0.5  # seconds between two looks for mail to names that are not known here
MOST = 10_000  # mailboxes elsewhere with mail that are looked at in one go
SLICE = 1000  # changes


class Visit:
    """A peer that came to us."""

    def __init__(self, link: Link, serving: Serving, end: End) -> None:
        self._link = link
        self.serving = serving
        self.end = end

    @property
    def peer(self) -> Peer:
        return self._link.peer

    def close(self) -> None:
        self._link.leave(self.end)


class Exchange:
    """Made inside an event loop; used on its thread."""

    def __init__(self, executor: Executor, certificate: str = "", key: str = "") -> None:
        self._executor = executor
        self._core = executor.room._core
        self._shown = {"certificate": certificate, "key": key}
        self._links: dict[str, Link] = {}
        self._couriers: dict[str, Courier] = {}
        self._tasks: dict[str, list[asyncio.Future[None]]] = {}
        self._rang = asyncio.Event()
        self._is_listening = False  # to the bell
        self._cursor = self._core.store.cursor()
        self.admit: Callable[[list[str]], object] = lambda _: None  # hears of certificates that peers may show us
        self._told: dict[str, Any] = {}  # what each was told of our agents
        self._admitted: list[str] = []  # certificates that were told of
        self._announced = 0.0  # when all were told, whatever it was
        self._sought = 0.0  # when we last looked for mail to names that are not known here
        self._in_vain = 0  # looks, one after the other, that found nothing
        self._seeking = Seeking(executor, lambda: self.links, self._ring)
        self._trouble = Trouble("mail for other systems")

    @cached_property
    def own(self) -> Own:
        """Asked for when the first peer is there: from then on we are called so."""
        system = core_peers.announced(self._core, OWNER, self._executor.room.settings.system)
        return Own(system=system, **self._shown)

    @property
    def links(self) -> list[Link]:
        return list(self._links.values())

    # -- peers that come to us

    async def welcome(
        self,
        peer: Peer,
        params: dict[str, Any],
        send: Callable[[dict[str, Any]], Awaitable[None]],
        close: Any,
        speaking: type[Line] = Line,
    ) -> tuple[dict[str, Any], Visit]:
        """A peer that has proven who it is: what it is told, and its visit, until that is closed."""
        link = self.link_to(peer)
        result = await self._executor.submit(partial(met, self._executor, peer, self.own.system, params))
        self._told[fold(peer.system)] = result["exposure"]
        serving = Serving(self._executor, link, self.own.system)
        line = speaking(send, serving.notified, ANSWER)
        end = End(line, close, in_order=knows_order(params), largest=reads(params), together=takes(params))
        serving.leave = partial(link.leave, end)
        link.join(end)
        return result, Visit(link, serving, end)

    # -- for people

    def describe(self) -> list[dict[str, Any]]:
        """How each link is."""
        return [{"system": link.system, **link.describe()} for link in self.links]

    async def ping(self, system: str) -> dict[str, Any]:
        """How long a question takes there and back; else what is wrong, and what to do."""
        self._sync(await self._executor.run_slow(partial(core_peers.all_peers, self._core)))
        link = self._links.get(fold(system))
        if link is None:
            peer = await self._executor.run_slow(partial(core_peers.known_peer, self._core, system))
            return federation_link.not_trusted(peer)
        return await federation_link.ping(link, self.own.system)

    # -- for ever

    async def run(self) -> None:
        watch = self._core.store.watch((ROOM,))
        loop = asyncio.get_running_loop()
        try:
            while True:
                if watch.fileno() >= 0 and not self._is_listening:
                    loop.add_reader(watch.fileno(), self._hear, watch)
                    self._is_listening = True
                self._rang.clear()
                try:
                    await self._look()
                    self._trouble.over()
                except PostroomError as wrong:
                    self._trouble.met(wrong)
                    await asyncio.sleep(ALONE)
                except BaseException as fault:
                    if not isinstance(fault, Exception) or isinstance(fault, LineLost):
                        raise
                    log.exception("mail for other systems waits, by a fault of ours")
                    await asyncio.sleep(ALONE)
                if not self._links:
                    await asyncio.sleep(ALONE)  # letters that are nobody's affair elsewhere ring, too
                await self._wait(ALONE if watch.fileno() < 0 else LOOK if self._links else NOBODY)
        finally:
            if self._is_listening:
                loop.remove_reader(watch.fileno())
            watch.close()
            await self._stop(list(self._links))

    async def _wait(self, seconds: float) -> None:
        """For a bell. While it rings and rings for what is nobody's affair elsewhere, it is heeded less often."""
        began = monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rang.wait()
        if monotonic() - began > QUIET:
            self._in_vain = 0
        await self._until_one_rests()
        await asyncio.sleep(min(PACE * max(0, self._in_vain - OFTEN), SLOWEST))

    async def _until_one_rests(self) -> None:
        """For a moment. Who carries letters looks for more itself, and a look takes long where many wait."""
        busy = [courier for courier in self._couriers.values() if not courier.rests.is_set()]
        if busy and len(busy) == len(self._couriers):
            with suppress(TimeoutError):
                async with asyncio.timeout(BUSY):
                    await busy[0].rests.wait()

    def _hear(self, watch: Watch) -> None:
        watch.rung()
        self._rang.set()
        if not self._links:  # until the next look nobody listens: to be alone in a busy room costs nothing then
            asyncio.get_running_loop().remove_reader(watch.fileno())
            self._is_listening = False

    def _look_later(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds + A_MOMENT, self._rang.set)

    async def _look(self) -> None:
        peers, waiting, has_cards = await self._executor.submit(self._found, looks=True)
        self._sync(peers)
        if not self._links:
            return
        await self._seek_strangers()
        self._in_vain = 0 if waiting else self._in_vain + 1
        self._distribute(peers, waiting)
        loop = asyncio.get_running_loop()
        is_time = loop.time() - self._announced >= strategy_of(self._core.limits).believes / 2
        has_news = [link for link in self.links if link.has_news]
        for link in has_news:
            link.has_news = False
        if has_cards or has_news or is_time:
            self._announced = loop.time() if is_time else self._announced
            await self._announce(anew=is_time)

    def _found(self) -> tuple[dict[str, Peer], list[str], bool]:
        peers = core_peers.all_peers(self._core)
        if not peers:
            return {}, [], False
        return peers, outbox.waiting(self._core, MOST), self._has_new_cards()

    def _has_new_cards(self) -> bool:
        try:
            changes, self._cursor = self._core.store.changes(self._cursor, SLICE)
        except Resync:
            self._cursor = self._core.store.cursor()
            return True
        return any(change.kind == CARD for change in changes) or len(changes) == SLICE

    # -- links

    def _sync(self, peers: dict[str, Peer]) -> None:
        """A link for each peer that is trusted, as it is now."""
        wanted = {fold(system): peer for system, peer in peers.items() if self._is_linked(peer)}
        for key, link in list(self._links.items()):
            if wanted.get(key) != link.peer:
                if key in wanted and _is_same_line(link.peer, wanted[key]):
                    link.peer = wanted[key]
                    self._told.pop(key, None)
                    self._announced = 0.0
                else:
                    self._end(key)
        for key in wanted.keys() - self._links.keys():
            self._begin(key, wanted[key])
        shown = sorted(peer.certificate for peer in wanted.values() if peer.auth == "mtls" and peer.certificate)
        if shown != self._admitted:
            self._admitted = shown
            self.admit(shown)

    def _is_linked(self, peer: Peer) -> bool:
        """Who mounted us carries the mail both ways; we need not."""
        return peer.trusted and (not peer.is_mount or bool(peer.place))

    def link_to(self, peer: Peer) -> Link:
        """The link to a peer, begun if there was none."""
        self._sync({**{link.system: link.peer for link in self.links}, peer.system: peer})
        return self._links[fold(peer.system)]

    def _begin(self, key: str, peer: Peer) -> None:
        link = Link(peer, self._ring_all)
        courier = Courier(self._executor, link, self.own.system, self._look_later)
        self._links[key], self._couriers[key] = link, courier
        self._tasks[key] = [asyncio.ensure_future(courier.run())]
        if peer.is_dialled:
            self._tasks[key].append(asyncio.ensure_future(Dialler(self._executor, link, self.own).run()))
        elif peer.place:
            from .mounts import Mounter  # noqa: PLC0415 - it is an exchange itself

            self._tasks[key].append(asyncio.ensure_future(Mounter(self._executor, link, self.own.system).run()))

    def _end(self, key: str) -> None:
        for task in self._tasks.pop(key):
            task.cancel()
        self._links.pop(key).drop()
        del self._couriers[key]
        self._told.pop(key, None)

    async def _stop(self, keys: list[str]) -> None:
        tasks = [task for key in keys for task in self._tasks[key]] + self._seeking.tasks
        for key in keys:
            self._end(key)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ring(self, link: Link) -> None:
        courier = self._couriers.get(fold(link.system))
        if courier is not None:  # else it was ended meanwhile
            courier.ring()

    def _ring_all(self) -> None:
        """A connection came or went: what waits may have another way now."""
        self._rang.set()
        for courier in self._couriers.values():
            courier.ring()

    # -- what waits

    def _distribute(self, peers: dict[str, Peer], waiting: list[str]) -> None:
        for mailbox in waiting:
            system = system_of(mailbox)
            if system == ANYWHERE:
                self._seeking.seek(mailbox)
                continue
            key = self._way(peers, system)
            if key is not None:
                self._links[key].waiting[mailbox] = system
        for key, link in self._links.items():
            if link.waiting:
                self._couriers[key].ring()

    async def _seek_strangers(self) -> None:
        """Ask peers, at most every SELDOM seconds, for names that are not known here and have mail here."""
        if not outbox.refreshes(self._core) or not any(link.end for link in self._links.values()):
            return
        loop = asyncio.get_running_loop()
        soon = self._sought + SELDOM - loop.time()
        if soon > 0:
            self._look_later(soon)
            return
        self._sought = loop.time()
        strangers = await self._executor.run_slow(partial(outbox.strangers, self._core))
        for name, newest in strangers.items():
            self._seeking.seek_stranger(name, newest)

    def _way(self, peers: dict[str, Peer], system: str) -> str | None:
        """The first that leads there and is connected; else the first that may be."""
        strategy = strategy_of(self._core.limits)
        keys = [fold(peer.system) for peer in routes_to(peers, system, strategy)]
        known = [key for key in keys if key in self._links]
        return next((key for key in known if self._links[key].end is not None), next(iter(known), None))

    # -- who is here

    async def _announce(self, *, anew: bool) -> None:
        for key, link in list(self._links.items()):
            end = link.end
            if end is None:
                continue
            shown = await self._executor.run_slow(partial(exposure.exposure, self._executor.room, link.peer))
            if anew or shown != self._told.get(key):
                self._told[key] = shown
                with suppress(LineLost):
                    await end.line.tell(ANNOUNCE, systemId=self.own.system, exposure=shown)


def _is_same_line(before: Peer, after: Peer) -> bool:
    """Need the connection not be opened anew?"""
    names = ("url", "auth", "token", "proof", "pin", "is_mount", "place")
    return all(getattr(before, name) == getattr(after, name) for name in names)
