"""Who a connection is, and how it is let in: connect, authenticate, refresh; and what it is remembered by."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from ..core import peers as core_peers
from ..core.authorize import Principal
from ..errors import IllegalMove, Invalid, NotAllowed, PostroomError, QuotaFull
from ..federation.connection import LineLost
from ..federation.dialler import InboxLine
from ..formats.federation import envelope_said
from ..formats.inbox import milliseconds
from ..formats.map import (
    AUTHENTICATE,
    DISCONNECT,
    FEDERATION,
    FIRST_STATE,
    GATEWAY,
    MEET,
    PARTICIPANTS,
    PING,
    REFRESH,
    REGISTER,
    ROUTE,
    SEND,
    SOFTWARE,
    SPAWN,
    STOPPED,
    SUSPENDED,
    UNREGISTER,
    VERSION,
    cleaned,
    dotted,
    map_error,
    number_of,
    request,
)
from ..model.message import same_name
from ..server.broker import MAILBOX
from ..server.callers import Caller
from ..server.executor import JobFuture
from ..server.protocol import PREFIX, Request
from .access import METHODS, NONE, acting_as, agent_id, child_id, known, shown
from .agents import IS_HERE
from .delivery import AgentDelivery
from .session import Answer, Later, Session, Step, is_answer, read_text, unsound
from .table import MAP

if TYPE_CHECKING:
    from ..core.core import Core
    from ..federation.exchange import Exchange, Visit
    from ..model.peer import Peer
    from ..model.query import Found
    from ..room import Room
    from .server import MapServer


MOST_TRIES = 5  # proofs that were none
POLICY = 1008
_AUTH_CODES = {1005: "method_not_supported", 1006: "invalid_credentials"}


class Rim(Protocol):
    """Who carries bytes for a connection."""

    def push(self, notice: dict[str, Any]) -> bool:
        """Say something unasked. False: not now; `Talk.resume` is called when there is room."""

    def end(self, code: int, reason: str = "", *, at_once: bool) -> None:
        """End the connection: after what is owed was said, or at once."""


class Proving(ABC):
    """The part of a connection that knows whose it is."""

    def __init__(self, map_server: MapServer, rim: Rim, session: Session, principal: Principal | None) -> None:
        self._map_server = map_server
        self._rim = rim
        self.session = session
        self._core: Core = map_server.executor.room._core
        self._principal = principal
        self._caller: Caller | None = None  # for what no agent of it says
        self._participant = session.id
        self._acks = False  # will it say itself what it has received?
        self._resume_token = ""
        self._is_gateway = False  # does it say that it is another system?
        self._is_anonymous = False  # was it let in without any proof?
        self._tries = 0
        self._ending = 0  # with which code it is ended, once its last answer is said

    @property
    def principal(self) -> Principal:
        if self._principal is None:
            raise NotAllowed("Authentication required", field="auth")
        return self._principal

    # -- verbs

    async def connect(self, params: dict[str, Any]) -> dict[str, Any]:
        _check_first_word(params)
        delivery = params.get("capabilities", {}).get("delivery")
        self._acks = isinstance(delivery, dict) and delivery.get("acks") is True
        method = "bearer"  # in the header, where it was known before
        self._is_gateway = params["participant_type"] == GATEWAY
        if self._principal is None and self._is_peer(params.get("name"), params.get("auth") or {}):
            method = str((params.get("auth") or {}).get("method", NONE))
        elif self._principal is not None:
            self._check_agrees(params.get("auth") or {})
        else:
            auth = params.get("auth") or ({"method": NONE} if self._map_server.is_open else None)
            if auth is None:
                return self._challenge()
            method = str(auth.get("method"))
            try:
                self._prove(auth)
            except NotAllowed as refused:
                return self._challenge() | {"error": _auth_error(refused)}
        self._admit(params.get("name"))
        return self._welcome(await self._come_back(params.get("resume_token")), method)

    def authenticate(self, params: dict[str, Any]) -> dict[str, Any]:
        """Once it is let in, whom it speaks for stays as it is."""
        if self.session.is_in:
            raise IllegalMove("this connection is authenticated already", field="session", hint="map/auth/refresh")
        try:
            principal = self._prove(params)
        except NotAllowed as refused:
            return {"success": False, "error": _auth_error(refused)}
        self._admit(None)
        return {
            "success": True,
            "sessionId": self.session.id,
            "participantId": self._participant,
            "principal": shown(principal, params["method"]),
        }

    def refresh(self, params: dict[str, Any]) -> dict[str, Any]:
        """A token of the same agent, or an operator's in the place of an operator's."""
        try:
            self._principal = self._same(known(self._core, params, is_open=self._map_server.is_open))
        except NotAllowed as refused:
            self._fail_once()
            return {"success": False, "error": _auth_error(refused)}
        self._know_callers()
        return {"success": True, "principal": shown(self._principal, params["method"])}

    # -- being let in

    def _challenge(self) -> dict[str, Any]:
        self.session.step("challenge")
        methods = [*METHODS, *([NONE] if self._map_server.is_open else [])]
        return {
            "protocolVersion": VERSION,
            "systemInfo": self._system(),
            "authRequired": {"methods": methods, "required": True, "realm": self._map_server.system},
        }

    def _prove(self, params: dict[str, Any]) -> Principal:
        try:
            self._principal = known(self._core, params, is_open=self._map_server.is_open)
        except NotAllowed as refused:
            self.session.refused = refused.message  # many programs pass over the answer, and read the next one
            self._fail_once()
            raise
        self._is_anonymous = self._principal.heeds_seals
        return self._principal

    def _same(self, principal: Principal) -> Principal:
        if (principal.agent, principal.operator) != (self.principal.agent, self.principal.operator):
            raise NotAllowed("this token is somebody else's", field="token")
        return principal

    def _check_agrees(self, auth: dict[str, Any]) -> None:
        """It was known before, by its header: what it says now must not be somebody else's token."""
        if auth.get("method", NONE) == NONE:
            return
        try:
            self._same(known(self._core, auth, is_open=self._map_server.is_open))
        except NotAllowed:
            self._fail_once()
            raise

    def _fail_once(self) -> None:
        self._tries += 1
        if self._tries >= MOST_TRIES:
            self._map_server.complaints.of_end(f"it showed {MOST_TRIES} credentials that are none")
            self._ending = POLICY

    def _admit(self, name: Any) -> None:
        self.session.step("admit")
        self._participant = self.principal.agent or cleaned(name or "") or self.session.id
        executor, broker = self._map_server.executor, self._map_server.broker
        self._caller = Caller(executor, broker, push=self._rim.push, expel=self.expel, principal=self.principal)

    def _know_callers(self) -> None:
        """It has shown another token."""
        if self._caller is not None:
            self._caller.become(self.principal)

    def _caller_for(self, agent: str) -> Caller:
        principal = acting_as(self.principal, agent)
        return Caller(self._map_server.executor, self._map_server.broker, push=self._rim.push, principal=principal)

    def expel(self, why: str = "token revoked") -> None:
        proven = self._principal if self._principal is not None and self._principal.token is not None else None
        self._map_server.complaints.of_end(why, None if proven is None else proven.agent)
        self._rim.end(POLICY, why, at_once=True)

    # -- what it is told

    def _system(self) -> dict[str, str]:
        return {"name": self._map_server.system, "version": self._map_server.version, "software": SOFTWARE}

    def _welcome(self, back: list[dict[str, Any]], method: str) -> dict[str, Any]:
        return {
            "protocolVersion": VERSION,
            "sessionId": self.session.id,
            "participantId": self._participant,
            "capabilities": {
                "observation": {"canObserve": True, "canQuery": True},
                "messaging": {"canSend": True, "canReceive": True, "canBroadcast": True},
                "mail": {"enabled": True},
                "delivery": {"acks": self._acks},
            },
            "systemInfo": self._system(),
            "reconnected": bool(back),
            "ownedAgents": list(self.session.agents),
            "reclaimedAgents": back,
            "resumeToken": self._remembered(),
            "principal": shown(self.principal, method),
        }

    # -- coming back

    def _remembered(self) -> str:
        """What to show when it comes back; its agents are those it has by then."""
        self._resume_token = self._resume_token or self._core.ids.token() + self._core.ids.token()
        self._map_server.remember(self._resume_token, self.principal, self.session.agents)
        return self._resume_token

    @abstractmethod
    def _is_peer(self, name: Any, auth: dict[str, Any]) -> bool:
        """Is it a system that we trust? Then it is known from now on."""

    @abstractmethod
    async def _come_back(self, token: Any) -> list[dict[str, Any]]:
        """The agents that an earlier connection had, as far as they can be had again."""


def _check_first_word(params: dict[str, Any]) -> None:
    version = params.get("protocol_version")
    if isinstance(version, bool) or version not in (VERSION, str(VERSION)):
        text = f"this server speaks version {VERSION} of MAP"
        raise Invalid(text, field="protocolVersion", hint=f"say protocolVersion: {VERSION}")
    if params["participant_type"] not in PARTICIPANTS:
        raise Invalid("is no type", field="participantType", hint=", ".join(PARTICIPANTS))


def _auth_error(refused: NotAllowed) -> dict[str, Any]:
    return {"code": _AUTH_CODES.get(number_of(refused), "auth_required"), "message": str(refused)}


# The agents of a connection: they come, go, and are handed their mail.

log = logging.getLogger("postroom")
_SIGN = "sign-"  # so begin the ids of our questions
PAUSED = (SUSPENDED, STOPPED)  # who says so is handed no mail


class Crew(Proving):
    """The part of a connection that has agents."""

    def __init__(self, map_server: MapServer, rim: Rim, session: Session, principal: Principal | None) -> None:
        super().__init__(map_server, rim, session, principal)
        self._callers: dict[str, Caller] = {}  # by agent
        self._handing: dict[str, AgentDelivery] = {}
        self._returning: frozenset[str] = frozenset()  # agents that it gets back
        self.sent_count = 0  # messages handed to the rim
        self.signed = 0  # up to here it was asked
        self.answers = False  # has it ever answered?

    def room_of(self, agent: str) -> Room:
        return self._callers[agent].room

    def _know_callers(self) -> None:
        super()._know_callers()
        for agent, caller in self._callers.items():
            caller.become(acting_as(self.principal, agent))

    # -- coming

    async def _come_back(self, token: Any) -> list[dict[str, Any]]:
        left = self._map_server.recall(token, self.principal) if isinstance(token, str) else ()
        self._returning = frozenset(left)
        back = []
        for agent in left:
            try:
                back.append((await self._taken(REGISTER, agent, {}))["agent"])
            except PostroomError as refused:
                log.info("%s does not come back with its connection: %s", agent, refused)
        self._returning = frozenset(one["id"] for one in back)
        return back

    async def _register(self, params: dict[str, Any]) -> dict[str, Any]:
        wanted = params.get("agent_id")
        name = wanted if wanted in self._returning else agent_id(self._core, self.principal, params)
        return await self._taken(REGISTER, name, params)

    async def _spawn(self, params: dict[str, Any]) -> dict[str, Any]:
        parent = params["parent"]
        if parent not in self.session.agents:
            raise NotAllowed(f"{parent[:128]!a} is no agent of this connection", field="parent")
        name = child_id(self._core, self.principal, parent, params)
        result = await self._taken(SPAWN, name, params)
        if params.get("initial_message") is not None:
            result |= await self._first_message(parent, name, params["initial_message"])
        return result

    async def _first_message(self, parent: str, child: str, first: Any) -> dict[str, Any]:
        result = first if isinstance(first, dict) and "payload" in first else {"payload": first}
        message = {word: result[word] for word in ("payload", "meta") if word in result}
        step = self.session.hear(request(0, SEND, to={"agent": child}, **{"from": parent}, **message))
        if isinstance(step, Step):
            reply = await self._callers[parent].carry_out(Request([step]))
        else:  # a meta that is none
            reply = step
        return {"messageId": reply["result"]["messageId"]} if "result" in reply else {"error": reply["error"]}

    async def _taken(self, method: str, name: str, params: dict[str, Any]) -> dict[str, Any]:
        """An agent comes to this connection: its card is written, then its mail is handed over."""
        if self._is_anonymous and name not in self._returning:
            self._map_server.check_given_up(name)
        self._map_server.reserve(name, self, is_proven=self._proves(name))
        was_here = name in self.session.agents
        words = {**params, "agent_id": name, "owner": self._participant, IS_HERE: was_here}
        try:
            if not was_here:
                self.session.take(name)
                self._callers[name] = self._caller_for(name)
            result: dict[str, Any] = await self._callers[name].call_row(MAP[method], words)
        except PostroomError:
            if not was_here:
                self._forget(name)
            raise
        if name not in self.session.agents:  # another connection took it meanwhile, or this one has ended
            raise NotAllowed(f"{name!r} is not on this connection any more", field="agent_id")
        if (
            self._map_server.on(name) is None
        ):  # the connection that had it ended meanwhile, and said that it is away
            self._map_server.quietly(self.room_of(name).mailbox(name).heartbeat)
        self._map_server.take(name, self)
        self._remembered()
        self._hand_over(name, result["agent"]["state"])
        self._map_server.telling.of_call(method, words, result)
        return result

    def _proves(self, name: str) -> bool:
        """Is it the same agent as another connection has? It resumes it, or shows its own token; of a child,
        the token that the other connection has shown, too.
        """
        if name in self._returning or self.principal.agent == name:
            return True
        holder = self._map_server.on(name)
        mine = self.principal.agent
        return holder is not None and mine is not None and holder.principal.agent == mine

    # -- going

    def lose(self, agent: str) -> None:
        """Another connection proved that it is the same agent: this one is ended, if it has no other."""
        self._forget(agent)
        if not self.session.agents:
            self.expel("replaced by another connection")

    def drop(self, agent: str) -> None:
        """It was unregistered."""
        self._forget(agent)
        self._remembered()

    def _forget(self, agent: str) -> None:
        handing = self._handing.pop(agent, None)
        if handing is not None:
            handing.close()
        caller = self._callers.pop(agent, None)
        if caller is not None:
            caller.close()
        self._map_server.release(agent, self)
        self.session.drop(agent)

    def _leave(self) -> None:
        """All of them are away."""
        for agent in list(self.session.agents):
            if self._map_server.on(agent) is self:  # and not only on its way here from another
                self._map_server.went(agent, self.room_of(agent))
            self._forget(agent)

    # -- their mail

    def _hand_over(self, agent: str, state: str) -> None:
        if agent not in self._handing:
            room, result = partial(self.room_of, agent), partial(self._received, agent)
            self._handing[agent] = AgentDelivery(
                self._map_server.executor, room, agent, partial(self._hand, agent), result
            )
        self.pause(agent, state)

    def pause(self, agent: str, state: str) -> None:
        """It said how it is, or somebody said it of it. Before it is handed mail nothing is to be paused."""
        if agent in self._handing:
            self._handing[agent].pause(is_paused=state in PAUSED)

    def _hand(self, agent: str, notice: dict[str, Any]) -> int:
        """Behind each goes a question of its own: who is cut in the middle of many has received the first. Where
        there are several agents, what is for all of a scope comes for each: so it says for whom.
        """
        if len(self.session.agents) > 1:
            notice["params"]["message"]["_meta"] = {"postroom": {"for": agent}}
        if not self._rim.push(notice):
            return 0
        self.sent_count += 1
        question = self.sign(self.sent_count)
        if question is not None and self._rim.push(question):
            self.signed = self.sent_count
        return self.sent_count

    def _received(self, agent: str, found: Found) -> None:
        self._map_server.telling.delivered(found.message, agent)

    def sign(self, number: int) -> dict[str, Any] | None:
        """A question that goes behind what was said up to this number: who answers it has read that. None: it
        gives receipts itself.
        """
        return None if self._acks else request(f"{_SIGN}{number}", PING)

    def _hear_answer(self, id: Any) -> None:
        digits = id.removeprefix(_SIGN) if isinstance(id, str) and id.startswith(_SIGN) else ""
        if digits.isascii() and digits.isdecimal() and len(digits) <= 18:
            self.answers = True
            self.received_up_to(int(digits))

    def received_up_to(self, number: int) -> None:
        """What was said up to here has arrived: a receipt, unless it gives receipts itself."""
        if not self._acks:
            for handing in list(self._handing.values()):
                handing.received_up_to(number)

    def message_ack(self, params: dict[str, Any]) -> dict[str, Any]:
        ids = params["message_ids"]
        return {"success": True, "acked": [id for one in self._handing.values() for id in one.received(ids)]}


# The connection of another system: it proves that it is a peer, and then letters go both ways on it.
#
# A peer may say what systems say to each other, and nothing else: it reads no directory and registers no agents.

_MAY_SAY = FEDERATION | {AUTHENTICATE, REFRESH, DISCONNECT}
MOST_OF_A_NAME = 100  # characters of it in the log
LONGEST = 500  # characters of a system's name that is looked for


class Gateway(Crew):
    """The part of a connection that may be a peer's. `certificate`: the fingerprint of what its TLS showed;
    `is_near`: is it on this machine?
    """

    def __init__(
        self,
        map_server: MapServer,
        rim: Rim,
        session: Session,
        principal: Principal | None,
        certificate: str = "",
        *,
        is_near: bool = False,
    ) -> None:
        super().__init__(map_server, rim, session, principal)
        self._certificate = certificate
        self._is_near = is_near
        self._peer: Peer | None = None
        self._visit: Visit | None = None
        self._called = ""  # what it says that its system is called
        self._has_parted = False  # has its visit ended?
        self._is_dotted = False  # does it spell names as agentic-mesh does? Then so do we
        self._has_room = asyncio.Event()  # may be there for what it is told
        self._turn = asyncio.Lock()  # what is told keeps its order

    # -- who it is

    def _is_peer(self, name: Any, auth: dict[str, Any]) -> bool:
        """By what it says with `map/connect`: its system's name, or a token that only one peer has."""
        if self._map_server.exchange is None or not self._is_gateway:
            return False
        self._called = name if isinstance(name, str) else ""
        peers = core_peers.all_peers(self._core).values()
        named = [one for one in peers if isinstance(name, str) and same_name(one.system, name)]
        for one in named or [one for one in peers if one.auth in {"bearer", "api-key"}]:
            try:
                self._become(self._proven(one.system, auth, self._certificate if named else ""))
            except NotAllowed as refused:
                if refused.field == "certificate":
                    log.warning("a connection of %s is refused: %s", one.system, refused)
                continue
            return True
        return False

    def _prove(self, params: dict[str, Any]) -> Principal:
        try:
            return super()._prove(params)
        except NotAllowed:
            if self._is_gateway:
                self._complain_of(self._called)
            raise

    def _complain_of(self, name: str, why: str = "") -> None:
        """The caller is told little; who looks after this room is told what to mend."""
        found = core_peers.peer(self._core, name[:LONGEST])
        if found is None:
            why = why or "no peer here is called so (postroom peers add)"
        elif not found.trusted:
            why = why or f"it is not trusted (postroom peers trust {found.system})"
        result = why or "it did not prove that it is that peer: another token or certificate than was agreed"
        known = None if found is None else found.system
        self._map_server.complaints.of_system(name[:MOST_OF_A_NAME], result, known)

    def _become(self, peer: Peer) -> None:
        self._peer = peer
        if not self.session.is_in:
            self._principal = Principal(f"peer:{peer.system}", scopes=frozenset())

    def _proven(self, system: str, auth: dict[str, Any], certificate: str) -> Peer:
        credential = next((auth[word] for word in ("credential", "credentials", "token") if auth.get(word)), None)
        peer = core_peers.proven_peer(self._core, system, credential, certificate=certificate)
        if peer.auth == "none" and not self._is_near:
            text = f"{peer.system!r} shows no token, and is not on this machine"
            raise NotAllowed(text, field="auth", hint=f"postroom peers add {peer.system} --auth bearer")
        return peer

    # -- verbs

    async def federation_connect(self, params: dict[str, Any]) -> dict[str, Any]:
        exchange = self._exchange()
        try:
            peer = self._meant(params)
        except NotAllowed as refused:
            self._fail_once()
            self._complain_of(params["system_id"], refused.message if self._peer is not None else "")
            raise
        self._become(peer)
        if not self.session.is_in:
            self._admit(peer.system)
        self._part()
        self._has_parted = False
        result, visit = await exchange.welcome(peer, params, self._tell, self._end_link)
        if self._has_parted:  # it was cut meanwhile
            visit.close()
        else:
            self._visit = visit
        return result | {"sessionId": self.session.id}

    def federation_disconnect(self, _said: dict[str, Any]) -> dict[str, Any]:
        self._part()
        return {"disconnected": True}

    def _exchange(self) -> Exchange:
        if self._map_server.exchange is None:
            raise NotAllowed("this post room speaks with no other", field="auth")
        if self.session.is_in and not self._is_gateway:
            raise NotAllowed("only a gateway speaks for a system", field="auth", hint="participantType: gateway")
        return self._map_server.exchange

    def _meant(self, params: dict[str, Any]) -> Peer:
        system, auth = params["system_id"][:LONGEST], params.get("auth") or {}
        if self._peer is None:
            return self._proven(system, auth, self._certificate)
        names = (self._peer.system, self._map_server.system)  # gateways of the SDK name whom they call
        if not any(same_name(system, name) for name in names):
            text = f"this connection is {self._peer.system!r}'s and not {system!a}'s"
            raise NotAllowed(text, field="systemId", hint="each system shows a token of its own")
        return self._still_trusted(self._peer)

    def _still_trusted(self, proven: Peer) -> Peer:
        """As it is now: it may have been removed, or be asked for another proof, since it has shown one."""
        peer = core_peers.peer(self._core, proven.system)
        if peer is None or not peer.trusted or _proof_of(peer) != _proof_of(proven):
            raise NotAllowed(f"the system {proven.system!r} has to prove anew that it is a peer", field="auth")
        return peer

    def _end_link(self) -> None:
        self.expel("the link has ended")

    # -- what it says

    def _check_peer(self, step: Step) -> None:
        if step.method.name == MEET:
            self._is_dotted = step.call.method != MEET
        if self._peer is not None and step.method.name not in _MAY_SAY:
            raise NotAllowed(f"a system may not say {step.method.name}", field="method")

    def _is_between_systems(self, step: Step) -> bool:
        return step.method.name in FEDERATION

    def _federated(self, step: Step) -> JobFuture:
        return JobFuture.of(asyncio.ensure_future(self._answered_there(step)))

    async def _answered_there(self, step: Step) -> dict[str, Any] | None:
        try:
            if self._visit is None:
                hint = "map/federation/connect comes first, as a gateway"
                raise NotAllowed("only a system that is a peer may say this", field="auth", hint=hint)
            return step.answer(await self._told_there(self._visit, step)) or None
        except PostroomError as refused:
            return step.refuse(refused) or None

    async def _told_there(self, visit: Visit, step: Step) -> dict[str, Any]:
        return await visit.serving.call(step.method.name, step.params)

    def _hear_peer(self, answer: Answer) -> None:
        if self._visit is not None:
            params = {"result": answer.result, "error": answer.error}
            self._visit.end.line.answered(answer.id, params)

    # -- what it is told

    async def _tell(self, params: dict[str, Any]) -> None:
        if self._is_dotted and "method" in params:
            params = {**params, "method": dotted(params["method"])}
        async with self._turn:
            while not self._rim.push(params):
                if self._has_parted:
                    raise LineLost("the connection was cut")
                self._has_room.clear()
                await self._has_room.wait()

    def _part(self) -> None:
        self._has_parted = True
        visit, self._visit = self._visit, None
        if visit is not None:
            visit.close()
        self._has_room.set()


def _proof_of(peer: Peer) -> tuple[str, ...]:
    return peer.auth, peer.proof, peer.former_proof, peer.pin


# A system that comes as an agent does, and shows nothing: agent-inbox. It is one of the peers that were added so
# (`postroom peers add SYSTEM --auth none`), on this machine, and registers under its system's name as a gateway.
# Then what it sends is mail of that system's agents, and mail for them is handed to it. Anybody else who
# registers
# as a gateway is an agent like others.

_SAYS = frozenset({SEND, UNREGISTER})  # as a gateway, beside what every system may


class Neighbour(Gateway):
    """The part of a connection that may be agent-inbox's."""

    # -- who it is

    def _is_peer(self, name: Any, auth: dict[str, Any]) -> bool:
        if super()._is_peer(name, auth):
            return True
        if self._map_server.is_open or auth.get("method", NONE) != NONE:
            return False  # it is let in, or not, as everybody else is
        peer = self._neighbour(name)
        if peer is not None:
            self._become(peer)
        return peer is not None

    def _neighbour(self, name: Any) -> Peer | None:
        """The peer of this name, if it need not prove that it is one."""
        if self._map_server.exchange is None or self._is_gateway or not isinstance(name, str):
            return None
        try:
            return self._proven(name[:LONGEST], {}, "")
        except NotAllowed:  # it has to, or is not trusted, or not on this machine
            return None

    @property
    def _comes_as_agent(self) -> bool:
        return self._peer is not None and not self._is_gateway

    async def _register(self, params: dict[str, Any]) -> dict[str, Any]:
        is_free = self.principal.heeds_seals or self._comes_as_agent  # it has shown no token
        is_gateway = params.get("role") == GATEWAY and is_free and not self.session.agents
        peer = self._neighbour(params.get("name")) if is_gateway else None
        if self._comes_as_agent and peer is None:
            text = "a system without a token registers itself, as a gateway, and nobody else"
            raise NotAllowed(text, field="role", hint="role: gateway, under the name of the system")
        if peer is None or self._map_server.exchange is None:
            return await super()._register(params)
        self._become(peer)
        self._part()
        _, visit = await self._map_server.exchange.welcome(peer, {}, self._tell, self._end_link, InboxLine)
        self._visit = visit
        return {"agent": _shown(peer, params)}

    # -- what it says

    def _check_peer(self, step: Step) -> None:
        if not (self._comes_as_agent and step.method.name in _SAYS | {REGISTER}):
            super()._check_peer(step)

    def _is_between_systems(self, step: Step) -> bool:
        return super()._is_between_systems(step) or (self._comes_as_agent and step.method.name in _SAYS)

    async def _told_there(self, visit: Visit, step: Step) -> dict[str, Any]:
        if step.method.name == SEND:
            return await self._sent(visit, step.params)
        if step.method.name == UNREGISTER:
            self._part()
            return {"success": True, "agent": _shown(visit.peer, {})}
        return await super()._told_there(visit, step)

    async def _sent(self, visit: Visit, params: dict[str, Any]) -> dict[str, Any]:
        envelope = envelope_said(params, visit.peer.system, self._map_server.system)
        try:
            result = await visit.serving.call(ROUTE, {"envelope": envelope})
        except PostroomError as refused:
            if not refused.temporary:
                turn_away = partial(visit.serving.turn_away, envelope, str(refused))
                await self._map_server.executor.submit(turn_away)
            raise
        return {"messageId": result["messageId"], "delivered": [envelope["payload"]["to"]["agent"]]}


def _shown(peer: Peer, params: dict[str, Any]) -> dict[str, Any]:
    """As an agent is shown to who registers it. It is none: nothing of it is in the directory."""
    scopes = {"scopes": params["scopes"]} if "scopes" in params else {}
    agent = {"id": peer.system, "name": peer.system, "role": GATEWAY, "state": FIRST_STATE}
    return agent | {"metadata": {}, "visibility": "public"} | scopes


# One connection: what is said on it is carried out, as the agent that says it; its agents' mail is handed to it.
#
# A transport drives it: `read`, `carry_out`, `resume`, `replies_sent`, `close`. What the transport does for it,
# see `Rim`.

ADMITTED_WITHIN = 10.0  # seconds from the connection to a proof of who it is
MOST_JUNK = 100  # frames that say nothing
MOST_SUBSCRIPTIONS = 100
GOODBYE = 1000


class Talk(Neighbour):
    def __init__(
        self,
        map_server: MapServer,
        rim: Rim,
        principal: Principal | None = None,
        certificate: str = "",
        *,
        is_near: bool = False,
    ) -> None:
        session = Session(f"session-{map_server.executor.room._core.ids.token()}")
        super().__init__(map_server, rim, session, principal, certificate, is_near=is_near)
        self._junk = 0
        self._unsettled = 0  # steps under way that change who speaks, or for whom
        self._listeners: dict[str, Caller] = {}  # by agent: what it subscribed to stays when that agent goes
        self._visitor: Caller | None = None  # one without agents, where it needs a name
        map_server.enter(self)
        self._late = asyncio.get_running_loop().call_later(ADMITTED_WITHIN, self._end_if_unknown)

    def _end_if_unknown(self) -> None:
        if not self.session.is_in:
            self.expel("it did not say who it is")

    # -- what comes in

    def read(self, text: str | bytes) -> Request | dict[str, Any] | None:
        limits = self._map_server.executor.room.settings
        try:
            value = read_text(text, limits)
        except PostroomError as broken:
            return self.refuse(unsound(text, broken, limits))
        if self._unsettled and not is_answer(value):  # many calls may be said before the first is answered
            return Later([], value=value)
        return self._heard(value)

    def _heard(self, value: Any) -> Request | dict[str, Any] | None:
        received = self.session.hear(value)
        if isinstance(received, Step):
            return Request([received])
        if isinstance(received, Answer):
            self._hear_answer(received.id)
            self._hear_peer(received)
            return None
        return received if received is None or _is_ping(value) else self.refuse(received)

    def refuse(self, reply: dict[str, Any]) -> dict[str, Any]:
        """What is no message is counted: who goes on and on is ended."""
        self._map_server.complaints.of_refusal(reply["error"])
        if reply["id"] is None:
            self._junk += 1
            if self._junk == MOST_JUNK:
                self.expel("it said nothing but junk")
        return reply

    # -- carrying out

    def carry_out(self, wanted: Request) -> JobFuture:
        if isinstance(wanted, Later):
            received = self._heard(wanted.value)
            return self.carry_out(received) if isinstance(received, Request) else _over(received)
        step = wanted.steps[0]
        assert isinstance(step, Step)  # noqa: S101 - from `read`
        try:
            self._check_peer(step)
            if step.method.of_session or step.method.name in {REGISTER, SPAWN}:
                return JobFuture.of(self._settling(step))
            if self._is_between_systems(step):
                return self._federated(step)
            self._check_stranger(step)
        except PostroomError as refused:
            return _over(step.refuse(refused) or None)
        caller, step = self._caller_of(step)
        owed = caller.carry_out(Request([step]))
        if step.method.writes and step.method.name in MAP:
            owed.add_done_callback(partial(self._after, step))
        return owed

    def _check_stranger(self, step: Step) -> None:
        """Who proved nothing, and has no agents, speaks for itself alone, as who has some does; and not
        under the name of an agent that is on another connection.
        """
        method = step.method
        if not self._is_anonymous or self.session.agents or not (method.whose or method.name.startswith(PREFIX)):
            return
        named = step.params.get(method.whose) if method.whose is not None else None
        if named not in (None, self._participant) or self._map_server.on(self._participant) is not None:
            text = f"{str(named or self._participant)[:128]!a} is no agent of this connection"
            raise NotAllowed(text, field=method.whose, hint="register it, or show a token")

    def _caller_of(self, step: Step) -> tuple[Caller, Step]:
        """Who carries it out: the agent that says it, or whoever opened the connection. A client has a name and no
        agent; it writes letters and opens conversations under that name.
        """
        speaker, name = self.session.speaker(step), step.method.name
        speaks = name == SEND or name.startswith(PREFIX)  # as somebody, and does nothing to anybody
        if speaker is None and self.session.agents and (speaks or self.principal.heeds_seals):
            speaker = self.session.agents[0]  # who names another is told that it may not
        if speaker is not None:
            return self._callers[speaker], step
        if self.principal.agent is None and not self.session.agents:
            if name == SEND and "from" not in step.params:
                return self._opener(), replace(step, params={**step.params, "from": self._participant})
            if name.startswith(PREFIX):
                self._visitor = self._visitor or self._caller_for(self._participant)
                return self._visitor, step
        return self._opener(), step

    def _opener(self) -> Caller:
        assert self._caller is not None  # noqa: S101 - the session lets nothing pass before
        return self._caller

    def _after(self, step: Step, owed: JobFuture) -> None:
        """What a call that was carried out means for the connection that has the agent, and for who listens."""
        reply = None if owed.cancelled() or owed.exception() is not None else owed.result()
        result = reply.get("result") if isinstance(reply, dict) else None
        if not isinstance(result, dict):
            return
        agent = result.get("agent")
        holder = self._map_server.on(agent["id"]) if isinstance(agent, dict) else None
        if holder is not None and isinstance(agent, dict):
            if step.method.name == UNREGISTER:
                holder.drop(agent["id"])
            else:
                holder.pause(agent["id"], agent["state"])
        self._map_server.telling.of_call(step.method.name, step.params, result)

    def _settling(self, step: Step) -> asyncio.Future[dict[str, Any] | None]:
        def settled(_: object) -> None:
            self._unsettled -= 1

        self._unsettled += 1
        answer = asyncio.ensure_future(self._answered(step))
        answer.add_done_callback(settled)
        return answer

    async def _answered(self, step: Step) -> dict[str, Any] | None:
        try:
            if step.method.name == REGISTER:
                result = await self._register(step.params)
            elif step.method.name == SPAWN:
                result = await self._spawn(step.params)
            else:
                result = step.method.run(self, step.params)
                if asyncio.iscoroutine(result):
                    result = await result
            return step.answer(result) or None
        except PostroomError as refused:
            if isinstance(refused, Invalid | QuotaFull):
                self._map_server.complaints.of_refusal(map_error(refused))
            return step.refuse(refused) or None

    # -- what it hears

    def subscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        if sum(caller.subscriptions for caller in self._everyone()) >= MOST_SUBSCRIPTIONS:
            raise QuotaFull(f"{MOST_SUBSCRIPTIONS} subscriptions are enough", hint="map/unsubscribe from some")
        listener = self._listener()
        self._map_server.check_subscriptions(listener.room.principal)
        return listener.subscribe(params | self._mailbox_of_client())

    def subscriptions_of(self, who: Principal) -> int:
        return sum(caller.subscriptions for caller in self._everyone() if caller.room.principal == who)

    def _mailbox_of_client(self) -> dict[str, str]:
        """One without agents is handed no mail; of letters for its name it is told, if it listens."""
        is_handed = self.session.agents or self._map_server.on(self._participant) is not None
        return {} if is_handed else {MAILBOX: self._participant}

    def unsubscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        id = params["subscription_id"]
        for caller in self._everyone():
            if caller.has(id):
                return caller.unsubscribe(id)
        raise Invalid(f"there is no subscription {id[:128]!a}", field="subscription_id", hint="from map/subscribe")

    def subscribe_ack(self, params: dict[str, Any]) -> dict[str, Any]:
        """Who does not read is told no more until it does, so nothing waits for this."""
        return {"success": any(caller.has(params["subscription_id"]) for caller in self._everyone())}

    def _listener(self) -> Caller:
        """Events are heard as the first agent of the connection, or as whoever opened it."""
        if not self.session.agents:
            return self._opener()
        agent = self.session.agents[0]
        if agent not in self._listeners:
            self._listeners[agent] = self._caller_for(agent)
        return self._listeners[agent]

    def _know_callers(self) -> None:
        super()._know_callers()
        for agent, listener in self._listeners.items():
            listener.become(acting_as(self.principal, agent))

    def _everyone(self) -> list[Caller]:
        opener = [self._caller] if self._caller is not None else []
        return [*self._callers.values(), *self._listeners.values(), *opener]

    def resume(self) -> None:
        """There is room for more."""
        self._has_room.set()
        for caller in self._everyone():
            caller.resume()
        for handing in self._handing.values():
            handing.wake()

    def replies_sent(self) -> None:
        """The replies so far were said."""
        for caller in self._everyone():
            caller.replies_sent()
        if self._ending:
            self._rim.end(self._ending, "" if self._ending == GOODBYE else "too many wrong tokens", at_once=False)

    # -- its end

    def disconnect(self, params: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - why, is its own affair
        token = self._remembered() if self.session.is_in else None
        self._part()
        self._leave()
        self.session.step("close")
        self._ending = GOODBYE
        closed = {"id": self.session.id, "closedAt": milliseconds(self._core.now().wall)}
        return {"success": True, "session": closed} | ({"resumeToken": token} if token else {})

    def close(self) -> None:
        """It is gone, however. What its agents have not received stays unread."""
        self._late.cancel()
        if self.session.is_in:
            self._remembered()
        self._part()
        self._leave()
        self.session.step("close")
        for caller in self._everyone():
            caller.close()
        self._map_server.go(self)


def _is_ping(value: Any) -> bool:
    """Who only wants to know whether we are there is answered, and does nothing that is refused."""
    return isinstance(value, dict) and value.get("method") == PING


def _over(reply: dict[str, Any] | None) -> JobFuture:
    """A reply that is known at once."""
    owed = JobFuture()
    owed.set_result(reply)
    return owed
