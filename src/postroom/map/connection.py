"""One MAP connection: its calls are carried out as the agent that makes them.

The mail of its agents is pushed to it.

A transport drives it: `read`, `carry_out`, `resume`, `replies_sent`, `close`. It does no I/O itself; what it needs
of the transport is the protocol `Transport`. Three parts belong to it:

    identity    who it is, and the credentials it has shown (`access.Identity`)
    agents      the agents it has registered, and their mail (`connection_agents.ConnectionAgents`)
    peer        its part in federation, where it belongs to another system (`peer_link.PeerLink`)

Calls that change who the connection is, or which agents it has, are carried out one after the other: whatever is
read meanwhile waits (`Later`), so that a client may send `map/connect`, `map/agents/register` and `map/send`
without waiting for the answers.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import Invalid, NotAllowed, PostroomError, QuotaFull
from ..formats.map import (
    PING,
    SEND,
    SOFTWARE,
    UNREGISTER,
    VERSION,
    map_error,
)
from ..server.broker import MAILBOX
from ..server.callers import Caller, replied
from ..server.protocol import PREFIX, Request
from ..server.requests import SessionVerb
from .access import METHODS, NONE, Identity, acting_as, principal_record
from .agents import Register, Spawn
from .connection_agents import ConnectionAgents
from .peer_link import PeerLink
from .session import Answer, Later, Session, Step, is_answer, name_agent, read_text, unsound
from .table import MAP

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..core.core import Core
    from .server import MapServer


ADMITTED_WITHIN = 10.0  # seconds from the connection to a proof of who it is
MOST_JUNK = 100  # frames that are no messages
GOODBYE, POLICY = 1000, 1008  # WebSocket close codes


class Transport(Protocol):
    """The side of a WebSocket or socket that a connection uses to send its bytes."""

    def push(self, notice: dict[str, Any]) -> bool:
        """Send a message that answers nothing.

        False: not now; `MapConnection.resume` is called when there is room.
        """

    def end(self, code: int, reason: str = "", *, at_once: bool) -> None:
        """End the connection: after the replies that are due, or at once."""


class MapConnection:
    """One connection of a MAP server, made inside an event loop.

    `certificate` is the fingerprint of the client certificate of its TLS; `is_near`: does it come from this
    machine?
    """

    def __init__(
        self,
        server: MapServer,
        transport: Transport,
        principal: Principal | None = None,
        certificate: str = "",
        *,
        is_near: bool = False,
    ) -> None:
        self.server = server
        self.transport = transport
        self.core: Core = server.executor.core
        self.session = Session(f"session-{self.core.ids.token()}")
        self.identity = Identity(server, self.session, principal, partial(self.end_after_replies, POLICY))
        self.agents = ConnectionAgents(self)
        self.peer = PeerLink(self, certificate, is_near=is_near)
        self.is_gateway = False  # does it say that it is another system?
        self._resume_token = ""
        self._opener: Caller | None = None  # the caller for what none of its agents says
        self._client: Caller | None = None  # the caller of a client without agents, where it needs a name
        self._subscribers: dict[str, Caller] = {}  # by agent: a subscription stays when that agent goes
        self._unsettled = 0  # calls under way that change who the connection is, or which agents it has
        self._junk = 0
        self._close_code = 0  # set once the connection is to end behind the replies that are due
        server.add(self)
        self._admission_timer = asyncio.get_running_loop().call_later(ADMITTED_WITHIN, self._end_if_unknown)

    @property
    def principal(self) -> Principal:
        return self.identity.principal

    def _end_if_unknown(self) -> None:
        if not self.session.is_in:
            self.expel("it did not say who it is")

    # -- reading

    def read(self, text: str | bytes) -> Request | dict[str, Any] | None:
        """Return what one frame asks for, or the reply to it where that is known at once."""
        limits = self.server.executor.core.limits
        try:
            value = read_text(text, limits)
        except PostroomError as broken:
            return self.refuse(unsound(text, broken, limits))
        # Answers are never held back: the call that is being settled may wait for one.
        if self._unsettled and not is_answer(value):
            return Later([], value=value)
        return self._receive(value)

    def _receive(self, value: Any) -> Request | dict[str, Any] | None:
        received = self.session.receive(value)
        if isinstance(received, Step):
            return Request([received])
        if isinstance(received, Answer):
            self.agents.receive_pong(received.id)
            self.peer.receive_answer(received)
            return None
        return received if received is None or _is_ping(value) else self.refuse(received)

    def refuse(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Log a refusal, and end the connection after MOST_JUNK frames that are no messages."""
        self.server.misuse.refusal(reply["error"])
        if reply["id"] is None:
            self._junk += 1
            if self._junk == MOST_JUNK:
                self.expel("it said nothing but junk")
        return reply

    # -- carrying out

    def carry_out(self, wanted: Request) -> asyncio.Future[Any]:
        """Begin a request and return its reply, which is None where none is due."""
        if isinstance(wanted, Later):
            received = self._receive(wanted.value)
            return self.carry_out(received) if isinstance(received, Request) else replied(received)
        step = wanted.steps[0]
        assert isinstance(step, Step)  # noqa: S101 - from `read`
        try:
            # Before anything is carried out: a peer has the methods of federation only.
            self.peer.check_allowed(step)
            # These change who the connection is. Until one is settled, later frames wait (`read`), so that none
            # acts as the wrong agent (G8).
            if isinstance(step.request, SessionVerb | Register | Spawn):
                return self._settle(step)
            if self.peer.handles(step):
                return asyncio.ensure_future(self.peer.answer(step))
            self._check_anonymous(step)
        except PostroomError as refused:
            return replied(step.refuse(refused) or None)
        caller, step = self._caller_of(step)
        reply = caller.carry_out(Request([step]))
        if step.request.declaration().writes and step.name in MAP:
            reply.add_done_callback(partial(self._after_call, step))
        return reply

    def _check_anonymous(self, step: Step) -> None:
        """Refuse an anonymous client without agents that speaks under a name of others.

        That is any name but its own, and its own while an agent of that name is on another connection.
        """
        request, participant = step.request, self.identity.participant
        speaks = request.whose or step.name.startswith(PREFIX)
        if not self.identity.is_anonymous or self.session.agents or not speaks:
            return
        named = request.named()
        if named not in (None, participant) or self.server.connection_of(participant) is not None:
            text = f"{str(named or participant)[:128]!a} is no agent of this connection"
            raise NotAllowed(text, field=request.whose, hint="register it, or show a token")

    def _caller_of(self, step: Step) -> tuple[Caller, Step]:
        """Return the caller that carries out a step: that of the calling agent, else the connection's own.

        A client without agents writes letters and opens conversations under its own name.
        """
        speaker, name = self.session.speaker(step), step.name
        speaks = name == SEND or name.startswith(PREFIX)
        if speaker is None and self.session.agents and (speaks or self.principal.heeds_seals):
            speaker = self.session.agents[0]  # it is then refused, where the step names an agent of another
        if speaker is not None:
            return self.agents.callers[speaker], step
        if self.principal.agent is None and not self.session.agents:
            if name == SEND and step.request.named() is None:
                name_agent(step.request, self.identity.participant)
                return self._own_caller(), step
            if name.startswith(PREFIX):
                self._client = self._client or self.caller_for(self.identity.participant)
                return self._client, step
        return self._own_caller(), step

    def _own_caller(self) -> Caller:
        assert self._opener is not None  # noqa: S101 - the session lets nothing pass before
        return self._opener

    def caller_for(self, agent: str) -> Caller:
        """Return a caller that acts as this agent, with the rights of the connection."""
        principal = acting_as(self.principal, agent)
        return Caller(self.server.executor, self.server.broker, push=self.transport.push, principal=principal)

    def _after_call(self, step: Step, done: asyncio.Future[Any]) -> None:
        """Tell the connection that has the agent, and the subscribers, of a call that was carried out."""
        reply = None if done.cancelled() or done.exception() is not None else done.result()
        result = reply.get("result") if isinstance(reply, dict) else None
        if not isinstance(result, dict):
            return
        agent = result.get("agent")
        holder = self.server.connection_of(agent["id"]) if isinstance(agent, dict) else None
        if holder is not None and isinstance(agent, dict):
            if step.name == UNREGISTER:
                holder.agents.drop(agent["id"])
            else:
                holder.agents.pause(agent["id"], agent["state"])
        self.server.events.after_call(step.request, result)

    def _settle(self, step: Step) -> asyncio.Future[dict[str, Any] | None]:
        def settled(_: object) -> None:
            self._unsettled -= 1

        self._unsettled += 1
        answer = asyncio.ensure_future(self._answer(step))
        answer.add_done_callback(settled)
        return answer

    async def _answer(self, step: Step) -> dict[str, Any] | None:
        try:
            if isinstance(step.request, Register):
                result = await self._register(step.request)
            elif isinstance(step.request, Spawn):
                result = await self.agents.spawn(step.request)
            else:
                assert isinstance(step.request, SessionVerb)  # noqa: S101 - see `carry_out`
                result = step.request.serve(self)
                if asyncio.iscoroutine(result):
                    result = await result
            return step.answer(result) or None
        except PostroomError as refused:
            if isinstance(refused, Invalid | QuotaFull):
                self.server.misuse.refusal(map_error(refused))
            return step.refuse(refused) or None

    async def _register(self, request: Register) -> dict[str, Any]:
        peer = self.peer.registering_peer(request)
        return await (self.agents.register(request) if peer is None else self.peer.register(peer, request))

    # -- for the methods of the connection (`connection_methods`)

    def prove(self, params: dict[str, Any]) -> Principal:
        try:
            return self.identity.prove(params)
        except NotAllowed:
            if self.is_gateway:
                self.peer.log_refusal()
            raise

    def admit(self, name: Any) -> None:
        """Let the connection in, under the name that it gives itself."""
        self.session.step("admit")
        self.identity.take_name(name)
        executor, broker = self.server.executor, self.server.broker
        self._opener = Caller(
            executor, broker, push=self.transport.push, expel=self.expel, principal=self.principal
        )

    def become(self, principal: Principal) -> None:
        """Act with another token of the same principal."""
        if self._opener is not None:
            self._opener.become(principal)
        for agent, caller in [*self.agents.callers.items(), *self._subscribers.items()]:
            # Also the subscriptions: with the old token revoked they would end.
            caller.become(acting_as(principal, agent))

    def challenge(self) -> dict[str, Any]:
        self.session.step("challenge")
        methods = [*METHODS, *([NONE] if self.server.is_open else [])]
        return {
            "protocolVersion": VERSION,
            "systemInfo": self._system_info(),
            "authRequired": {"methods": methods, "required": True, "realm": self.server.system},
        }

    def welcome(self, reclaimed: list[dict[str, Any]], method: str) -> dict[str, Any]:
        return {
            "protocolVersion": VERSION,
            "sessionId": self.session.id,
            "participantId": self.identity.participant,
            "capabilities": {
                "observation": {"canObserve": True, "canQuery": True},
                "messaging": {"canSend": True, "canReceive": True, "canBroadcast": True},
                "mail": {"enabled": True},
                "delivery": {"acks": self.agents.acknowledges},
            },
            "systemInfo": self._system_info(),
            "reconnected": bool(reclaimed),
            "ownedAgents": list(self.session.agents),
            "reclaimedAgents": reclaimed,
            "resumeToken": self.remember(),
            "principal": principal_record(self.principal, method),
        }

    def _system_info(self) -> dict[str, str]:
        return {"name": self.server.system, "version": self.server.version, "software": SOFTWARE}

    def remember(self) -> str:
        """Return the token that brings the agents of this connection back, and record which they are now."""
        self._resume_token = self._resume_token or self.core.ids.token() + self.core.ids.token()
        self.server.remember(self._resume_token, self.principal, self.session.agents)
        return self._resume_token

    def subscriptions_of(self, who: Principal) -> int:
        return sum(caller.subscriptions for caller in self.callers() if caller.principal == who)

    def mailbox_of_client(self) -> dict[str, str]:
        """Return the mailbox of a client without agents: it gets no mail, but events of letters to its name."""
        participant = self.identity.participant
        gets_mail = self.session.agents or self.server.connection_of(participant) is not None
        return {} if gets_mail else {MAILBOX: participant}

    def subscriber(self) -> Caller:
        """Return the caller that subscribes: the first agent of the connection, or the connection itself."""
        if not self.session.agents:
            return self._own_caller()
        agent = self.session.agents[0]
        if agent not in self._subscribers:
            self._subscribers[agent] = self.caller_for(agent)
        return self._subscribers[agent]

    def callers(self) -> list[Caller]:
        opener = [self._opener] if self._opener is not None else []
        return [*self.agents.callers.values(), *self._subscribers.values(), *opener]

    # -- from the transport

    def resume(self) -> None:
        """Go on: the transport has room for more."""
        self.peer.resume()
        for caller in self.callers():
            caller.resume()
        self.agents.resume()

    def replies_sent(self) -> None:
        """Note that all replies so far were written."""
        for caller in self.callers():
            caller.replies_sent()
        if self._close_code:
            reason = "" if self._close_code == GOODBYE else "too many wrong tokens"
            self.transport.end(self._close_code, reason, at_once=False)

    # -- the end

    def end_after_replies(self, code: int = GOODBYE) -> None:
        self._close_code = code

    def expel(self, why: str = "token revoked") -> None:
        """End the connection at once, and log why."""
        self.server.misuse.ended(why, self.identity.token_owner)
        self.transport.end(POLICY, why, at_once=True)

    def part(self) -> None:
        """End what the connection is for: it is no peer any more, and its agents are away."""
        self.peer.close()
        self.agents.leave()
        self.session.step("close")

    def close(self) -> None:
        """Clean up after the connection has ended. Mail that its agents have not received stays unread."""
        # `close` runs after every end, also without `disconnect`: its steps may come twice.
        self._admission_timer.cancel()
        if self.session.is_in:
            self.remember()
        self.part()
        for caller in self.callers():
            caller.close()
        self.server.remove(self)


def _is_ping(value: Any) -> bool:
    """Return whether it is `map/ping`, which is answered like an unknown method and must not count as misuse."""
    return isinstance(value, dict) and value.get("method") == PING
