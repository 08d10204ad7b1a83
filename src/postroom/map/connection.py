"""One MAP connection: who it is, its calls, its agents, and the mail that is pushed to them.

A transport drives it by `read`, `carry_out`, `resume`, `replies_sent`, `give_up` and `close`. It does no I/O:
the transport gives it two functions for that, `push` and `end`. It is composed of these:

    session         what the protocol allows now (`session.Session`)
    peer            its part in federation, where it belongs to another system (`peer_link.PeerLink`)
    callers         one for each agent, and one for what none of its agents says (`server.callers.Caller`)
    deliveries      the mail of each agent, until its receipt (`delivery.AgentDelivery`)

Calls that change who the connection is, or which agents it has, are carried out one after the other: whatever is
read meanwhile waits (`Later`), so that a client may send `map/connect`, `map/agents/register` and `map/send`
without waiting for the answers.

An agent is on one connection at a time. `MapServer` decides which: `reserve` before its card is written, `take`
once that has succeeded.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.authorize import Principal
from ..errors import Invalid, NotAllowed, PostroomError, QuotaFull
from ..formats.map import PING, SEND, SOFTWARE, STOPPED, SUSPENDED, UNREGISTER, VERSION, cleaned, map_error
from ..formats.map import request as map_request
from ..server.broker import MAILBOX
from ..server.callers import Caller, replied
from ..server.protocol import PREFIX
from ..server.requests import SessionVerb
from .access import METHODS, NONE, acting_as, agent_id, child_id, principal_of, principal_record
from .agents import Register, Spawn
from .delivery import AgentDelivery
from .peer_link import PeerLink
from .session import (
    MAP,
    DeferredCall,
    MapCall,
    MapSession,
    Response,
    is_answer,
    name_agent,
    read_text,
    unreadable,
    unsound,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..server.protocol import Request
    from .server import MapServer


log = logging.getLogger("postroom")
ADMITTED_WITHIN = 10.0  # seconds from the connection to a proof of who it is
MOST_TRIES = 5  # wrong credentials, after which a connection is ended
MOST_SUBSCRIPTIONS = 100  # of one connection
MOST_OF_ONE = 200  # subscriptions of one principal, on all its connections
MOST_JUNK = 100  # frames that are no messages
GOODBYE, POLICY = 1000, 1008  # WebSocket close codes
PAUSED = (SUSPENDED, STOPPED)  # states in which an agent is pushed no mail
_PING_ID = "sign-"  # the ids of our pings begin so


class MapConnection:
    """One connection of a MAP server, made inside an event loop.

    `push` sends a message that answers nothing; False: not now, and `resume` is called when there is room.
    `end(code, reason, at_once=...)` ends the connection, at once or after the replies that are due. `certificate`
    is the fingerprint of the client certificate of its TLS; `is_near`: does it come from this machine?
    """

    def __init__(
        self,
        server: MapServer,
        push: Callable[[dict[str, Any]], bool],
        end: Callable[..., None],
        principal: Principal | None = None,
        certificate: str = "",
        *,
        is_near: bool = False,
    ) -> None:
        self.server = server
        self.core = server.executor.core
        self.push = push
        self._end = end
        self.session = MapSession(f"session-{self.core.ids.token()}")
        self.peer = PeerLink(self, certificate, is_near=is_near)
        # who it is
        self._principal = principal  # None: it has not proven it yet
        self.participant = self.session.id  # the name under which the connection itself is known
        self.is_anonymous = False  # was it admitted without any proof?
        self.is_gateway = False  # does it say that it is another system?
        self._tries = 0  # wrong credentials
        self._junk = 0  # frames that were no messages
        self._resume_token = ""
        self._close_code = 0  # set once the connection is to end behind the replies that are due
        # its calls
        self._unsettled = 0  # calls under way that change who it is, or which agents it has
        self._callers: dict[str, Caller] = {}  # by agent of this connection
        # Callers under a name that may not be registered here: a client without agents, and a subscriber, for a
        # subscription stays when its agent goes. Under no name: for what none of its agents says.
        self._named: dict[str, Caller] = {}
        # the mail of its agents
        self._deliveries: dict[str, AgentDelivery] = {}  # by agent
        self._reclaimed: frozenset[str] = frozenset()  # agents that it got back with its resume token
        self.acknowledges = False  # does the client send `map/message.ack`?
        self.sent_count = 0  # messages given to the transport
        self._pinged_up_to = 0  # the last message that has a ping behind it
        self.answers_pings = False  # has it answered any?
        server.connections.add(self)
        self._admission_timer = asyncio.get_running_loop().call_later(ADMITTED_WITHIN, self._expel_unknown)

    def _expel_unknown(self) -> None:
        if not self.session.is_in:
            self.expel("it did not say who it is")

    # -- reading

    def read(self, text: str | bytes | None) -> Request | None:
        """Return what one frame asks for, or the reply to it where that is known at once.

        None stands for a line that was too long to be kept.
        """
        if text is None:
            return self._refuse(unreadable("this line is too long"))
        limits = self.core.limits
        try:
            value = read_text(text, limits)
        except PostroomError as broken:
            return self._refuse(unsound(text, broken, limits))
        # Answers are never held back: the call that is being settled may wait for one.
        if self._unsettled and not is_answer(value):
            return DeferredCall("", {}, value=value)
        return self._receive(value)

    def _receive(self, value: Any) -> Request | None:
        received = self.session.receive(value)
        if isinstance(received, MapCall):
            return received
        if isinstance(received, Response):
            self._receive_pong(received.id)
            self.peer.receive_answer(received)
            return None
        # `map/ping` is answered like an unknown method, and must not count as misuse.
        is_ping = isinstance(value, dict) and value.get("method") == PING
        return received if received is None or is_ping else self._refuse(received)

    def _refuse(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Log a refusal, and end the connection after MOST_JUNK frames that are no messages."""
        self.server.misuse.refusal(reply["error"])
        if reply["id"] is None:
            self._junk += 1
            if self._junk == MOST_JUNK:
                self.expel("it sent too many frames that are not valid messages")
        return reply

    # -- carrying out

    def carry_out(self, wanted: Request) -> asyncio.Future[Any]:
        """Begin a request and return its reply, which is None where none is due."""
        if isinstance(wanted, DeferredCall):
            return self.carry_out(self._receive(wanted.value) or {})
        if not isinstance(wanted, MapCall):
            return replied(wanted or None)
        step = wanted
        try:
            # Before anything is carried out: a peer has the methods of federation only.
            self.peer.check_allowed(step)
            # These change who the connection is. Until one is settled, later frames wait (`read`), so that none
            # acts as the wrong agent (G8).
            if isinstance(step.request, SessionVerb | Register | Spawn):
                self._unsettled += 1
                return asyncio.ensure_future(self._settle(step))
            if self.peer.handles(step):
                return asyncio.ensure_future(self.peer.answer(step))
            caller = self._caller_of(step)
        except PostroomError as refused:
            return replied(step.refuse(refused) or None)
        reply = caller.carry_out(step)
        if step.request.declaration().writes and step.name in MAP:
            reply.add_done_callback(partial(self._after_call, step))
        return reply

    def _caller_of(self, step: MapCall) -> Caller:
        """Return the caller that carries out a step: that of the calling agent, else the connection's own.

        A client without agents writes letters and opens conversations under its own name. An anonymous one may
        speak under no other name, and not under its own while an agent of that name is on another connection.
        """
        request, agents = step.request, self.session.agents
        named, is_mail, is_send = request.named(), step.name.startswith(PREFIX), step.name == SEND
        if agents:
            speaker = self.session.speaker(step)
            if speaker is None and (is_send or is_mail or self.principal.heeds_seals):
                speaker = agents[0]  # it is then refused: the step names an agent of another
            return self._callers[speaker] if speaker is not None else self._named[""]
        if self.is_anonymous and (request.whose or is_mail):
            is_free = self.server.connection_of(self.participant) is None
            if named not in (None, self.participant) or not is_free:
                raise NotAllowed(
                    f"{str(named or self.participant)[:128]!a} is not an agent of this connection",
                    field=request.whose,
                    hint="register it, or show a token",
                )
        if self.principal.agent is None:
            if is_send and named is None:
                name_agent(request, self.participant)
            elif is_mail:
                return self._caller_named(self.participant)
        return self._named[""]

    def _caller_for(self, agent: str) -> Caller:
        """Return a new caller that acts as this agent, with the rights of the connection."""
        principal = acting_as(self.principal, agent)
        return Caller(self.server.executor, self.server.broker, push=self.push, principal=principal)

    def _caller_named(self, agent: str) -> Caller:
        if agent not in self._named:
            self._named[agent] = self._caller_for(agent)
        return self._named[agent]

    def _after_call(self, step: MapCall, done: asyncio.Future[Any]) -> None:
        """Tell the connection that has the agent, and the subscribers, of a call that was carried out."""
        reply = None if done.cancelled() or done.exception() is not None else done.result()
        result = reply.get("result") if isinstance(reply, dict) else None
        if not isinstance(result, dict):
            return
        agent = result.get("agent")
        if agent is not None and (holder := self.server.connection_of(agent["id"])) is not None:
            if step.name == UNREGISTER:
                holder.forget(agent["id"])
                holder.remember()
            else:
                holder.pause(agent["id"], agent["state"])
        self.server.events.after_call(step.request, result)

    async def _settle(self, step: MapCall) -> dict[str, Any] | None:
        """Carry out a call that changes who the connection is, or which agents it has, and return its reply."""
        request = step.request
        try:
            if isinstance(request, Register):
                peer = await self.peer.registering_peer(request)
                result = await (self._register(request) if peer is None else self.peer.register(peer, request))
            elif isinstance(request, Spawn):
                result = await self._spawn(request)
            else:
                assert isinstance(request, SessionVerb)  # noqa: S101 - see `carry_out`
                result = request.serve(self)
                if asyncio.iscoroutine(result):
                    result = await result
            return step.answer(result) or None
        except PostroomError as refused:
            if isinstance(refused, Invalid | QuotaFull):
                self.server.misuse.refusal(map_error(refused))
            return step.refuse(refused) or None
        finally:
            self._unsettled -= 1

    # -- who it is

    @property
    def is_known(self) -> bool:
        return self._principal is not None

    @property
    def principal(self) -> Principal:
        if self._principal is None:
            raise NotAllowed("Authentication required", field="auth")
        return self._principal

    async def prove(self, params: dict[str, Any]) -> Principal:
        """Accept the credentials in `params`, or count a wrong try and raise NotAllowed."""
        try:
            self._principal = await self._principal_of(params)
        except NotAllowed as refused:
            # Many clients ignore this reply and read the refusal of their next call, so that repeats the reason.
            self.session.refused = refused.message
            self.count_failure()
            if self.is_gateway:
                await self.peer.log_refusal()
            raise
        self.is_anonymous = self._principal.heeds_seals
        return self._principal

    async def _principal_of(self, params: dict[str, Any]) -> Principal:
        run = partial(principal_of, self.core, params, is_open=self.server.is_open)
        found: Principal = await self.server.executor.read(run)
        return found

    async def same_principal(self, params: dict[str, Any]) -> Principal:
        """Return the principal of another token of the same agent or, for an operator, of an operator."""
        try:
            principal = await self._principal_of(params)
        except NotAllowed:
            self.count_failure()
            raise
        # A connection stays who it is: its agents and subscriptions were granted to that principal (G8).
        if (principal.agent, principal.operator) != (self.principal.agent, self.principal.operator):
            self.count_failure()
            raise NotAllowed("this token is somebody else's", field="token")
        return principal

    def count_failure(self) -> None:
        # Counted for the connection: who guesses tokens has to connect again for each few.
        self._tries += 1
        if self._tries >= MOST_TRIES:
            self.server.misuse.ended(f"it showed {MOST_TRIES} credentials that are none")
            self._close_code = POLICY

    def become_peer(self, system: str) -> None:
        """Act for another system, which has proven itself."""
        self._principal = Principal(f"peer:{system}", scopes=frozenset())

    def become(self, principal: Principal) -> None:
        """Act with another token of the same principal."""
        self._principal = principal
        for agent, caller in [*self._callers.items(), *self._named.items()]:
            # Also the subscriptions: with the old token revoked they would end.
            caller.become(acting_as(principal, agent) if agent else principal)

    def admit(self, name: str | None) -> None:
        """Let the connection in, under the agent's name of its token, else under the name that it gives itself."""
        self.session.step("admit")
        self.participant = self.principal.agent or cleaned(name or "") or self.session.id
        executor, broker = self.server.executor, self.server.broker
        own = Caller(executor, broker, push=self.push, expel=self.expel, principal=self.principal)
        self._named[""] = own

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
            "participantId": self.participant,
            "capabilities": {
                "observation": {"canObserve": True, "canQuery": True},
                "messaging": {"canSend": True, "canReceive": True, "canBroadcast": True},
                "mail": {"enabled": True},
                "delivery": {"acks": self.acknowledges},
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

    # -- its agents

    async def reclaim(self, token: str | None) -> list[dict[str, Any]]:
        """Register the agents of an earlier connection again, as far as their names are free."""
        names = self.server.recall(token, self.principal) if token is not None else ()
        self._reclaimed = frozenset(names)
        reclaimed = []
        for agent in names:
            try:
                reclaimed.append((await self._add(Register(agent_id=agent)))["agent"])
            except PostroomError as refused:
                log.info("%s does not come back with its connection: %s", agent, refused)
        self._reclaimed = frozenset(one["id"] for one in reclaimed)
        return reclaimed

    async def _register(self, request: Register) -> dict[str, Any]:
        if request.agent_id not in self._reclaimed:
            request.agent_id = await self.server.executor.read(agent_id, self.core, self.principal, request)
        return await self._add(request)

    async def _spawn(self, request: Spawn) -> dict[str, Any]:
        """Register a child of an agent of this connection, and send it its first message."""
        parent, first = request.parent, request.initial_message
        if parent not in self.session.agents:
            raise NotAllowed(f"{parent[:128]!a} is not an agent of this connection", field="parent")
        request.agent_id = await self.server.executor.read(child_id, self.core, self.principal, parent, request)
        result = await self._add(request)
        if first is None:
            return result
        fields = first if isinstance(first, dict) and "payload" in first else {"payload": first}
        message = {word: fields[word] for word in ("payload", "meta") if word in fields}
        to = {"agent": request.agent_id}
        reply: Any = self.session.receive(map_request(0, SEND, to=to, **{"from": parent}, **message))
        if isinstance(reply, MapCall):  # else the refusal of a malformed `meta`
            reply = await self._callers[parent].carry_out(reply)
        sent = {"messageId": reply["result"]["messageId"]} if "result" in reply else {"error": reply["error"]}
        return result | sent

    async def _add(self, request: Register | Spawn) -> dict[str, Any]:
        """Write the card of an agent, take it from the connection that had it, and begin to deliver its mail."""
        name = request.agent_id or ""  # never empty here
        request.owner = self.participant
        # Without a proof, nobody gets an agent that is only away: its mail waits for it (G8).
        if self.is_anonymous and name not in self._reclaimed:
            self.server.check_not_away(name)
        # Reserved before the card is written: two connections that register one name at once must not both get
        # it.
        self.server.reserve(name, self, is_proven=self._is_same_agent(name))
        was_here = name in self.session.agents
        try:
            if not was_here:
                self.session.take(name)
                self._callers[name] = self._caller_for(name)
            result: dict[str, Any] = await self._callers[name].make(request)
        except PostroomError:
            if not was_here:
                self.forget(name)
            raise
        if name not in self.session.agents:  # another connection took it meanwhile, or this one has ended
            raise NotAllowed(f"{name!r} is not on this connection any more", field="agent_id")
        if self.server.connection_of(name) is None:
            # The connection that had it ended meanwhile, and recorded that the agent is away.
            self.server.beat(name, self.principal_of(name))
        # Only now, when its card is written: the connection that had it goes on delivering its mail until here.
        self.server.take(name, self)
        self.remember()
        if name not in self._deliveries:
            self._deliveries[name] = AgentDelivery(
                self.server.executor,
                partial(self.principal_of, name),
                name,
                partial(self._push_message, name),
                lambda found: self.server.events.delivered(found.message, name),
            )
        self.pause(name, result["agent"]["state"])
        self.server.events.after_call(request, result)
        return result

    def _is_same_agent(self, name: str) -> bool:
        """Return whether this connection proves to be the agent that another one has.

        The proof is its resume token, the agent's own token or, for a child, the token that the other connection
        has shown.
        """
        if name in self._reclaimed or self.principal.agent == name:
            return True
        holder, mine = self.server.connection_of(name), self.principal.agent
        return holder is not None and mine is not None and holder.principal.agent == mine

    def principal_of(self, agent: str) -> Principal:
        return self._callers[agent].principal

    def lose(self, agent: str) -> None:
        """Give an agent up to another connection; a connection without any other agent is ended."""
        self.forget(agent)
        if not self.session.agents:
            self.expel("replaced by another connection")

    def forget(self, agent: str) -> None:
        """Forget an agent, whose mail is not pushed here any more."""
        for part in (self._deliveries.pop(agent, None), self._callers.pop(agent, None)):
            if part is not None:
                part.close()
        self.server.release(agent, self)
        self.session.drop(agent)

    # -- the mail of its agents

    def pause(self, agent: str, state: str) -> None:
        """Stop or resume the delivery of an agent's mail, by the state it is in now."""
        if agent in self._deliveries:
            self._deliveries[agent].pause(is_paused=state in PAUSED)

    def _push_message(self, agent: str, notice: dict[str, Any]) -> int:
        """Push a message and a ping behind it; return the message's number, or 0 if there is no room.

        Each message has a ping of its own, so that a client that is cut off in the middle has received the first.
        The answer to the ping is the receipt of the message, for clients that do not send `map/message.ack`.
        """
        # A message to a scope comes once for each agent in it: the client has to know which of them is meant.
        if len(self.session.agents) > 1:
            notice["params"]["message"]["_meta"] = {"postroom": {"for": agent}}
        if not self.push(notice):
            return 0
        self.sent_count += 1
        self._push_ping()
        return self.sent_count

    def _push_ping(self) -> None:
        """Push the ping whose answer is the receipt of all messages so far, if there is room."""
        if not self.acknowledges and self.push(map_request(f"{_PING_ID}{self.sent_count}", PING)):
            self._pinged_up_to = self.sent_count

    def _receive_pong(self, id: Any) -> None:
        """Take the answer to one of our pings as the receipt of the messages before it."""
        digits = id.removeprefix(_PING_ID) if isinstance(id, str) and id.startswith(_PING_ID) else ""
        # The client writes this id. `int` accepts other digits too, and takes long for very long texts.
        if digits.isascii() and digits.isdecimal() and len(digits) <= 18:
            self.answers_pings = True
            self.received_up_to(int(digits))

    def received_up_to(self, number: int) -> None:
        """Settle all messages up to this number, unless the client acknowledges messages itself."""
        if not self.acknowledges:
            for delivery in list(self._deliveries.values()):
                delivery.received_up_to(number)

    def acknowledge(self, ids: list[str]) -> list[str]:
        """Settle these messages; return those that were waiting for a receipt."""
        return [id for one in self._deliveries.values() for id in one.received(ids)]

    # -- its subscriptions

    async def subscribe(self, params: dict[str, Any]) -> dict[str, Any]:
        """Subscribe as the first agent of the connection, else as the connection itself."""
        agents = self.session.agents
        if sum(caller.subscriptions for caller in self.callers()) >= MOST_SUBSCRIPTIONS:
            raise QuotaFull(
                f"one connection may hold at most {MOST_SUBSCRIPTIONS} subscriptions",
                hint="end some with map/unsubscribe",
            )
        subscriber = self._caller_named(agents[0]) if agents else self._named[""]
        who = subscriber.principal
        callers = [caller for conn in self.server.connections for caller in conn.callers()]
        # Each costs something with every letter.
        if sum(caller.subscriptions for caller in callers if caller.principal == who) >= MOST_OF_ONE:
            raise QuotaFull(
                f"all connections of {who.agent or who.name} may hold at most {MOST_OF_ONE} subscriptions",
                hint="end some with map/unsubscribe",
            )
        # A client without agents gets no mail, but events of letters to its name.
        gets_mail = agents or self.server.connection_of(self.participant) is not None
        return await subscriber.subscribe(params if gets_mail else params | {MAILBOX: self.participant})

    def unsubscribe(self, id: str) -> dict[str, Any]:
        for caller in self.callers():
            if caller.has(id):
                return caller.unsubscribe(id)
        raise Invalid(f"there is no subscription {id[:128]!a}", field="subscription_id", hint="from map/subscribe")

    def callers(self) -> list[Caller]:
        return [*self._callers.values(), *self._named.values()]

    # -- from the transport

    def resume(self) -> None:
        """Go on: the transport has room for more. First goes the ping that found none."""
        if self._pinged_up_to < self.sent_count:
            self._push_ping()
        self.peer.resume()
        for caller in self.callers():
            caller.resume()
        for delivery in self._deliveries.values():
            delivery.wake()

    def replies_sent(self) -> None:
        """Note that all replies so far were written."""
        for caller in self.callers():
            caller.replies_sent()
        if self._close_code:
            reason = "" if self._close_code == GOODBYE else "too many wrong tokens"
            self._end(self._close_code, reason, at_once=False)

    # -- the end

    def end_after_replies(self) -> None:
        self._close_code = GOODBYE

    def expel(self, why: str = "token revoked") -> None:
        """End the connection at once, and log why, with the agent whose token it has shown."""
        principal = self._principal
        owner = principal.agent if principal is not None and principal.token is not None else None
        self.server.misuse.ended(why, owner)
        self._end(POLICY, why, at_once=True)

    def part(self) -> None:
        """End what the connection is for: it is no peer any more, and its agents are away."""
        self.peer.close()
        for agent in list(self.session.agents):
            if self.server.connection_of(agent) is self:  # and not only reserved by this connection
                self.server.mark_away(agent, self.principal_of(agent))
            self.forget(agent)
        self.session.step("close")

    def give_up(self) -> None:
        """Do nothing: messages without a receipt stay unread, which `close` sees to."""

    def close(self) -> None:
        """Clean up after the connection has ended. Mail that its agents have not received stays unread."""
        # `close` runs after every end, also without `disconnect`: its steps may come twice.
        self._admission_timer.cancel()
        if self.session.is_in:
            self.remember()
        self.part()
        for caller in self.callers():
            caller.close()
        self.server.connections.discard(self)
