"""One visit to the server, from the greeting until the line is cut. Everything is asked anew: who is there, what
came meanwhile; and who of ours is here is told anew.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import PostroomError
from ..wire.map_names import CONNECT, MESSAGE, REFRESH, REGISTER, REPLAY, SEND, UNREGISTER, VERSION
from . import directory, taking
from .line import LineLost, MapRefusal
from .neighbours import clean, neighbours, of_session
from .translating import incoming, outgoing
from .wants import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..desk import Desk
    from ..model.message import Message
    from .carrying import Carrier
    from .line import Line
    from .memory import Memory
    from .neighbours import Neighbour
    from .translating import Incoming
    from .wants import Wants

log = logging.getLogger("postroom")
LOOK = 15.0  # seconds between two looks around
SOON = 2.0  # the same while mail waits for somebody who is not there
MOST_HEARD = 10_000  # messages that wait to be taken; then the line is cut, and the server asked for them later
RECENT = 200  # messages asked for after a cut, as agent-inbox does
MOST_PAGES = 50
LIST = "map/agents/list"
MESSAGE_ACK = "map/message.ack"
EXPIRING = "map/auth/expiring"
_SENT = ["message.sent", "message_sent"]  # both spellings of the event
_AGAIN = (0.2, 5.0)  # seconds before a letter is put down again where the room is busy: the first time, at most


class Visit:
    """Made when the line is open; `run` ends by an error, always."""

    def __init__(
        self,
        desk: Desk,
        wants: Wants,
        memory: Memory,
        carrier: Carrier,
        rang: asyncio.Event,
        welcomed: Callable[[int], None],
    ) -> None:
        self._desk = desk
        self._room = desk.room.acting_as(directory.LINK)
        self._wants = wants
        self._method = wants.method
        self._memory = memory
        self._carrier = carrier
        self._rang = rang
        self._welcomed = welcomed
        self._heard: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(MOST_HEARD)
        self._own = ""  # the mailbox of the link itself
        self._shown: dict[str, str] = {}  # ours, by the ids they have there
        self._scopes: dict[str, frozenset[str]] = {}
        self._keeps_meta = True
        self._takes_acks = False  # does it keep a message until we say that it was put down?
        self.there: dict[str, Neighbour] = {}
        self.is_welcome = False

    def hear(self, method: str, params: Mapping[str, Any]) -> None:
        """What the server says of its own accord."""
        if method in {MESSAGE, SEND}:
            message = params.get("message", params)
            if isinstance(message, dict):
                try:
                    self._heard.put_nowait(message)
                except asyncio.QueueFull:
                    raise LineLost("more messages came than could be put down") from None
        elif method == EXPIRING and self._wants.token:
            self._heard.put_nowait({EXPIRING: True})

    async def run(self, line: Line) -> None:
        await self._greet(line)
        await self._look_around(line)
        await self._catch_up(line)
        self.is_welcome = True
        self._welcomed(len(self.there))
        taker = asyncio.ensure_future(self._take_all(line))
        try:
            await self._go_on(line, taker)
        finally:
            taker.cancel()
            with suppress(asyncio.CancelledError, LineLost, MapRefusal, PostroomError):
                await taker

    async def _go_on(self, line: Line, taker: asyncio.Future[None]) -> None:
        looked = monotonic()
        while not taker.done():
            self._rang.clear()
            if await self._carrier.look_at_news(self._memory.system):
                await self._show_ours(line)
            await self._carrier.carry(self.there, lambda letter, to: self._send(line, letter, to))
            wait = (SOON if self._carrier.waits_for_strangers else LOOK) - (monotonic() - looked)
            if wait <= 0:
                await self._look_around(line)
                looked = monotonic()
                continue
            ringing = asyncio.ensure_future(self._rang.wait())
            await asyncio.wait((ringing, taker), timeout=wait, return_when=asyncio.FIRST_COMPLETED)
            ringing.cancel()
        await taker

    # -- coming in

    async def _greet(self, line: Line) -> None:
        said: dict[str, Any] = {"protocolVersion": VERSION, "participantType": "agent"}
        said["capabilities"] = {"delivery": {"acks": True}}  # a word of ours; others pass it over
        said["name"] = self._wants.name or self._room.system
        if self._memory.resume:
            said["resumeToken"] = self._memory.resume
        told = await self._let_in(line, said)
        self._keeps_meta = (
            told.get("protocolVersion") == VERSION
        )  # the SDK's own server says "2024-12", and drops it
        self._takes_acks = _says_acks(told.get("capabilities"))
        resume, info = told.get("resumeToken"), told.get("systemInfo")
        self._memory.resume = resume if isinstance(resume, str) else ""
        name = info.get("name") if isinstance(info, dict) else None
        await self._desk.run_slow(lambda: self._be_called(name if isinstance(name, str) else ""))
        await self._introduce(line)

    def _credentials(self, method: str) -> dict[str, str]:
        return {"method": method, "credential": self._wants.token}

    async def _let_in(self, line: Line, said: dict[str, Any]) -> dict[str, Any]:
        """With the token, shown as we were told to; and once more as the server says it wants to see it."""
        auth = {"auth": self._credentials(self._method)} if self._wants.token else {}
        told = await line.ask(CONNECT, **said, **auth)
        if "authRequired" not in told or told.get("sessionId"):
            return told
        required = told["authRequired"]
        methods = required.get("methods") if isinstance(required, dict) else None
        known = [method for method in (methods or ()) if method in METHODS and method != self._method]
        if not self._wants.token:
            raise MapRefusal({"code": 1000, "message": f"it wants one of {methods}; set POSTROOM_MAP_TOKEN"})
        if not known:
            raise MapRefusal(told.get("error") or {"code": 1006, "message": f"the token is not taken: {methods}"})
        self._method = known[0]
        told = await line.ask(CONNECT, **said, auth=self._credentials(self._method))
        if "authRequired" in told and not told.get("sessionId"):
            raise MapRefusal(told.get("error") or {"code": 1006, "message": "the token is not taken"})
        return told

    def _be_called(self, server: str) -> None:
        """The server's name is the first part of its agents' names here, as long as its address is the same; and
        ours, where no other was given.
        """
        self._memory.called(clean(server, "map"))
        if not self._room.settings.system and server:
            service.identity.adopt(self._room._office, directory.LINK, clean(server, "map"))

    async def _introduce(self, line: Line) -> None:
        """The link's own agent comes first: what is said to our session is said to it."""
        name = self._wants.name or await self._desk.run_slow(lambda: self._room.system)
        self._own = clean(name, "map")
        told = await line.ask(REGISTER, name=name, agentId=self._own, role="inbox", **self._where())
        self._shown = {self._id_of(told): self._own}

    def _where(self) -> dict[str, Any]:
        return {"scopes": [self._wants.scope]} if self._wants.scope else {}

    @staticmethod
    def _id_of(told: Mapping[str, Any]) -> str:
        agent = told.get("agent")
        id = agent.get("id") if isinstance(agent, dict) else None
        if not isinstance(id, str) or not id:
            raise MapRefusal({"message": "it registers agents and gives them no id"})
        return id

    # -- who is where

    async def _look_around(self, line: Line) -> None:
        await self._hydrate(line)
        await self._show_ours(line)
        await self._carrier.look_everywhere(self._memory.system)
        await self._desk.run_slow(self._memory.keep)

    async def _hydrate(self, line: Line) -> None:
        rows: list[Any] = []
        cursor: dict[str, Any] = {}
        for _ in range(MOST_PAGES):
            told = await line.ask(LIST, **cursor)
            some = told.get("agents")
            rows += some if isinstance(some, list) else []
            if not isinstance(told.get("nextCursor"), str):
                break
            cursor = {"cursor": told["nextCursor"]}
        there = neighbours(rows, self._memory.system, self._shown, self.there)
        names = await self._desk.run_slow(lambda: directory.show_here(self._room, there, LOOK))
        self.there = {mailbox: one for mailbox, one in there.items() if mailbox in names}

    async def _show_ours(self, line: Line) -> None:
        agents = await self._desk.run_slow(lambda: directory.exposed(self._room, self._wants.expose))
        shown = {name: id for id, name in self._shown.items()}
        for name in shown.keys() - agents.keys() - {self._own}:
            with suppress(MapRefusal):
                await line.ask(UNREGISTER, agentId=shown[name])
            del self._shown[shown[name]]
        for name in agents.keys() - shown.keys():
            try:
                told = await line.ask(REGISTER, name=name, agentId=name, role="agent", **self._where())
            except MapRefusal as refused:
                log.warning("%s could not be shown at the MAP server: %s", name, refused)
                continue
            self._shown[self._id_of(told)] = name
        everyone = frozenset(self._shown.values()) - {self._own}
        joined = {scope for agent in agents.values() for scope in agent.card.scopes}
        self._scopes = {
            scope: frozenset(name for name, agent in agents.items() if scope in agent.card.scopes) & everyone
            for scope in joined
        } | ({self._wants.scope: everyone} if self._wants.scope else {})

    # -- out

    async def _send(self, line: Line, letter: Message, to: Neighbour) -> None:
        said = await self._desk.run_slow(lambda: self._said(letter, to))
        shown = {name: id for id, name in self._shown.items()}
        sender = {"from": shown[letter.sender]} if letter.sender in shown else {}  # else it is the link's own word
        await line.ask(SEND, **said, **sender)

    def _said(self, letter: Message, to: Neighbour) -> dict[str, Any]:
        office, left, answers = self._room._office, None, None
        if letter.expires_at is not None:
            left = (letter.expires_at - office.now().wall).total_seconds()
        if letter.in_reply_to is not None:
            answers = office.store.get((letter.in_reply_to,)).get(letter.in_reply_to)
        return outgoing(
            letter,
            system=self._room.system,
            to=to,
            expires_in=left,
            answers=None if answers is None else answers.message,
            beside=not self._keeps_meta,
        )

    # -- in

    async def _catch_up(self, line: Line) -> None:
        """What came while we were away, as far as the server can tell it. Many cannot."""
        missed: list[Any] = []
        with suppress(MapRefusal):
            told = await line.ask("mail/recent", limit=RECENT)
            missed += told.get("messages") or []
        if self._memory.seen:
            with suppress(MapRefusal):
                missed += await self._replayed(line)
        for message in missed:
            found = incoming(message) if isinstance(message, dict) else None
            if found is not None and found.speaker not in self._shown and taking.is_for(found, self._shown):
                await self._take(line, found)

    async def _replayed(self, line: Line) -> list[Any]:
        found: list[Any] = []
        since: dict[str, Any] = {"fromTimestamp": self._memory.seen}
        for _ in range(MOST_PAGES):
            told = await line.ask(REPLAY, **since, filter={"eventTypes": _SENT}, limit=RECENT)
            events = [event for event in told.get("events") or [] if isinstance(event, dict)]
            data = [event["event"].get("data") for event in events if isinstance(event.get("event"), dict)]
            found += [one.get("message", one) for one in data if isinstance(one, dict)]
            if not told.get("hasMore") or not events:
                break
            since = {"afterEventId": events[-1].get("eventId")}
        return found

    async def _take_all(self, line: Line) -> None:
        while True:
            message = await self._heard.get()
            if EXPIRING in message:
                await line.ask(REFRESH, **self._credentials(self._method))
                continue
            found = incoming(message)
            if found is not None:
                await self._take(line, found)

    async def _take(self, line: Line, message: Incoming) -> None:
        """Put it down, however long the room is busy: the server tells of it once."""
        sender = await self._speaker(line, message)
        pause, most = _AGAIN
        while True:
            try:
                await self._desk.run_slow(lambda: self._put_down(message, sender))
            except PostroomError as busy:
                if not busy.temporary:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, most)
            else:
                break
        self._memory.saw(message.at)
        if self._takes_acks and message.id:
            await line.tell(MESSAGE_ACK, messageIds=[message.id])

    def _put_down(self, message: Incoming, sender: str) -> None:
        to = taking.recipients(self._room, message, self._shown, self._scopes, self._own)
        taking.take(self._room, message, sender, to)

    async def _speaker(self, line: Line, message: Incoming) -> str:
        """Whose letter it is. The SDK's server names the session of who spoke, and can be asked who is in it."""
        found = self._known(message.speaker)
        if found is None:
            await self._hydrate(line)
            found = self._known(message.speaker)
        if found is None:
            with suppress(MapRefusal):
                told = await line.ask(LIST, sessionId=message.speaker)
                rows = told.get("agents")
                rows = rows if isinstance(rows, list) else []
                found = of_session(rows, self._shown, self.there, message.session_speaker)
        return found or f"{self._memory.system}/{clean(message.speaker, 'somebody')}"

    def _known(self, speaker: str) -> str | None:
        return next((one.mailbox for one in self.there.values() if speaker in {one.id, one.title}), None)


def _says_acks(capabilities: Any) -> bool:
    delivery = capabilities.get("delivery") if isinstance(capabilities, dict) else None
    return isinstance(delivery, dict) and delivery.get("acks") is True
