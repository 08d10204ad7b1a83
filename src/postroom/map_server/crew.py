"""The agents of a connection: they come, go, and are handed their mail."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import NotAllowed, PostroomError
from ..wire.map_agents import IS_HERE
from ..wire.map_messages import request
from ..wire.map_names import PING, REGISTER, SEND, SPAWN, STOPPED, SUSPENDED
from ..wire.map_session import Step
from ..wire.map_table import MAP
from ..wire.session import Asked
from .admission import acting_as, agent_id, child_id
from .handing import Handing
from .proving import Proving

if TYPE_CHECKING:
    from ..callers import Caller
    from ..model.query import Found
    from ..room import Room
    from ..service.authorize import Principal
    from ..wire.map_session import Session
    from .proving import Rim
    from .reception import Reception

log = logging.getLogger("postroom")
_SIGN = "sign-"  # so begin the ids of our questions
PAUSED = (SUSPENDED, STOPPED)  # who says so is handed no mail


class Crew(Proving):
    """The part of a connection that has agents."""

    def __init__(self, reception: Reception, rim: Rim, session: Session, principal: Principal | None) -> None:
        super().__init__(reception, rim, session, principal)
        self._callers: dict[str, Caller] = {}  # by agent
        self._handing: dict[str, Handing] = {}
        self._returning: frozenset[str] = frozenset()  # agents that it gets back
        self.said = 0  # messages handed to the rim
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
        left = self._reception.recall(token, self.principal) if isinstance(token, str) else ()
        self._returning = frozenset(left)
        back = []
        for agent in left:
            try:
                back.append((await self._taken(REGISTER, agent, {}))["agent"])
            except PostroomError as refused:
                log.info("%s does not come back with its connection: %s", agent, refused)
        self._returning = frozenset(one["id"] for one in back)
        return back

    async def _register(self, said: dict[str, Any]) -> dict[str, Any]:
        asked = said.get("agent_id")
        name = asked if asked in self._returning else agent_id(self._office, self.principal, said)
        return await self._taken(REGISTER, name, said)

    async def _spawn(self, said: dict[str, Any]) -> dict[str, Any]:
        parent = said["parent"]
        if parent not in self.session.agents:
            raise NotAllowed(f"{parent[:128]!a} is no agent of this connection", field="parent")
        name = child_id(self._office, self.principal, parent, said)
        result = await self._taken(SPAWN, name, said)
        if said.get("initial_message") is not None:
            result |= await self._first_message(parent, name, said["initial_message"])
        return result

    async def _first_message(self, parent: str, child: str, first: Any) -> dict[str, Any]:
        told = first if isinstance(first, dict) and "payload" in first else {"payload": first}
        message = {word: told[word] for word in ("payload", "meta") if word in told}
        step = self.session.hear(request(0, SEND, to={"agent": child}, **{"from": parent}, **message))
        if isinstance(step, Step):
            reply = await self._callers[parent].carry_out(Asked([step]))
        else:  # a meta that is none
            reply = step
        return {"messageId": reply["result"]["messageId"]} if "result" in reply else {"error": reply["error"]}

    async def _taken(self, method: str, name: str, said: dict[str, Any]) -> dict[str, Any]:
        """An agent comes to this connection: its card is written, then its mail is handed over."""
        if self._is_anonymous and name not in self._returning:
            self._reception.check_given_up(name)
        self._reception.reserve(name, self, is_proven=self._proves(name))
        was_here = name in self.session.agents
        words = {**said, "agent_id": name, "owner": self._participant, IS_HERE: was_here}
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
            self._reception.on(name) is None
        ):  # the connection that had it ended meanwhile, and said that it is away
            self._reception.quietly(self.room_of(name).mailbox(name).heartbeat)
        self._reception.take(name, self)
        self._remembered()
        self._hand_over(name, result["agent"]["state"])
        self._reception.telling.of_call(method, words, result)
        return result

    def _proves(self, name: str) -> bool:
        """Is it the same agent as another connection has? It resumes it, or shows its own token; of a child,
        the token that the other connection has shown, too.
        """
        if name in self._returning or self.principal.agent == name:
            return True
        holder = self._reception.on(name)
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
        self._reception.release(agent, self)
        self.session.drop(agent)

    def _leave(self) -> None:
        """All of them are away."""
        for agent in list(self.session.agents):
            if self._reception.on(agent) is self:  # and not only on its way here from another
                self._reception.went(agent, self.room_of(agent))
            self._forget(agent)

    # -- their mail

    def _hand_over(self, agent: str, state: str) -> None:
        if agent not in self._handing:
            room, told = partial(self.room_of, agent), partial(self._received, agent)
            self._handing[agent] = Handing(self._reception.desk, room, agent, partial(self._hand, agent), told)
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
        self.said += 1
        question = self.sign(self.said)
        if question is not None and self._rim.push(question):
            self.signed = self.said
        return self.said

    def _received(self, agent: str, found: Found) -> None:
        self._reception.telling.delivered(found.message, agent)

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

    def message_ack(self, said: dict[str, Any]) -> dict[str, Any]:
        ids = said["message_ids"]
        return {"success": True, "acked": [id for one in self._handing.values() for id in one.received(ids)]}
