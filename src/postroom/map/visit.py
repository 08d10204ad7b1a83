"""What is wanted of a link: the server, as whom, and who is shown there. Checked before anything is dialled."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ..core import peers
from ..errors import Invalid, PostroomError
from ..federation.connection import LineLost, MapRefusal, is_near
from ..formats.map import CONNECT, DENIED, MESSAGE, REFRESH, SEND, SOFTWARE, VERSION
from ..model.names import check_agent, check_scope
from . import carrier as map_carrier
from . import directory
from .carrier import Stranded, correlation_of, incoming, outgoing, told_of
from .directory import ALL, NONE, Showing, by_any_name, clean, neighbours, of_session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..federation.connection import Line
    from ..model.message import Message
    from ..server.events import Event
    from ..server.executor import Executor
    from .carrier import Carrier, Incoming
    from .directory import Neighbour
    from .link import Memory


METHODS = ("bearer", "api-key")


class Wants(Struct, frozen=True, kw_only=True):
    """A link, as it is asked for."""

    server: str  # ws://... or wss://...
    scope: str = ""  # in which our agents are there
    name: str = ""  # of the link's own agent there; the room's by default
    expose: str = ALL  # all, none, or names with commas
    token: str = ""
    method: str = METHODS[0]  # how the token is shown first; a server that wants it otherwise says so


def checked(wants: Wants) -> Wants:
    """The same, or an error that names what is wrong."""
    place = urlsplit(wants.server)
    if place.scheme not in {"ws", "wss"} or not place.hostname:
        hint = "such as ws://127.0.0.1:8080 or wss://map.example.com"
        raise Invalid(f"{wants.server!a} is no WebSocket address", field="map-server", hint=hint)
    if wants.token and place.scheme == "ws" and not is_near(wants.server):
        raise Invalid(
            "a token would go there for everybody to read",
            field="map-server",
            hint="wss://, or no POSTROOM_MAP_TOKEN",
        )
    if wants.method not in METHODS:
        raise Invalid(f"{wants.method!a} is no way to show a token", field="map-auth", hint=", ".join(METHODS))
    if wants.scope:
        check_scope(wants.scope, "map-scope")
    if wants.name:
        check_agent(wants.name, "map-name")
    if wants.expose not in {ALL, NONE}:
        for name in wants.expose.split(","):
            check_agent(name.strip(), "map-expose")
    return wants


# The first words of a visit: who we are, and by which token; and what the server says of itself.

FIRST_ANSWER = 10.0  # seconds


class Welcome(Struct, frozen=True, kw_only=True):
    """What the server says of itself."""

    name: str
    session: str  # what it calls this connection
    is_postroom: bool  # then its name is that of another room, and not of a net of them
    resume: str  # a token with which a later visit goes on with this one
    back: tuple[str, ...]  # the ids of agents of ours that it gave back with that: their mail may come at once
    method: str  # how it wants to see our token
    keeps_meta: bool  # the SDK's own server says that its protocol is "2024-12", and drops `meta`
    takes_acks: bool  # does it keep a message until we say that it was put down?


async def greet(line: Line, wants: Wants, name: str, resume: str) -> Welcome:
    """MapRefusal: we are not let in."""
    params: dict[str, Any] = {
        "protocolVersion": VERSION,
        "participantType": "agent",
        "name": name,
        "capabilities": {"delivery": {"acks": True}},  # a word of ours; others pass it over
    }
    result, method = await _let_in(line, wants, params | ({"resumeToken": resume} if resume else {}))
    info, token, session = _object(result.get("systemInfo")), result.get("resumeToken"), result.get("sessionId")
    system = info.get("name")
    return Welcome(
        name=system if isinstance(system, str) else "",
        session=session if isinstance(session, str) else "",
        is_postroom=info.get("software") == SOFTWARE,
        resume=token if isinstance(token, str) else "",
        back=tuple(row["id"] for row in _rows(result.get("reclaimedAgents"))),
        method=method,
        keeps_meta=result.get("protocolVersion") == VERSION,
        takes_acks=_object(_object(result.get("capabilities")).get("delivery")).get("acks") is True,
    )


def credentials(wants: Wants, method: str) -> dict[str, str]:
    return {"method": method, "credential": wants.token}


async def _let_in(line: Line, wants: Wants, params: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """With the token, shown as we were told to; and once more as the server says it wants to see it."""
    auth = {"auth": credentials(wants, wants.method)} if wants.token else {}
    result = await _first_answer(line, **params, **auth)
    if not _is_shut(result):
        return result, wants.method
    methods = _object(result["authRequired"]).get("methods")
    if not wants.token:
        raise MapRefusal({"code": 1000, "message": f"it wants one of {methods}; set POSTROOM_MAP_TOKEN"})
    other = next((word for word in METHODS if isinstance(methods, list) and word in methods), wants.method)
    if other != wants.method:
        result = await line.ask(CONNECT, **params, auth=credentials(wants, other))
    if _is_shut(result):
        raise MapRefusal(result.get("error") or {"code": 1006, "message": f"the token is not taken; {methods} is"})
    return result, other


async def _first_answer(line: Line, **params: Any) -> dict[str, Any]:
    """What takes connections and says nothing is something else, or not wired up."""
    try:
        async with asyncio.timeout(FIRST_ANSWER):
            return await line.ask(CONNECT, **params)
    except TimeoutError:
        text = f"it takes the connection, and did not answer {CONNECT} in {FIRST_ANSWER:g} s (is it a MAP server?)"
        raise LineLost(text) from None


def _is_shut(result: dict[str, Any]) -> bool:
    return "authRequired" in result and not result.get("sessionId")


def _rows(value: Any) -> list[dict[str, Any]]:
    rows = value if isinstance(value, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


# One visit to the server, from the greeting until the line is cut. Everything is asked anew: who is there, what
# came meanwhile; and who of ours is here is told anew.

log = logging.getLogger("postroom")
LOOK = 15.0  # seconds between two looks around
SOON = 2.0  # the same while mail waits for somebody who is not there
MOST_HEARD = 10_000  # messages that wait to be taken; then the line is cut, and the server asked for them later
MOST_EMITTED = 1000  # events that wait to be told; then the oldest is not
MESSAGE_ACK = "map/message.ack"
EXPIRING = "map/auth/expiring"
_AGAIN = (0.2, 5.0)  # seconds before a letter is put down again where the room is busy: the first time, at most


class Visit:
    """Made before the line is open; `run` ends by an error, always."""

    def __init__(
        self,
        executor: Executor,
        wants: Wants,
        memory: Memory,
        carrier: Carrier,
        rang: asyncio.Event,
        welcomed: Callable[[int], None],
    ) -> None:
        self._executor = executor
        self._room = executor.room.acting_as(directory.LINK)
        self._wants = wants
        self._memory = memory
        self._carrier = carrier
        self._rang = rang
        self._welcomed = welcomed
        self._heard: asyncio.Queue[tuple[str, Mapping[str, Any]]] = asyncio.Queue(MOST_HEARD)
        self._came = asyncio.Event()
        self._emitted: deque[Event] = deque(maxlen=MOST_EMITTED)
        self._own = wants.name or memory.name  # of the link itself: its agent there, its mailbox here
        self._ours = Showing(executor, wants, memory, self._own)
        self._sent = 0  # letters
        self._hidden: set[str] = set()  # theirs whose names are taken here
        self._everyone: set[str] = set()  # the ids of all that the server listed
        self._sessions: dict[str, list[Any]] = {}  # the agents of each that spoke, as the server told it
        self.there: dict[str, Neighbour] = {}

    def hear(self, method: str, params: Mapping[str, Any]) -> None:
        """What the server says of its own accord."""
        if method not in {MESSAGE, SEND, EXPIRING}:
            return
        try:
            self._heard.put_nowait((method, params))
            self._came.set()
        except asyncio.QueueFull:
            raise LineLost("more messages came than could be put down") from None

    def emit(self, event: Event) -> None:
        """To be told to the link's scope."""
        self._emitted.append(event)
        self._rang.set()

    async def run(self, line: Line) -> None:
        welcome = await greet(line, self._wants, self._own, self._memory.resume)
        self._memory.resume = welcome.resume
        await self._executor.run_slow(lambda: self._be_called(welcome))
        await self._ours.come_back(welcome.back, takes_again=welcome.is_postroom)
        taker = asyncio.ensure_future(self._take_all(line, welcome))
        try:
            await self._ours.introduce(line)
            await self._look_around(line)
            if not welcome.takes_acks:  # else what was missed was kept, and is handed over
                await self._catch_up(line)
            stranded = await self._stranded(line, welcome)
            self._welcomed(len(self.there))
            await self._go_on(line, welcome, taker, stranded)
        finally:
            line.cut()
            await _to_its_end(taker)  # what came is put down, though the line is cut

    async def _go_on(self, line: Line, welcome: Welcome, taker: asyncio.Future[None], stranded: Stranded) -> None:
        looked = monotonic()
        while not taker.done() and not line.lost.is_set():
            self._rang.clear()
            if await self._carrier.look_at_news(self._memory.system):
                await self._ours.show(line)
            await self._tell_scope(line)
            if await self._carry(line, welcome):
                stranded.wrote()
            if stranded.wait <= 0:
                await self._take_stranded(line, stranded)
            wait = (SOON if self._carrier.waits_for_strangers else LOOK) - (monotonic() - looked)
            if wait <= 0:
                await self._look_around(line)
                looked = monotonic()
                continue
            await _first(min(wait, stranded.wait), self._rang, line.lost, taker)
        if taker.done():
            await taker
        raise LineLost("the connection was cut")

    # -- who is where

    def _be_called(self, welcome: Welcome) -> None:
        """The server's name is the first part of its agents' names here, as long as its address is the same; and
        ours, where we have no other. Another Postroom's is its own: two rooms of one name get each other's mail.
        """
        name = clean(welcome.name)
        self._memory.called(name or "map")
        if name and not welcome.is_postroom and not self._room.settings.system:
            peers.adopt(self._room._core, directory.LINK, name)

    async def _look_around(self, line: Line) -> None:
        await self._hydrate(line)  # first: who writes to ours once they are shown must be known by name
        await self._ours.show(line)
        await self._carrier.look_everywhere(self._memory.system)
        await self._executor.run_slow(self._memory.keep)

    async def _hydrate(self, line: Line) -> None:
        self._sessions.clear()
        rows = await directory.everybody(line)
        self._everyone = {row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)}
        self._ours.compare(rows)
        there = neighbours(rows, self._memory.system, self._ours.names, self.there, self._own)
        self.there = await self._executor.run_slow(lambda: directory.show_here(self._room, there, LOOK))
        shown = {one.id for one in self.there.values()}
        hidden = {mailbox for mailbox, one in there.items() if one.is_here and one.id not in shown}
        for mailbox in sorted(hidden - self._hidden):
            log.warning("an agent of the MAP server is not shown: %s is one of ours", mailbox)
        self._hidden = hidden

    # -- out

    async def _carry(self, line: Line, welcome: Welcome) -> bool:
        """Was anything sent?"""
        before = self._sent
        there = by_any_name(self.there, self._memory.system)
        left = await self._carrier.carry(there, lambda letter, to: self._send(line, welcome, letter, to))
        gone = {there[mailbox].id for mailbox in left}  # until they are listed anew, under whatever ids
        self.there = {mailbox: one for mailbox, one in self.there.items() if one.id not in gone}
        return self._sent > before

    async def _send(self, line: Line, welcome: Welcome, letter: Message, to: Neighbour) -> None:
        await self._ours.be_answerable(line, letter.sender)
        try:
            result = await self._hand_over(line, welcome, letter, to)
        except MapRefusal as refused:
            if refused.code != DENIED or not await self._ours.has_lost(line, letter.sender):
                raise
            result = await self._hand_over(line, welcome, letter, to)  # the link says it
        self._sent += 1
        self._memory.sent(result.get("messageId"), letter.id)
        word = correlation_of(letter.metadata)
        if word is not None:
            self._memory.remember_question(letter.sender, to.mailbox, word, letter.id)

    async def _hand_over(self, line: Line, welcome: Welcome, letter: Message, to: Neighbour) -> dict[str, Any]:
        params = await self._executor.run_slow(lambda: self._said(letter, to, beside=not welcome.keeps_meta))
        keeps = welcome.is_postroom  # mail for who is away
        return await (line.ask(SEND, **params) if keeps else directory.hand_over(line, params, to.id))

    async def _tell_scope(self, line: Line) -> None:
        while self._emitted:
            with suppress(MapRefusal):  # nobody else may be in it
                where = self._ours.scoping.id_of(self._wants.scope)
                await line.ask(SEND, to={"scope": where}, **told_of(self._emitted.popleft()))

    def _said(self, letter: Message, to: Neighbour, *, beside: bool) -> dict[str, Any]:
        core, left, answers = self._room._core, None, None
        if letter.expires_at is not None:
            left = (letter.expires_at - core.now().wall).total_seconds()
        if letter.in_reply_to is not None:
            answers = core.store.get((letter.in_reply_to,)).get(letter.in_reply_to)
        params = outgoing(
            letter,
            system=self._own,
            to=to,
            expires_in=left,
            answers=None if answers is None else answers.message,
            beside=beside,
        )
        ids = self._ours.ids
        return params | ({"from": ids[letter.sender]} if letter.sender in ids else {})  # else the link says it

    # -- in

    async def _catch_up(self, line: Line) -> None:
        """What came while we were away, as far as the server can tell it. Many cannot."""
        for message in await directory.missed(line, self._memory.seen):
            found = incoming(message)
            if found is not None and map_carrier.is_for(found, self._ours.names):
                await self._take(line, found)

    async def _stranded(self, line: Line, welcome: Welcome) -> Stranded:
        """Only the SDK's own server has such messages."""
        stranded = Stranded(line, self._memory.last_event)
        if not welcome.keeps_meta:
            self._memory.is_called(welcome.session, self._own)
            await stranded.begin()
        return stranded

    async def _take_stranded(self, line: Line, stranded: Stranded) -> None:
        for id, message in await stranded.found(self._memory.addresses):
            found = incoming(message)
            if found is not None:
                await self._take(line, await self._meant(line, found, self._memory.addresses[id]))
        self._memory.last_event = stranded.since

    async def _meant(self, line: Line, message: Incoming, name: str) -> Incoming:
        """The same, for the one of ours that has another id by now; or for whom it answers, as far as that is
        certain: it says only that it is for somebody on our connection.
        """
        if name != self._own:
            return replace(message, to={"agent": name})
        sender = await self._speaker(line, message)
        asker, letter = await self._executor.run_slow(lambda: map_carrier.only_asker(self._room, sender))
        return replace(message, to={"agent": asker or name}, answers=letter)

    async def _take_all(self, line: Line, welcome: Welcome) -> None:
        while not (line.lost.is_set() and self._heard.empty()):
            if self._heard.empty():
                await _first(LOOK, line.lost, self._came)
                continue
            self._came.clear()
            method, params = self._heard.get_nowait()
            if method == EXPIRING:
                await self._refresh(line, welcome)
                continue
            message = params.get("message", params)
            found = incoming(message) if isinstance(message, dict) else None
            if found is None:
                continue
            await self._take(line, found)
            if welcome.takes_acks and found.id:
                with suppress(LineLost):
                    await line.tell(MESSAGE_ACK, messageIds=[found.id])

    async def _refresh(self, line: Line, welcome: Welcome) -> None:
        if self._wants.token:
            with suppress(MapRefusal, LineLost):  # it says so once more when it does not let us do anything
                await line.ask(REFRESH, **credentials(self._wants, welcome.method))

    async def _take(self, line: Line, message: Incoming) -> None:
        """Put it down, however long the room is busy: the server tells of it once."""
        if message.speaker in self._ours.names:  # our own words
            return
        sender = await self._speaker(line, message)
        pause, most = _AGAIN
        while True:
            try:
                await self._executor.run_slow(lambda: self._put_down(message, sender))
            except PostroomError as busy:
                if not busy.temporary:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, most)
            else:
                self._memory.saw(message.at)
                return

    def _put_down(self, message: Incoming, sender: str) -> None:
        if message.answers is not None:
            message = replace(message, answers=self._memory.ours(message.answers))
        to = map_carrier.recipients(self._room, message, self._ours.names, self._ours.members, self._own)
        to = [directory.spelt(self._room, name) for name in to]
        sender = directory.sender_of(self._room, sender)
        request = self._asked(message, sender, to)
        map_carrier.take(self._room, message if request is None else replace(message, answers=request), sender, to)

    def _asked(self, message: Incoming, sender: str, to: Sequence[str]) -> str | None:
        """Which letter of ours it answers, by the word that this one said."""
        word = correlation_of(message.meta)
        if word is None or message.meta.get("isResult") is not True or "inReplyTo" in message.meta:
            return None
        found = (self._memory.asked_by(name, sender, word) for name in to)
        return next((id for id in found if id is not None), None)

    async def _speaker(self, line: Line, message: Incoming) -> str:
        """Whose letter it is. The SDK's server names the session of who spoke, and can be asked who is in it."""
        session = message.speaker
        found = self._known(session)
        if found is None and session not in self._sessions:
            with suppress(LineLost, MapRefusal):  # what came is put down all the same
                await self._ask_for(line, session)
            found = self._known(session)
        if found is None:
            found = of_session(self._sessions.get(session, []), self._everyone, self.there, message.says_from)
        return found or f"{self._memory.system}/{clean(session, 'somebody')}"

    async def _ask_for(self, line: Line, session: str) -> None:
        rows = await directory.of_one_session(line, session)
        if not rows or not {row.get("id") for row in rows if isinstance(row, dict)} <= self._ids():
            await self._hydrate(line)  # somebody came since we looked
        self._sessions[session] = rows

    def _known(self, speaker: str) -> str | None:
        return next((one.mailbox for one in self.there.values() if speaker == one.id), None)

    def _ids(self) -> set[str]:
        return {one.id for one in self.there.values()} | self._ours.names.keys()


async def _first(seconds: float, *waits: asyncio.Event | asyncio.Future[None]) -> None:
    """Until one of these, or so long."""
    made: list[asyncio.Future[Any]] = [
        asyncio.ensure_future(one.wait()) for one in waits if isinstance(one, asyncio.Event)
    ]
    others: list[asyncio.Future[Any]] = [one for one in waits if not isinstance(one, asyncio.Event)]
    try:
        await asyncio.wait([*made, *others], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in made:
            one.cancel()


async def _to_its_end(task: asyncio.Future[None]) -> None:
    """Wait for it; who does not want to wait any longer ends it, too."""
    try:
        await asyncio.wait((task,))
    finally:
        task.cancel()
