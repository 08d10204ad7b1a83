"""The first words on a connection that we open: who we are, by which token, and whom the peer may know of here."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..core import arrivals as core_arrivals
from ..core import deliveries, peers
from ..core.arrivals import Arrival, Verdict
from ..errors import Busy, Invalid, NotAllowed, PostroomError
from ..formats.federation import NOT_TRUSTED, federation_error, read_route, routed
from ..formats.map import ANNOUNCE, CONNECT, FIND, GATEWAY, MEET, PART, ROUTE, SOFTWARE, VERSION
from ..model.message import same_name
from ..model.names import fold
from ..policy.trust import check_way
from ..server.protocol import ROOM_FOR_MORE
from ..server.table import taken
from . import exposure as federation_exposure
from .connection import MapRefusal
from .methods import for_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..formats.federation import Envelope
    from ..model.names import Address
    from ..model.peer import Peer
    from ..policy.limits import Limits
    from ..server.executor import Executor
    from .connection import Line
    from .link import Link


LARGEST, TOGETHER = "largest", "together"  # in what one post room tells another
MOST_TOGETHER = 32  # letters in one call: as long as it takes to write them, nobody else writes


async def greet(line: Line, peer: Peer, here: str, exposure: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """What it says of itself. MapRefusal: it does not let us in, or is another."""
    shown = {"method": peer.auth, "credential": peer.token} if peer.token else {}
    welcome = await line.ask(
        CONNECT, protocolVersion=VERSION, participantType=GATEWAY, name=here, **({"auth": shown} if shown else {})
    )
    if "authRequired" in welcome and not welcome.get("sessionId"):
        raise MapRefusal(welcome.get("error") or _no("it does not know us by what we show"))
    proof = {"auth": {"method": peer.auth, "credentials": peer.token}} if peer.token else {}
    result = await line.ask(MEET, systemId=here, endpoint="", exposure=exposure, **of_ours(limits), **proof)
    if result.get("connected") is not True:
        raise MapRefusal(result.get("error") or _no("it does not connect"))
    named = result.get("systemId", peer.system)
    if not isinstance(named, str) or not same_name(named, peer.system):
        raise MapRefusal(_no(f"it is called {named!a} and not {peer.system!r}"))
    return result


def largest_of(limits: Limits) -> int:
    """Bytes of a frame that we read."""
    return limits.max_message_bytes + ROOM_FOR_MORE


def of_ours(limits: Limits) -> dict[str, Any]:
    """What one post room tells another of itself."""
    return {SOFTWARE: {"version": __version__, LARGEST: largest_of(limits), TOGETHER: MOST_TOGETHER}}


def knows_order(result: dict[str, Any]) -> bool:
    """Is it one of ours, and heeds `after`?"""
    return isinstance(result.get(SOFTWARE), dict)


def reads(result: dict[str, Any]) -> int | None:
    """How many bytes it reads in one frame; None: it does not say so."""
    return _number(result, LARGEST)


def takes(result: dict[str, Any]) -> int:
    """How many letters it takes in one call."""
    return min(_number(result, TOGETHER) or 1, MOST_TOGETHER)


def _number(result: dict[str, Any], name: str) -> int | None:
    params = result[SOFTWARE].get(name) if knows_order(result) else None
    return params if isinstance(params, int) and not isinstance(params, bool) and params > 0 else None


def _no(why: str) -> dict[str, Any]:
    return {"code": NOT_TRUSTED, "message": why}


# What a peer asks of us on a connection, whoever opened it: route, announce, find, connect, disconnect.
#
# Nothing is answered before it is safe. What a peer may is asked anew for each letter, so one that is distrusted
# is
# not heard any more.

log = logging.getLogger("postroom")
SELDOM = 0.5  # seconds between two times that it is noted who is there
MOST_HELD = 10_000  # letters of one connection that were refused for now, by which the order of others is kept


class Serving:
    """Of one connection of a peer that has proven who it is."""

    def __init__(self, executor: Executor, link: Link, here: str) -> None:
        self._executor = executor
        self._core = executor.room._core
        self._link = link
        self._here = here
        self._held: dict[tuple[str, str], None] = {}  # (letter, recipient), refused for now on this connection
        self._news: dict[str, Any] | None = None  # who is there, as it was told last and is not yet noted
        self._turn = asyncio.Lock()
        self.leave: Callable[[], object] = lambda: None  # ends the federation on this connection

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """As a line wants it: a `result`, or an `error`."""
        try:
            row = for_peer(method)
            return {"result": await self.call(row.name, taken(row, params))}
        except PostroomError as refused:
            return {"error": federation_error(refused)}

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Said without waiting for an answer."""
        try:
            row = for_peer(method)
            if row.name == ANNOUNCE:
                self._heard_news(taken(row, params))
            elif row.name == PART:
                self.leave()
        except PostroomError as wrong:
            log.info("the system %s says what is no message: %s", self._link.system, wrong)

    def _heard_news(self, params: dict[str, Any]) -> None:
        """Of what was told and is not yet noted only the last counts, however fast it is told."""
        is_noting, self._news = self._news is not None, params
        if not is_noting:
            loop = asyncio.get_running_loop()
            loop.call_later(max(0.0, self._link.noted + SELDOM - loop.time()), self._note_news)

    def _note_news(self) -> None:
        params, self._news = self._news, None
        self._link.noted = asyncio.get_running_loop().time()
        if params is not None:
            self._executor.submit(partial(self._announce, params), self)

    async def _time_for_news(self) -> None:
        """Who asks for it to be noted waits until it is time, one after the other."""
        loop = asyncio.get_running_loop()
        async with self._turn:
            await asyncio.sleep(max(0.0, self._link.noted + SELDOM - loop.time()))
            self._link.noted = loop.time()

    async def call(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """A method of the federation, its parameters checked. Routes are begun in the order of these calls."""
        run = {ROUTE: self._route, ANNOUNCE: self._announce, FIND: self._find, MEET: self._meet}.get(name)
        if name == PART:
            self.leave()
            return {"disconnected": True}
        if name == ANNOUNCE:
            await self._time_for_news()
        if run is None:
            raise NotAllowed(f"{name} is nothing that a peer may ask", field="method")
        try:
            is_heavy = "envelopes" in params
            result: dict[str, Any] = await self._executor.submit(partial(run, params), self, is_heavy=is_heavy)
        except BaseException as fault:
            if isinstance(fault, PostroomError) or not isinstance(fault, Exception):
                raise
            log.exception("a call of the system %s failed by a fault of ours", self._link.system)
            raise Busy("it failed here, and not by a fault of yours", field="method") from fault
        return result

    # -- at the desk

    def _peer(self) -> Peer:
        """As it is trusted now."""
        found = peers.peer(self._core, self._link.system)
        if found is None or not found.trusted:
            raise NotAllowed(f"the system {self._link.system!r} is not trusted here", field="auth")
        return found

    def _route(self, params: dict[str, Any]) -> dict[str, Any]:
        peer = self._peer()
        if "envelopes" not in params:
            return self._routed(peer, params)
        afters = params.get("afters") or []
        each = [{"envelope": one, "after": after} for one, after in zip_longest(params["envelopes"], afters)]
        if not 0 < len(each) <= MOST_TOGETHER:
            raise Invalid(f"must be at least one and at most {MOST_TOGETHER}", field="envelopes")
        return {"letters": self._routed_together(peer, each) or [self._told(peer, one) for one in each]}

    def _told(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        """Of one among several: what is wrong with it is its own affair."""
        try:
            return self._routed(peer, params)
        except PostroomError as refused:
            return {"error": federation_error(refused)}

    def _routed_together(self, peer: Peer, each: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
        """All of them at once, which is far less work; None: somebody does not get one, and nothing was done. Then
        each is looked at by itself.
        """
        try:
            read = [self._read(peer, params) for params in each]
        except PostroomError:
            return None
        if any(self._behind(one, params["after"]) for one, params in zip(read, each, strict=True)):
            return None
        if not self._accept_together(peer, [_arrival(one, one.targets) for one in read]):
            return None
        for one in read:
            self._remember(one, [Verdict(target) for target in one.targets])
        return [routed(one.message.id, ()) for one in read]

    def _read(self, peer: Peer, params: dict[str, Any]) -> Envelope:
        envelope = read_route(params, self._here, peer.system, self._core.now().wall)
        check_way(self._here, envelope.path, envelope.hops, envelope.most_hops, self._core.limits)
        return envelope

    def _routed(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        envelope = self._read(peer, params)
        behind = self._behind(envelope, params.get("after"))
        targets = tuple(target for target in envelope.targets if target.agent not in behind)
        verdicts = self._accept(peer, _arrival(envelope, targets)) if targets else []
        waits = Busy("an earlier letter of the same sender waits", field="after")
        verdicts += [Verdict(target=one, problem=waits) for one in envelope.targets if one.agent in behind]
        self._remember(envelope, verdicts)
        return routed(envelope.message.id, [(verdict.target.agent, verdict.problem) for verdict in verdicts])

    def _accept(self, peer: Peer, arrival: Arrival) -> list[Verdict]:
        return core_arrivals.accept(self._core, peer, arrival)

    def _accept_together(self, peer: Peer, arrivals: list[Arrival]) -> bool:
        return core_arrivals.accept_together(self._core, peer, arrivals)

    def _behind(self, envelope: Envelope, after: Any) -> set[str]:
        """Those whose earlier letter was refused for now."""
        if not self._held:
            return set()
        params = after if isinstance(after, dict) else {}
        marks = {one.agent: (str(params.get(one.agent)), fold(one.agent)) for one in envelope.targets}
        return {agent for agent, mark in marks.items() if mark in self._held}

    def _remember(self, envelope: Envelope, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            mark = (envelope.message.id, fold(verdict.target.agent))
            self._held.pop(mark, None)
            if verdict.problem is None:
                self._link.taken += 1
            elif verdict.problem.temporary:
                self._held[mark] = None
        while len(self._held) > MOST_HELD:
            del self._held[next(iter(self._held))]

    def turn_away(self, envelope: dict[str, Any], reason: str) -> None:
        """Its sender is told, by a letter, that it was refused: for a peer that tells its senders nothing."""
        try:
            peer = self._peer()
            params = read_route({"envelope": envelope}, self._here, peer.system, self._core.now().wall)
        except PostroomError:  # nobody is known who could be told
            return
        if params.source == peer.system:
            to = params.targets[0].agent
            deliveries.turn_away(self._core, params.message, to, f"{self._here}: {reason}")

    def _announce(self, params: dict[str, Any]) -> dict[str, Any]:
        if federation_exposure.note(self._core, self._peer().system, params.get("exposure")):
            self._link.has_news = True
        return {"announced": True}

    def _find(self, params: dict[str, Any]) -> dict[str, Any]:
        agent = federation_exposure.has(self._executor.room, self._peer(), params["agent"])
        if agent is None:
            return {"has": False}
        return {"has": True, "status": agent.presence.words.map, "agentId": agent.card.id}

    def _meet(self, params: dict[str, Any]) -> dict[str, Any]:
        """Said once more, or by one that we dialled."""
        return met(self._executor, self._peer(), self._here, params)


def _arrival(envelope: Envelope, targets: tuple[Address, ...]) -> Arrival:
    return Arrival(
        message=envelope.message,
        targets=targets,
        path=envelope.path,
        hops=envelope.hops,
        source=envelope.source,
    )


def met(executor: Executor, peer: Peer, here: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer to `map/federation/connect`, at the desk."""
    federation_exposure.note(executor.room._core, peer.system, params.get("exposure"))
    return {
        "connected": True,
        "systemId": here,
        "systemInfo": {"name": here, "version": __version__, "software": SOFTWARE},
        "exposure": federation_exposure.exposure(executor.room, peer),
        **of_ours(executor.room.settings),
    }
