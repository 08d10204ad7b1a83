"""The methods that systems call on each other: route, announce, find, connect, disconnect.

They are carried out on connections of peers that have proven who they are, and nowhere else. Also the handshake on
a connection that we open.

Nothing is confirmed before it is safe in our room. What a peer may do is checked again for each letter, so a peer
that is not trusted any more is refused at once.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from .. import __version__
from ..core import arrivals as core_arrivals
from ..core import deliveries, peers
from ..core.arrivals import TargetOutcome
from ..core.verb import from_params, set_parameters, verb
from ..errors import Busy, Invalid, NotAllowed, PostroomError
from ..formats.federation import NOT_TRUSTED, federation_error, read_route, routed
from ..formats.map import ANNOUNCE, CONNECT, FIND, GATEWAY, MEET, PART, ROUTE, SOFTWARE, VERSION, spellings
from ..model.message import same_name
from ..model.names import fold
from ..server.protocol import largest_frame
from ..server.requests import ForeignVerb, Schedule, SessionVerb
from . import exposure as federation_exposure
from .connection import MapRefusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.verb import V, Verb
    from ..model.peer import Envelope, Peer
    from ..policy.limits import Limits
    from ..server.executor import Executor
    from .connection import RpcConnection
    from .link import Link


LARGEST, TOGETHER = "largest", "together"  # fields of `software_info`
log = logging.getLogger("postroom")
MOST_TOGETHER = 32  # letters in one call: they are one commit, during which no other writer gets the lock


# -- the methods

FEDERATION: dict[str, type[Verb]] = {}
_SYSTEM = "the calling system"
_EXPOSURE = (
    "agents (agentId, status, scopes) that can be reached there by name alone; further (agentId, status, systemId)"
    " that can be reached through it"
)
_OBJECT = dict[str, Any]


def _federation(name: str, result: str) -> Callable[[V], V]:
    return verb(name, result, registry=FEDERATION, action="agents", strict=False)


class PeerVerb(ForeignVerb, kw_only=True):
    """A request of a system that is a peer; everybody else is refused."""

    def run(self, _core: Core, _principal: Principal) -> Any:
        text = "only a system that is a peer may say this"
        raise NotAllowed(text, field="auth", hint="map/federation/connect comes first, as a gateway")


@_federation(MEET, "connected, systemId, systemInfo, sessionId, exposure, postroom")
class Meet(SessionVerb, kw_only=True):
    """Connect as a peer system, with a proof; both sides announce their agents."""

    system_id: Annotated[str, _SYSTEM]
    endpoint: Annotated[str | None, "accepted and ignored"] = None
    auth: Annotated[_OBJECT | None, "method and credentials, where map/connect did not give them"] = None
    auth_context: Annotated[_OBJECT | None, "accepted and ignored"] = None
    exposure: Annotated[_OBJECT | None, _EXPOSURE] = None
    postroom: Annotated[
        _OBJECT | None,
        "version: it is a Postroom, and knows `after`; largest: bytes of a frame that it reads; together: letters"
        " that it takes in one call",
    ] = None

    def serve(self, session: Any) -> Any:
        return session.peer.connect(set_parameters(self))


@_federation(
    ROUTE,
    "routed, messageId; refused (agent, code, message, temporary): recipients that did not get it. Of several:"
    " letters, each with these or its error",
)
class DeliverEnvelope(PeerVerb, kw_only=True):
    """Deliver a letter to agents of this system, or of one behind it; answered once it is stored safely."""

    system_id: Annotated[str | None, "the system it is for"] = None
    envelope: Annotated[
        _OBJECT | None,
        "payload (a message) and federation (sourceSystem, targetSystem, hopCount, maxHops, path,"
        " originTimestamp)",
    ] = None
    envelopes: Annotated[
        list[Any] | None,
        "several letters, in their order; to a post room that says how many it takes `together`",
    ] = None
    afters: Annotated[list[Any] | None, "with `envelopes`: what `after` is for each"] = None
    message: Annotated[_OBJECT | None, "the message alone, directly from the peer"] = None
    payload: Annotated[_OBJECT | None, "like message"] = None
    max_hops: Annotated[int | None, "accepted and ignored: the envelope has it"] = None
    after: Annotated[
        _OBJECT | None,
        "by recipient, the id of an earlier letter on this connection that is not answered: where that is refused"
        " for now, this one is, too",
    ] = None


@_federation(ANNOUNCE, "announced")
class Announce(PeerVerb, kw_only=True):
    """Announce all agents that can be reached by name alone; also as a notification."""

    system_id: Annotated[str | None, _SYSTEM] = None
    exposure: Annotated[_OBJECT, _EXPOSURE]


@_federation(FIND, "has, status, agentId: the name as it is spelt there")
class Find(PeerVerb, kw_only=True):
    """Ask for an agent of this name that the caller may write to."""

    agent: Annotated[str, "its name"]


@_federation(PART, "disconnected")
class Depart(SessionVerb, kw_only=True):
    """End federation on this connection; also as a notification."""

    system_id: Annotated[str | None, _SYSTEM] = None
    reason: Annotated[str | None, "why; ignored"] = None

    def serve(self, session: Any) -> dict[str, Any]:
        session.peer.close()
        return {"disconnected": True}


SPELT: dict[str, type[Verb]] = {spelling: cls for name, cls in FEDERATION.items() for spelling in spellings(name)}


def for_peer(name: str) -> type[Verb]:
    """Return the verb that a peer calls by this name, in either spelling."""
    found = SPELT.get(name)
    if found is None:
        raise NotAllowed(f"{name[:200]} is nothing that a peer may ask", field="method")
    return found


# -- the handshake


async def handshake(
    rpc: RpcConnection, peer: Peer, here: str, exposure: dict[str, Any], limits: Limits
) -> dict[str, Any]:
    """Connect to a peer and return what it says of itself. MapRefusal: it refuses us, or has another name."""
    shown = {"method": peer.auth, "credential": peer.token} if peer.token else {}
    welcome = await rpc.call(
        CONNECT, protocolVersion=VERSION, participantType=GATEWAY, name=here, **({"auth": shown} if shown else {})
    )
    if "authRequired" in welcome and not welcome.get("sessionId"):
        raise MapRefusal(welcome.get("error") or _no("it does not know us by what we show"))
    proof = {"auth": {"method": peer.auth, "credentials": peer.token}} if peer.token else {}
    result = await rpc.call(MEET, systemId=here, endpoint="", exposure=exposure, **software_info(limits), **proof)
    if result.get("connected") is not True:
        raise MapRefusal(result.get("error") or _no("it does not connect"))
    named = result.get("systemId", peer.system)
    # Mail for this peer must not go to a system of another name.
    if not isinstance(named, str) or not same_name(named, peer.system):
        raise MapRefusal(_no(f"it is called {named!a} and not {peer.system!r}"))
    return result


def software_info(limits: Limits) -> dict[str, Any]:
    """Return the version and limits that one Postroom reports to another in the handshake."""
    return {SOFTWARE: {"version": __version__, LARGEST: largest_frame(limits), TOGETHER: MOST_TOGETHER}}


def abilities(result: dict[str, Any]) -> dict[str, Any]:
    """Return what a peer can do by what it reports in the handshake, as arguments of a PeerConnection."""
    info = result.get(SOFTWARE)
    if not isinstance(info, dict):
        return {"in_order": False}  # no Postroom
    numbers = {name: info[name] for name in (LARGEST, TOGETHER) if type(info.get(name)) is int and info[name] > 0}
    together = min(numbers.get(TOGETHER, 1), MOST_TOGETHER)
    return {"in_order": True, LARGEST: numbers.get(LARGEST), TOGETHER: together}


def _no(why: str) -> dict[str, Any]:
    return {"code": NOT_TRUSTED, "message": why}


# -- calls of a peer

MOST_HELD = 10_000  # letters of one connection that were refused for now; their successors are, too


class PeerHandler:
    """The handler of the calls on one connection of a peer that has proven who it is."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._held: dict[tuple[str, str], None] = {}  # (letter, recipient), refused for now on this connection
        self._announced: dict[str, Any] | None = None  # by the last notification, and not yet recorded
        self._noting: asyncio.Future[None] | None = None
        self.leave: Callable[[], object] = lambda: None  # ends the federation on this connection
        self.rpc: RpcConnection | None = None  # our calls to a peer that has connected to us

    @property
    def peer(self) -> Peer:
        """The peer as it was when the link was made."""
        return self._link.peer

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Carry out a call and return a `result` or an `error`, as RpcConnection wants it."""
        try:
            cls = for_peer(method)
            return {"result": await self.call(cls.declaration().name, set_parameters(from_params(cls, params)))}
        except PostroomError as refused:
            return {"error": federation_error(refused)}

    def notified(self, method: str, params: Mapping[str, Any]) -> None:
        """Carry out a notification."""
        try:
            cls = for_peer(method)
            name = cls.declaration().name
            if name == ANNOUNCE:
                self._announced = set_parameters(from_params(cls, params))
                if self._noting is None or self._noting.done():
                    self._noting = asyncio.ensure_future(self._note_announcements())
            elif name == PART:
                self.leave()
        except PostroomError as wrong:
            log.info("the system %s sent a malformed notification: %s", self._link.system, wrong)

    async def _note_announcements(self) -> None:
        """Record what was announced by notifications. Of those that come during a commit only the last counts."""
        while self._announced is not None:
            params, self._announced = self._announced, None
            try:
                await self._submit(partial(self._announce, params))
            except PostroomError as wrong:
                log.info("what the system %s announced was not recorded: %s", self._link.system, wrong)

    async def call(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """Carry out a method whose parameters were checked. Routes are begun in the order of these calls."""
        run = {ROUTE: self._route, ANNOUNCE: self._announce, FIND: self._find, MEET: self._meet}.get(name)
        if name == PART:
            self.leave()
            return {"disconnected": True}
        if run is None:
            raise NotAllowed(f"{name} is nothing that a peer may ask", field="method")
        # Many letters make one long commit. On a thread of their own, single letters pass between two of them.
        kind = Schedule.LARGE if "envelopes" in params else Schedule.WRITE
        return await self._submit(partial(run, params), kind)

    async def accept(self, envelope: Envelope) -> dict[str, Any]:
        """Carry out a letter that did not come by a call of federation, but as agent-inbox sends it."""
        return await self._submit(lambda: self._accept_envelope(self._peer(), envelope, None))

    async def _submit(self, run: Callable[[], dict[str, Any]], kind: Schedule = Schedule.WRITE) -> dict[str, Any]:
        try:
            result: dict[str, Any] = await self._link.executor.submit(run, self, kind)
        except PostroomError:
            raise
        except Exception as fault:  # an error of ours must not look final to the peer: it tries again
            log.exception("a call of the system %s failed because of an internal error", self._link.system)
            raise Busy("internal error on this side; try again", field="method") from fault
        return result

    # -- on the executor's threads

    def _peer(self) -> Peer:
        """Return the peer as it is trusted now."""
        # Read again at every call: trust may end while a connection is open.
        found = peers.peer(self._link.core, self._link.system)
        if found is None or not found.trusted:
            raise NotAllowed(f"the system {self._link.system!r} is not trusted here", field="auth")
        return found

    def _route(self, params: dict[str, Any]) -> dict[str, Any]:
        peer = self._peer()
        if "envelopes" not in params:
            return self._accept_route(peer, params)
        afters = params.get("afters") or []
        each = [{"envelope": one, "after": after} for one, after in zip_longest(params["envelopes"], afters)]
        if not 0 < len(each) <= MOST_TOGETHER:
            raise Invalid(f"must be at least one and at most {MOST_TOGETHER}", field="envelopes")
        return {"letters": [self._route_one(peer, one) for one in each]}

    def _route_one(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        """Route one letter of several; its error is part of the result."""
        try:
            return self._accept_route(peer, params)
        except PostroomError as refused:
            return {"error": federation_error(refused)}

    def _accept_route(self, peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
        envelope = read_route(params, self._link.here, peer.system, self._link.core.now().wall)
        return self._accept_envelope(peer, envelope, params.get("after"))

    def _accept_envelope(self, peer: Peer, envelope: Envelope, after: Any) -> dict[str, Any]:
        behind = self._held_back(envelope, after)
        targets = tuple(target for target in envelope.targets if target.agent not in behind)
        verdicts = self._accept(peer, replace(envelope, targets=targets)) if targets else []
        waits = Busy("an earlier letter of the same sender waits", field="after")
        verdicts += [TargetOutcome(target=one, problem=waits) for one in envelope.targets if one.agent in behind]
        self._remember(envelope, verdicts)
        return routed(envelope.message.id, [(verdict.target.agent, verdict.problem) for verdict in verdicts])

    def _accept(self, peer: Peer, envelope: Envelope) -> list[TargetOutcome]:
        return core_arrivals.accept(self._link.core, peer, envelope)

    def _held_back(self, envelope: Envelope, after: Any) -> set[str]:
        """Return the recipients whose earlier letter was refused for now."""
        if not self._held:
            return set()
        params = after if isinstance(after, dict) else {}
        marks = {one.agent: (str(params.get(one.agent)), fold(one.agent)) for one in envelope.targets}
        return {agent for agent, mark in marks.items() if mark in self._held}

    def _remember(self, envelope: Envelope, verdicts: list[TargetOutcome]) -> None:
        for verdict in verdicts:
            mark = (envelope.message.id, fold(verdict.target.agent))
            # The letter itself has come again: whatever became of it, it holds nobody back by its old mark.
            self._held.pop(mark, None)
            if verdict.problem is None:
                self._link.taken += 1
            # It comes again, so what follows it waits (G7). After a final refusal the next letters may go.
            elif verdict.problem.temporary:
                self._held[mark] = None
        # What is forgotten here may be overtaken (G7), and is never lost.
        while len(self._held) > MOST_HELD:
            del self._held[next(iter(self._held))]

    def turn_away(self, envelope: Envelope, reason: str) -> None:
        """Send a bounce to the sender of a refused letter, for a peer that sends no bounces itself."""
        try:
            peer = self._peer()
        except PostroomError:
            return
        # Only to a sender at the peer itself: any other name may be forged, and would get mail it did not cause.
        if envelope.source == peer.system:
            to = envelope.targets[0].agent
            deliveries.bounce_remote(self._link.core, envelope.message, to, f"{self._link.here}: {reason}")

    def _announce(self, params: dict[str, Any]) -> dict[str, Any]:
        if federation_exposure.note(self._link.core, self._peer().system, params.get("exposure")):
            self._link.has_news = True
        return {"announced": True}

    def _find(self, params: dict[str, Any]) -> dict[str, Any]:
        agent = federation_exposure.has(self._link.core, self._peer(), params["agent"])
        if agent is None:
            return {"has": False}
        return {"has": True, "status": agent.presence.words.map, "agentId": agent.card.id}

    def _meet(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answer `map/federation/connect` that comes once more, or from a peer that we dialled."""
        return connect_answer(self._link.executor, self._peer(), self._link.here, params)


def connect_answer(executor: Executor, peer: Peer, here: str, params: dict[str, Any]) -> dict[str, Any]:
    """Record what a peer announces, and return the answer to `map/federation/connect`."""
    federation_exposure.note(executor.core, peer.system, params.get("exposure"))
    return {
        "connected": True,
        "systemId": here,
        "systemInfo": {"name": here, "version": __version__, "software": SOFTWARE},
        "exposure": federation_exposure.exposure(executor.core, peer),
        **software_info(executor.core.limits),
    }
