"""The link to a MAP server: dial, run a session, and after a cut dial again with growing pauses.

`LinkOptions` are its settings, checked before anything is dialled. `LinkMemory` is what the room keeps of the
server between two sessions and after a restart: its name here, our name there, up to when its messages were
stored, its ids of the last letters that we sent, and which of our agents wrote them. `LinkSession` lasts from the
handshake until the connection is lost: messages of the server become letters here
(`link_messages.store_incoming`), letters for its agents are sent there (`link_messages.LinkSender`), and both
directories are kept in step (`link_directory`). `MapLink` runs one after the other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ..core import peers
from ..core.core import change_record, find_letter, find_value
from ..core.names import mailbox_named
from ..errors import Invalid, PostroomError
from ..federation.connection import ConnectionLost, MapRefusal, is_near
from ..federation.dialler import connected, keep_connected
from ..formats.events import event_params
from ..formats.map import (
    CONNECT,
    DENIED,
    MESSAGE,
    REFRESH,
    SEND,
    SOFTWARE,
    VERSION,
    correlation_of,
    decode_message,
    encode_send,
)
from ..model.codec import blake2b, encode
from ..model.names import check_agent, check_scope
from ..model.record import MAP_LINK
from ..model.values import object_in, text_in
from ..watcher import room_watch
from . import link_directory, link_messages
from .link_directory import (
    ALL,
    NONE,
    ExposedAgents,
    by_any_name,
    clean,
    of_session,
    read_agents,
    remote_agents,
)
from .link_messages import LinkSender, UndeliveredMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from ..core.core import Core
    from ..federation.connection import RpcConnection
    from ..formats.events import Event
    from ..formats.map import Incoming
    from ..model.message import Message
    from ..server.executor import Executor
    from .link_directory import RemoteAgent

    T = TypeVar("T")


log = logging.getLogger("postroom")
METHODS = ("bearer", "api-key")


class LinkOptions(Struct, frozen=True, kw_only=True):
    """The settings of a link."""

    server: str  # ws://... or wss://...
    scope: str = ""  # that our agents join there
    name: str = ""  # of the link's own agent there; by default the room's name
    expose: str = ALL  # all, none, or names with commas
    token: str = ""
    method: str = METHODS[0]  # of showing the token first; a server that wants another one says so

    def __post_init__(self) -> None:
        """Raise Invalid with the name of the option that is wrong."""
        place = urlsplit(self.server)
        if place.scheme not in {"ws", "wss"} or not place.hostname:
            raise Invalid(
                f"{self.server!a} is no WebSocket address",
                field="map-server",
                hint="such as ws://127.0.0.1:8080 or wss://map.example.com",
            )
        # Tokens never cross a network in the clear.
        if self.token and place.scheme == "ws" and not is_near(self.server):
            raise Invalid(
                "a token would go there for everybody to read",
                field="map-server",
                hint="wss://, or no POSTROOM_MAP_TOKEN",
            )
        if self.method not in METHODS:
            raise Invalid(
                f"{self.method!a} is not a supported auth method",
                field="map-auth",
                hint=", ".join(METHODS),
            )
        if self.scope:
            check_scope(self.scope, "map-scope")
        if self.name:
            check_agent(self.name, "map-name")
        if self.expose not in {ALL, NONE}:
            for name in self.expose.split(","):
                check_agent(name.strip(), "map-expose")


# -- what the room keeps of the server

MOST_ADDRESSES = 1000  # ids that our agents had there
MOST_WRITERS = 200  # agents of ours that wrote there last, and are registered there for an answer
MOST_SENT = 1000  # letters that can be answered by the server's ids; older ones only by ours
LONGEST_ID = 200


class LinkMemory(Struct, kw_only=True):
    """The room's record of one server."""

    name: str  # our own there: the room may take the server's name later
    system: str = ""  # the server's name here
    seen: int = 0  # when its last stored message was sent: milliseconds, by its clock
    sent: dict[str, str] = {}  # our letters, by the server's ids and by `_correlation_key`
    writers: list[str] = []  # the most recent one last
    addresses: dict[str, str] = {}  # names of ours, by ids there
    heard: str = ""  # the last of its events that was read

    @classmethod
    def load(cls, core: Core, server: str) -> LinkMemory:
        name = peers.system_id(core, gives_way=True)
        return find_value(core, MAP_LINK, _record_key(server), cls) or cls(name=name)

    def save(self, core: Core, server: str) -> None:
        change_record(core, MAP_LINK, _record_key(server), LinkMemory, lambda _: self, durable=False)

    def note_sent(self, theirs: Any, ours: str) -> None:
        """Record the server's id of a letter of ours: answers name that one."""
        if isinstance(theirs, str):
            _note(self.sent, theirs, ours, MOST_SENT)

    def note_writer(self, name: str) -> None:
        """Record that an agent of ours wrote to the server."""
        self.writers = [*(one for one in self.writers if one != name), name][-MOST_WRITERS:]

    def note_address(self, id: str, name: str) -> None:
        """Record the id of an agent of ours there. Messages may go to it even when the agent has another."""
        if id != name:
            _note(self.addresses, id, name, MOST_ADDRESSES)

    def note_correlation(self, sender: str, mailbox: str, correlation: str, ours: str) -> None:
        """Record the correlation id by which a sender of ours knows the answer to a letter."""
        self.note_sent(_correlation_key(sender, mailbox, correlation), ours)

    def letter_for(self, sender: str, mailbox: str, correlation: str) -> str | None:
        """Return the letter that an answer with this correlation id, from that mailbox, belongs to."""
        return self.sent.get(_correlation_key(sender, mailbox, correlation))


def _record_key(server: str) -> str:
    return blake2b(server.encode(), digest_size=16).hexdigest()


def _note(known: dict[str, str], id: str, value: str, most: int) -> None:
    """Add an entry, unless its id is out of all bounds, and forget the oldest."""
    if 0 < len(id) <= LONGEST_ID:
        known[id] = value
    while len(known) > most:
        del known[next(iter(known))]


def _correlation_key(sender: str, mailbox: str, correlation: str) -> str:
    """Return a key that is unique to a pair of sender and mailbox: others may use the same correlation id."""
    return blake2b(encode([sender, mailbox, correlation]), digest_size=16).hexdigest()


# -- handshake

FIRST_ANSWER = 10.0  # seconds


class ServerInfo(Struct, frozen=True, kw_only=True):
    """A server's description of itself in the handshake."""

    name: str
    session: str  # its id of this connection
    is_postroom: bool  # then its name is that of another room, not of a group of rooms
    resume: str  # the token that brings our agents back in the next session
    back: tuple[str, ...]  # ids of our agents that it gave back: their mail may come at once
    method: str  # of showing our token that it accepted
    keeps_meta: bool  # the SDK's own server says that its protocol is "2024-12", and drops `meta`
    takes_acks: bool  # does it keep a message until we acknowledge it?


async def handshake(rpc: RpcConnection, options: LinkOptions, name: str, resume: str) -> ServerInfo:
    """Connect to the server, with our token; MapRefusal: it does not admit us."""
    params: dict[str, Any] = {
        "protocolVersion": VERSION,
        "participantType": "agent",
        "name": name,
        "capabilities": {"delivery": {"acks": True}},  # our own extension; other servers ignore it
    }
    params |= {"resumeToken": resume} if resume else {}
    method, auth = options.method, {"auth": credentials(options, options.method)} if options.token else {}
    try:
        # A program that accepts and stays silent is no MAP server.
        async with asyncio.timeout(FIRST_ANSWER):
            result = await rpc.call(CONNECT, **params, **auth)
    except TimeoutError:
        raise ConnectionLost(
            f"it takes the connection, and did not answer {CONNECT} in {FIRST_ANSWER:g} s (is it a MAP server?)"
        ) from None
    if _is_refused(result):
        methods = object_in(result, "authRequired").get("methods")
        if not options.token:
            raise MapRefusal({"code": 1000, "message": f"it wants one of {methods}; set POSTROOM_MAP_TOKEN"})
        other = next((word for word in METHODS if isinstance(methods, list) and word in methods), method)
        if other != method:  # our token once more, by the method that the server wants
            method = other
            result = await rpc.call(CONNECT, **params, auth=credentials(options, method))
        if _is_refused(result):
            text = f"the token is not taken; {methods} is"
            raise MapRefusal(result.get("error") or {"code": 1006, "message": text})
    info = object_in(result, "systemInfo")
    return ServerInfo(
        name=text_in(info, "name") or "",
        session=text_in(result, "sessionId") or "",
        is_postroom=info.get("software") == SOFTWARE,
        resume=text_in(result, "resumeToken") or "",
        back=tuple(one.id for one in read_agents(result.get("reclaimedAgents"))),
        method=method,
        keeps_meta=result.get("protocolVersion") == VERSION,
        takes_acks=object_in(object_in(result, "capabilities"), "delivery").get("acks") is True,
    )


def credentials(options: LinkOptions, method: str) -> dict[str, str]:
    return {"method": method, "credential": options.token}


def _is_refused(result: dict[str, Any]) -> bool:
    return "authRequired" in result and not result.get("sessionId")


# -- the session

LOOK = 15.0  # seconds between two comparisons of the directories
SOON = 2.0  # seconds, while mail waits for an agent that is not listed
MOST_INBOUND = 10_000  # messages that wait to be stored; then the connection is ended, and they are replayed later
MOST_EMITTED = 1000  # events that wait to be passed on; then the oldest is dropped
MESSAGE_ACK = "map/message.ack"
EXPIRING = "map/auth/expiring"
_AGAIN = (0.2, 5.0)  # seconds before another try where the room is busy: the first time, at most


class LinkSession:
    """One session, made before the connection is open; `run` always ends by an error."""

    def __init__(self, link: MapLink) -> None:
        self._link = link
        self._inbound: asyncio.Queue[tuple[str, Mapping[str, Any]] | None] = asyncio.Queue()  # None: the end
        self._emitted: deque[Event] = deque(maxlen=MOST_EMITTED)
        self._link_name = link.options.name or link.memory.name  # the link's own agent there, and its mailbox here
        self._exposed = ExposedAgents(link, self._link_name)
        self._sent_count = 0  # letters
        self._name_conflicts: set[str] = set()  # mailboxes of theirs whose names are taken here
        self._listed_ids: set[str] = set()  # the ids of all agents that the server listed
        self._sessions: dict[str, list[RemoteAgent]] = {}  # by session of a sender: the agents in it
        self.remote: dict[str, RemoteAgent] = {}

    def on_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Queue a notification of the server."""
        if method not in {MESSAGE, SEND, EXPIRING}:
            return
        if self._inbound.qsize() >= MOST_INBOUND:
            # Nothing is dropped: the server keeps or replays them in the next session (G10).
            raise ConnectionLost("more messages came than could be stored")
        self._inbound.put_nowait((method, params))

    def emit(self, event: Event) -> None:
        """Queue an event for the link's scope."""
        self._emitted.append(event)
        self._link.woken.set()

    async def run(self, rpc: RpcConnection) -> None:
        """Connect, synchronise, then carry messages both ways until the connection is lost."""
        server = await handshake(rpc, self._link.options, self._link_name, self._link.resume)
        self._link.resume = server.resume
        await self._link.executor.run_slow(lambda: self._adopt_names(server))
        await self._exposed.reclaim(server.back, accepts_updates=server.is_postroom)
        # Before we register: the server may send mail of our agents at once.
        storing = asyncio.ensure_future(self._store_all(rpc, server))
        storing.add_done_callback(lambda _: self._link.woken.set())
        try:
            # First of all: the SDK's server sends messages for our session to the first agent.
            await self._exposed.register_link(rpc)
            await self._sync_directories(rpc)
            if not server.takes_acks:  # else the server kept what we missed, and sends it
                # What came while we were away, as far as the server can replay it. Many cannot.
                for message in await link_directory.missed_messages(rpc, self._link.memory.seen):
                    found = decode_message(message)
                    if found is not None and link_messages.is_for(found, self._exposed.names):
                        await self._store_message(rpc, found)
            undelivered = UndeliveredMessages(rpc, self._link.memory.heard)
            if not server.keeps_meta:  # only the SDK's own server leaves messages undelivered
                self._link.memory.note_address(server.session, self._link_name)
                await undelivered.begin()
            self._link.connected(len(self.remote))
            await self._run_until_lost(rpc, server, storing, undelivered)
        finally:
            rpc.abort()
            self._inbound.put_nowait(None)
            try:
                await asyncio.wait((storing,))  # messages that came are stored, though the connection is lost
            finally:
                storing.cancel()

    async def _run_until_lost(
        self,
        rpc: RpcConnection,
        server: ServerInfo,
        storing: asyncio.Future[None],
        undelivered: UndeliveredMessages,
    ) -> None:
        looked = monotonic()
        while not storing.done() and not rpc.lost.is_set():
            # Before the look: what comes during it wakes us again.
            self._link.woken.clear()
            if await self._link.sender.scan_new(self._link.memory.system):
                await self._exposed.register_changed(rpc)
            while self._emitted:
                with suppress(MapRefusal):  # the scope has no other member
                    where = self._exposed.scope_id_of(self._link.options.scope)
                    await rpc.call(SEND, to={"scope": where}, **event_params(self._emitted.popleft()))
            if await self._send_waiting(rpc, server):
                undelivered.note_sent()
            if undelivered.wait <= 0:
                await self._store_undelivered(rpc, undelivered)
            wait = (SOON if self._link.sender.has_unknown_recipients else LOOK) - (monotonic() - looked)
            if wait <= 0:
                await self._sync_directories(rpc)
                looked = monotonic()
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait, undelivered.wait)):
                    await self._link.woken.wait()
        if storing.done():
            await storing
        raise ConnectionLost("the connection was cut")

    # -- directories

    def _adopt_names(self, server: ServerInfo) -> None:
        """Take the server's name as the first part of its agents' names here.

        Also as our own name, if we have none.

        The name of another Postroom is not taken as our own: two rooms of one name would get each other's mail.
        """
        name = clean(server.name)
        memory = self._link.memory
        memory.system = memory.system or name or "map"  # the first stays: mail waits under it
        memory.save(self._link.core, self._link.options.server)
        if name and not server.is_postroom and not self._link.core.system:
            peers.adopt(self._link.core, name)

    async def _sync_directories(self, rpc: RpcConnection) -> None:
        # First: an agent that writes to ours, once they are registered there, must be known by name.
        await self._fetch_agents(rpc)
        await self._exposed.register_changed(rpc)
        await self._link.sender.scan_all(self._link.memory.system)
        await self._link.run_slow(self._link.memory.save, self._link.options.server)

    async def _fetch_agents(self, rpc: RpcConnection) -> None:
        self._sessions.clear()
        listed = await link_directory.all_agents(rpc)
        self._listed_ids = {one.id for one in listed}
        self._exposed.drop_lost(listed)
        remote = remote_agents(listed, self._link.memory.system, self._exposed.names, self.remote, self._link_name)
        self.remote = await self._link.run_slow(link_directory.register_here, remote, LOOK)
        shown = {one.id for one in self.remote.values()}
        hidden = {mailbox for mailbox, one in remote.items() if one.is_here and one.id not in shown}
        for mailbox in sorted(hidden - self._name_conflicts):
            log.warning("an agent of the MAP server is not shown: %s is one of ours", mailbox)
        self._name_conflicts = hidden

    # -- out

    async def _send_waiting(self, rpc: RpcConnection, server: ServerInfo) -> bool:
        """Send what waits; return whether anything was sent."""
        before = self._sent_count
        remote = by_any_name(self.remote, self._link.memory.system)
        left = await self._link.sender.send_waiting(remote, lambda letter, to: self._send(rpc, server, letter, to))
        gone = {remote[mailbox].id for mailbox in left}  # until they are listed again, maybe under other ids
        self.remote = {mailbox: one for mailbox, one in self.remote.items() if one.id not in gone}
        return self._sent_count > before

    async def _send(self, rpc: RpcConnection, server: ServerInfo, letter: Message, to: RemoteAgent) -> None:
        await self._exposed.expose_sender(rpc, letter.sender)
        try:
            result = await self._send_checked(rpc, server, letter, to)
        except MapRefusal as refused:
            if refused.code != DENIED or not await self._exposed.has_lost(rpc, letter.sender):
                raise
            result = await self._send_checked(rpc, server, letter, to)  # in the name of the link
        self._sent_count += 1
        self._link.memory.note_sent(result.get("messageId"), letter.id)
        word = correlation_of(letter.metadata)
        if word is not None:
            self._link.memory.note_correlation(letter.sender, to.mailbox, word, letter.id)

    async def _send_checked(
        self, rpc: RpcConnection, server: ServerInfo, letter: Message, to: RemoteAgent
    ) -> dict[str, Any]:
        send_params = partial(self._send_params, letter, to, beside=not server.keeps_meta)
        params = await self._link.executor.run_slow(send_params)
        keeps = server.is_postroom  # it keeps mail for agents that are away
        return await (rpc.call(SEND, **params) if keeps else link_directory.send_confirmed(rpc, params, to.id))

    def _send_params(self, letter: Message, to: RemoteAgent, *, beside: bool) -> dict[str, Any]:
        left = None
        if letter.expires_at is not None:
            left = (letter.expires_at - self._link.core.now().wall).total_seconds()
        params = encode_send(
            letter,
            system=self._link_name,
            to=to.id,
            title=to.title,
            expires_in=left,
            answers=find_letter(self._link.core, letter.in_reply_to or ""),
            beside=beside,
        )
        ids = self._exposed.ids
        return params | ({"from": ids[letter.sender]} if letter.sender in ids else {})  # else the link

    # -- in

    async def _store_undelivered(self, rpc: RpcConnection, undelivered: UndeliveredMessages) -> None:
        addresses = self._link.memory.addresses
        for id, message in await undelivered.found(addresses):
            found = decode_message(message)
            if found is not None:
                await self._store_message(rpc, await self._readdressed(rpc, found, addresses[id]))
        self._link.memory.heard = undelivered.since

    async def _readdressed(self, rpc: RpcConnection, message: Incoming, name: str) -> Incoming:
        """Return the message readdressed to our agent of this name.

        One to the link itself is an answer to an agent on our connection: it goes to the only agent that wrote to
        its sender lately, if that is certain.
        """
        if name != self._link_name:
            return replace(message, to={"agent": name})
        sender = await self._sender_mailbox(rpc, message)
        asker, letter = await self._link.run_slow(link_messages.only_recent_sender, sender)
        return replace(message, to={"agent": asker or name}, answers=letter)

    async def _store_all(self, rpc: RpcConnection, server: ServerInfo) -> None:
        while (inbound := await self._inbound.get()) is not None:
            method, params = inbound
            if method == EXPIRING:
                if self._link.options.token:
                    with suppress(MapRefusal, ConnectionLost):  # it refuses our next call, if that is needed
                        await rpc.call(REFRESH, **credentials(self._link.options, server.method))
                continue
            message = params.get("message", params)
            found = decode_message(message) if isinstance(message, dict) else None
            if found is None:
                continue
            await self._store_message(rpc, found)
            # Only once the letter is stored: until then the server keeps it (G9).
            if server.takes_acks and found.id:
                with suppress(ConnectionLost):
                    await rpc.notify(MESSAGE_ACK, messageIds=[found.id])

    async def _store_message(self, rpc: RpcConnection, message: Incoming) -> None:
        """Store a message, however long the room is busy: the server sends it only once."""
        if message.speaker in self._exposed.names:  # our own message
            return
        sender = await self._sender_mailbox(rpc, message)
        pause, most = _AGAIN
        while True:
            try:
                await self._link.executor.run_slow(lambda: self._store_letter(message, sender))
            except PostroomError as busy:
                if not busy.temporary:
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, most)
            else:
                self._link.memory.seen = max(self._link.memory.seen, message.at)
                return

    def _store_letter(self, message: Incoming, sender: str) -> None:
        memory = self._link.memory
        if message.answers is not None:
            message = replace(message, answers=memory.sent.get(message.answers, message.answers))
        to = link_messages.recipients(
            self._link.core, message, self._exposed.names, self._exposed.members, self._link_name
        )
        to = [mailbox_named(self._link.core, name) or name for name in to]
        sender = link_directory.sender_of(self._link.core, sender)
        word = correlation_of(message.meta)
        if word is not None and message.meta.get("isResult") is True and "inReplyTo" not in message.meta:
            found = (memory.letter_for(name, sender, word) for name in to)  # our letter that it answers
            message = replace(message, answers=next((id for id in found if id is not None), message.answers))
        link_messages.store_incoming(self._link.core, message, sender, to)

    async def _sender_mailbox(self, rpc: RpcConnection, message: Incoming) -> str:
        """Return the mailbox of the sender.

        The SDK's server gives only its session, and can list the agents in that.
        """
        session = message.speaker
        by_id = {one.id: one.mailbox for one in self.remote.values()}
        if session not in by_id and session not in self._sessions:
            with suppress(ConnectionLost, MapRefusal):  # the message is stored all the same
                agents = await link_directory.agents_of_session(rpc, session)
                if not agents or not {one.id for one in agents} <= {*by_id, *self._exposed.names}:
                    await self._fetch_agents(rpc)  # an agent came since the last look
                    by_id = {one.id: one.mailbox for one in self.remote.values()}
                self._sessions[session] = agents
        found = by_id.get(session)
        if found is None:
            found = of_session(self._sessions.get(session, []), self._listed_ids, self.remote, message.says_from)
        return found or f"{self._link.memory.system}/{clean(session, 'somebody')}"


# -- the link

A_MOMENT = 0.5  # seconds for the end of a session
LARGEST = 8 * 1024 * 1024  # bytes of one frame
ANSWER = 30.0  # seconds for one answer; the SDK's server may never give it


class MapLink:
    """The link to one MAP server, made inside an event loop."""

    def __init__(self, executor: Executor, options: LinkOptions) -> None:
        self.executor = executor
        self.core: Core = executor.core
        self.options = options
        self.memory = LinkMemory(name="")  # read when it runs
        self.resume = ""  # the token that brings our agents back in the next session; not kept over a restart
        self.woken = asyncio.Event()
        self.sender = LinkSender(executor)
        self._session: LinkSession | None = None
        self._problem = ""
        self.is_up = False

    async def run_slow(self, run: Callable[..., T], *words: Any) -> T:
        """Run something with the core on another thread, and return its result."""
        return await self.executor.run_slow(partial(run, self.core, *words))

    def emitted(self, event: Event) -> None:
        """Pass an event on to the server, if it is of the link's scope and the link is up; it is kept nowhere."""
        if self.is_up and self._session is not None and event.scope == self.options.scope:
            self._session.emit(event)

    async def run(self) -> None:
        """Run sessions for ever; each kind of problem is logged once."""
        self.memory = await self.run_slow(LinkMemory.load, self.options.server)
        with room_watch(self.core, self.woken.set):
            await keep_connected("the MAP server", self._run_session, self._report_problem)

    async def _run_session(self) -> None:
        """Run one session until the connection is lost."""
        session = self._session = LinkSession(self)
        try:
            async with connected(self.options.server, LARGEST, session.on_notification, ANSWER) as (rpc, reading):
                reading.add_done_callback(lambda _: self.woken.set())
                running = asyncio.ensure_future(session.run(rpc))
                try:
                    # After a cut the session stores what came, and fails the letter that it was sending.
                    await asyncio.wait((running,))
                finally:
                    rpc.abort()
                    self.woken.set()
                    await asyncio.wait((running,), timeout=A_MOMENT)
                    running.cancel()
                    await asyncio.gather(running, return_exceptions=True)
                running.result()
        finally:
            self.is_up = False
            with suppress(PostroomError):
                await self.run_slow(link_directory.leave, list(session.remote))
                await self.run_slow(self.memory.save, self.options.server)

    def connected(self, agents: int) -> None:
        """Note that a session has begun."""
        self.is_up = True
        self._problem = ""
        log.info("linked to a MAP server", extra={"server": self.options.server, "agents": agents})

    def _report_problem(self, why: str, wait: float) -> None:
        """Log a problem, once for each reason until the link is up again."""
        if why != self._problem:
            text = "there is no link to the MAP server: %s; the next try is in %.1f s, then later and later"
            log.warning(text, why, wait, extra={"server": self.options.server})
        self._problem = why
