"""One connection: what is said on it is carried out, as the agent that says it; its agents' mail is handed to it.

A rim drives it:

    talk = Talk(reception, rim, principal)      # principal: who it is known to be already, or None
    asked = talk.read(text)                     # what one frame or line asks for; None: nothing
    talk.carry_out(asked)                       # its reply, when it is there (`owing.Owing` keeps them in order)
    talk.said                                   # the number of the last message that was handed to the rim
    talk.signed, talk.sign(number)              # up to where it was asked; what else to ask, once there is room
    talk.received_up_to(number)                 # the rim knows it in another way, where `talk.answers` is not so
    talk.resume(), talk.told(), talk.close()    # as of `callers.Caller`

What the rim does for it, see `Rim`.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import Invalid, NotAllowed, PostroomError, QuotaFull
from ..hub import MAILBOX
from ..outcome import Outcome
from ..wire.inbox_records import milliseconds
from ..wire.map_names import PING, REGISTER, SEND, SPAWN, UNREGISTER
from ..wire.map_problems import map_error
from ..wire.map_session import Answer, Later, Session, Step, is_answer, read_text, unsound
from ..wire.map_table import MAP
from ..wire.methods import PREFIX
from ..wire.session import Asked
from .admission import acting_as
from .neighbour import Neighbour

if TYPE_CHECKING:
    from ..callers import Caller
    from ..service.authorize import Principal
    from .proving import Rim
    from .reception import Reception

ADMITTED_WITHIN = 10.0  # seconds from the connection to a proof of who it is
MOST_JUNK = 100  # frames that say nothing
MOST_SUBSCRIPTIONS = 100
GOODBYE = 1000


class Talk(Neighbour):
    def __init__(
        self,
        reception: Reception,
        rim: Rim,
        principal: Principal | None = None,
        certificate: str = "",
        *,
        is_near: bool = False,
    ) -> None:
        session = Session(f"session-{reception.desk.room._office.ids.token()}")
        super().__init__(reception, rim, session, principal, certificate, is_near=is_near)
        self._junk = 0
        self._unsettled = 0  # steps under way that change who speaks, or for whom
        self._listeners: dict[str, Caller] = {}  # by agent: what it subscribed to stays when that agent goes
        self._visitor: Caller | None = None  # one without agents, where it needs a name
        reception.enter(self)
        self._late = asyncio.get_running_loop().call_later(ADMITTED_WITHIN, self._end_if_unknown)

    def _end_if_unknown(self) -> None:
        if not self.session.is_in:
            self.expel("it did not say who it is")

    # -- what comes in

    def read(self, text: str | bytes) -> Asked | dict[str, Any] | None:
        limits = self._reception.desk.room.settings
        try:
            value = read_text(text, limits)
        except PostroomError as broken:
            return self.refuse(unsound(text, broken, limits))
        if self._unsettled and not is_answer(value):  # many calls may be said before the first is answered
            return Later([], value=value)
        return self._heard(value)

    def _heard(self, value: Any) -> Asked | dict[str, Any] | None:
        heard = self.session.hear(value)
        if isinstance(heard, Step):
            return Asked([heard])
        if isinstance(heard, Answer):
            self._hear_answer(heard.id)
            self._hear_peer(heard)
            return None
        return heard if heard is None or _is_ping(value) else self.refuse(heard)

    def refuse(self, reply: dict[str, Any]) -> dict[str, Any]:
        """What is no message is counted: who goes on and on is ended."""
        self._reception.complaints.of_refusal(reply["error"])
        if reply["id"] is None:
            self._junk += 1
            if self._junk == MOST_JUNK:
                self.expel("it said nothing but junk")
        return reply

    # -- carrying out

    def carry_out(self, asked: Asked) -> Outcome:
        if isinstance(asked, Later):
            heard = self._heard(asked.value)
            return self.carry_out(heard) if isinstance(heard, Asked) else _over(heard)
        step = asked.steps[0]
        assert isinstance(step, Step)  # noqa: S101 - from `read`
        try:
            self._check_peer(step)
            if step.method.of_session or step.method.name in {REGISTER, SPAWN}:
                return Outcome.of(self._settling(step))
            if self._is_between_systems(step):
                return self._federated(step)
            self._check_stranger(step)
        except PostroomError as refused:
            return _over(step.refuse(refused) or None)
        caller, step = self._caller_of(step)
        owed = caller.carry_out(Asked([step]))
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
        named = step.said.get(method.whose) if method.whose is not None else None
        if named not in (None, self._participant) or self._reception.on(self._participant) is not None:
            told = f"{str(named or self._participant)[:128]!a} is no agent of this connection"
            raise NotAllowed(told, field=method.whose, hint="register it, or show a token")

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
            if name == SEND and "from" not in step.said:
                return self._opener(), replace(step, said={**step.said, "from": self._participant})
            if name.startswith(PREFIX):
                self._visitor = self._visitor or self._caller_for(self._participant)
                return self._visitor, step
        return self._opener(), step

    def _opener(self) -> Caller:
        assert self._caller is not None  # noqa: S101 - the session lets nothing pass before
        return self._caller

    def _after(self, step: Step, owed: Outcome) -> None:
        """What a call that was carried out means for the connection that has the agent, and for who listens."""
        reply = None if owed.cancelled() or owed.exception() is not None else owed.result()
        result = reply.get("result") if isinstance(reply, dict) else None
        if not isinstance(result, dict):
            return
        agent = result.get("agent")
        holder = self._reception.on(agent["id"]) if isinstance(agent, dict) else None
        if holder is not None and isinstance(agent, dict):
            if step.method.name == UNREGISTER:
                holder.drop(agent["id"])
            else:
                holder.pause(agent["id"], agent["state"])
        self._reception.telling.of_call(step.method.name, step.said, result)

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
                result = await self._register(step.said)
            elif step.method.name == SPAWN:
                result = await self._spawn(step.said)
            else:
                result = step.method.run(self, step.said)
                if asyncio.iscoroutine(result):
                    result = await result
            return step.answer(result) or None
        except PostroomError as refused:
            if isinstance(refused, Invalid | QuotaFull):
                self._reception.complaints.of_refusal(map_error(refused))
            return step.refuse(refused) or None

    # -- what it hears

    def subscribe(self, said: dict[str, Any]) -> dict[str, Any]:
        if sum(caller.subscriptions for caller in self._everyone()) >= MOST_SUBSCRIPTIONS:
            raise QuotaFull(f"{MOST_SUBSCRIPTIONS} subscriptions are enough", hint="map/unsubscribe from some")
        listener = self._listener()
        self._reception.check_subscriptions(listener.room.principal)
        return listener.subscribe(said | self._mailbox_of_client())

    def subscriptions_of(self, who: Principal) -> int:
        return sum(caller.subscriptions for caller in self._everyone() if caller.room.principal == who)

    def _mailbox_of_client(self) -> dict[str, str]:
        """One without agents is handed no mail; of letters for its name it is told, if it listens."""
        is_handed = self.session.agents or self._reception.on(self._participant) is not None
        return {} if is_handed else {MAILBOX: self._participant}

    def unsubscribe(self, said: dict[str, Any]) -> dict[str, Any]:
        id = said["subscription_id"]
        for caller in self._everyone():
            if caller.has(id):
                return caller.unsubscribe(id)
        raise Invalid(f"there is no subscription {id[:128]!a}", field="subscription_id", hint="from map/subscribe")

    def subscribe_ack(self, said: dict[str, Any]) -> dict[str, Any]:
        """Who does not read is told no more until it does, so nothing waits for this."""
        return {"success": any(caller.has(said["subscription_id"]) for caller in self._everyone())}

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

    def told(self) -> None:
        """The replies so far were said."""
        for caller in self._everyone():
            caller.told()
        if self._ending:
            self._rim.end(self._ending, "" if self._ending == GOODBYE else "too many wrong tokens", at_once=False)

    # -- its end

    def disconnect(self, said: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002 - why, is its own affair
        token = self._remembered() if self.session.is_in else None
        self._part()
        self._leave()
        self.session.step("close")
        self._ending = GOODBYE
        closed = {"id": self.session.id, "closedAt": milliseconds(self._office.now().wall)}
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
        self._reception.go(self)


def _is_ping(value: Any) -> bool:
    """Who only wants to know whether we are there is answered, and does nothing that is refused."""
    return isinstance(value, dict) and value.get("method") == PING


def _over(reply: dict[str, Any] | None) -> Outcome:
    """A reply that is known at once."""
    owed = Outcome()
    owed.set_result(reply)
    return owed
