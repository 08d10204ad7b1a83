"""The agents of one MAP connection: they are registered, get their mail, and leave.

An agent is on one connection at a time. `MapServer` decides which: `reserve` before its card is written, `take`
once that has succeeded.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import NotAllowed, PostroomError
from ..formats.map import PING, SEND, STOPPED, SUSPENDED
from ..formats.map import request as map_request
from ..server.protocol import Request
from .access import agent_id, child_id
from .agents import Register
from .delivery import AgentDelivery
from .session import Step

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..server.callers import Caller
    from .agents import Spawn
    from .connection import MapConnection


log = logging.getLogger("postroom")
_PING_ID = "sign-"  # the ids of our pings begin so
PAUSED = (SUSPENDED, STOPPED)  # states in which an agent is pushed no mail


class ConnectionAgents:
    """The agents that one connection has registered, and the delivery of their mail.

    Behind each message goes a ping. Its answer is the receipt of the message, for clients that do not send
    `map/message.ack` (`acknowledges`).
    """

    def __init__(self, conn: MapConnection) -> None:
        self._conn = conn
        self._server = conn.server
        self.core = conn.core
        self._session = conn.session
        self.callers: dict[str, Caller] = {}  # by agent
        self._deliveries: dict[str, AgentDelivery] = {}
        self._reclaimed: frozenset[str] = frozenset()  # agents that it got back with its resume token
        self.acknowledges = False  # does the client send `map/message.ack`?
        self.sent_count = 0  # messages given to the transport
        self.pinged_up_to = 0  # the last message that has a ping behind it
        self.answers_pings = False  # has it answered any?

    def principal_of(self, agent: str) -> Principal:
        return self.callers[agent].principal

    # -- registering

    async def reclaim(self, token: Any) -> list[dict[str, Any]]:
        """Register the agents of an earlier connection again, as far as their names are free."""
        names = self._server.recall(token, self._conn.principal) if isinstance(token, str) else ()
        self._reclaimed = frozenset(names)
        reclaimed = []
        for agent in names:
            try:
                reclaimed.append((await self._add(Register(agent_id=agent)))["agent"])
            except PostroomError as refused:
                log.info("%s does not come back with its connection: %s", agent, refused)
        self._reclaimed = frozenset(one["id"] for one in reclaimed)
        return reclaimed

    async def register(self, request: Register) -> dict[str, Any]:
        if request.agent_id not in self._reclaimed:
            request.agent_id = agent_id(self.core, self._conn.principal, request)
        return await self._add(request)

    async def spawn(self, request: Spawn) -> dict[str, Any]:
        """Register a child of an agent of this connection, and send it its first message."""
        parent, first = request.parent, request.initial_message
        if parent not in self._session.agents:
            raise NotAllowed(f"{parent[:128]!a} is no agent of this connection", field="parent")
        request.agent_id = child_id(self.core, self._conn.principal, parent, request)
        result = await self._add(request)
        return result if first is None else result | await self._send_first(parent, request.agent_id, first)

    async def _send_first(self, parent: str, child: str, first: Any) -> dict[str, Any]:
        fields = first if isinstance(first, dict) and "payload" in first else {"payload": first}
        message = {word: fields[word] for word in ("payload", "meta") if word in fields}
        step = self._session.receive(map_request(0, SEND, to={"agent": child}, **{"from": parent}, **message))
        reply: Any = step  # the refusal of a malformed `meta`
        if isinstance(step, Step):
            reply = await self.callers[parent].carry_out(Request([step]))
        return {"messageId": reply["result"]["messageId"]} if "result" in reply else {"error": reply["error"]}

    async def _add(self, request: Register | Spawn) -> dict[str, Any]:
        """Write the card of an agent, take it from the connection that had it, and begin to deliver its mail."""
        name = request.agent_id or ""  # never empty here
        request.owner = self._conn.identity.participant
        if self._conn.identity.is_anonymous and name not in self._reclaimed:
            self._server.check_not_away(name)
        # Reserved before the card is written: two connections that register one name at once must not both get
        # it.
        self._server.reserve(name, self._conn, is_proven=self._is_same_agent(name))
        was_here = name in self._session.agents
        try:
            if not was_here:
                self._session.take(name)
                self.callers[name] = self._conn.caller_for(name)
            result: dict[str, Any] = await self.callers[name].make(request)
        except PostroomError:
            if not was_here:
                self._forget(name)
            raise
        if name not in self._session.agents:  # another connection took it meanwhile, or this one has ended
            raise NotAllowed(f"{name!r} is not on this connection any more", field="agent_id")
        if self._server.connection_of(name) is None:
            # The connection that had it ended meanwhile, and recorded that the agent is away.
            self._server.beat(name, self.principal_of(name))
        self._server.take(name, self._conn)
        self._conn.remember()
        self._deliver(name, result["agent"]["state"])
        self._server.events.after_call(request, result)
        return result

    def _is_same_agent(self, name: str) -> bool:
        """Return whether this connection proves to be the agent that another one has.

        The proof is its resume token, the agent's own token or, for a child, the token that the other connection
        has shown.
        """
        if name in self._reclaimed or self._conn.principal.agent == name:
            return True
        holder = self._server.connection_of(name)
        mine = self._conn.principal.agent
        return holder is not None and mine is not None and holder.principal.agent == mine

    # -- leaving

    def lose(self, agent: str) -> None:
        """Give an agent up to another connection; a connection without any other agent is ended."""
        self._forget(agent)
        if not self._session.agents:
            self._conn.expel("replaced by another connection")

    def drop(self, agent: str) -> None:
        """Forget an agent that was unregistered."""
        self._forget(agent)
        self._conn.remember()

    def leave(self) -> None:
        """Mark all agents as away and forget them."""
        for agent in list(self._session.agents):
            if self._server.connection_of(agent) is self._conn:  # and not only reserved by this connection
                self._server.mark_away(agent, self.principal_of(agent))
            self._forget(agent)

    def _forget(self, agent: str) -> None:
        delivery = self._deliveries.pop(agent, None)
        if delivery is not None:
            delivery.close()
        caller = self.callers.pop(agent, None)
        if caller is not None:
            caller.close()
        self._server.release(agent, self._conn)
        self._session.drop(agent)

    # -- mail

    def _deliver(self, agent: str, state: str) -> None:
        if agent not in self._deliveries:
            self._deliveries[agent] = AgentDelivery(
                self._server.executor,
                partial(self.principal_of, agent),
                agent,
                partial(self._push, agent),
                lambda found: self._server.events.delivered(found.message, agent),
            )
        self.pause(agent, state)

    def pause(self, agent: str, state: str) -> None:
        """Stop or resume the delivery of an agent's mail, by the state it is in now."""
        if agent in self._deliveries:
            self._deliveries[agent].pause(is_paused=state in PAUSED)

    def resume(self) -> None:
        """Go on with all deliveries: the transport has room."""
        for delivery in self._deliveries.values():
            delivery.wake()

    def _push(self, agent: str, notice: dict[str, Any]) -> int:
        """Push a message and a ping behind it; return the message's number, or 0 if there is no room.

        Each message has a ping of its own, so that a client that is cut off in the middle has received the first.
        A message to a scope comes once for each agent in it, so on a connection with several agents it names its
        own.
        """
        # Otherwise the client would not know which of its agents is meant.
        if len(self._session.agents) > 1:
            notice["params"]["message"]["_meta"] = {"postroom": {"for": agent}}
        if not self._conn.transport.push(notice):
            return 0
        self.sent_count += 1
        ping = self.ping(self.sent_count)
        if ping is not None and self._conn.transport.push(ping):
            self.pinged_up_to = self.sent_count
        return self.sent_count

    # -- receipts

    def ping(self, number: int) -> dict[str, Any] | None:
        """Return the ping whose answer is the receipt of all messages up to this number.

        None: the client acknowledges messages itself.
        """
        return None if self.acknowledges else map_request(f"{_PING_ID}{number}", PING)

    def receive_pong(self, id: Any) -> None:
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
