"""Letters as MAP messages and messages as letters, at a server that may keep less of them than we say.

`meta` says everything in the protocol's words and in agent-inbox's, flat. The SDK's own server drops it all; so
there a payload that is an object carries the same once more, under `_meta`, and where a message comes without
`meta` that is what counts. Readers that do not know it find one more key in an object.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import IdTaken, Invalid, LeaseLost, PostroomError, Resync, UnknownMessage
from ..federation.connection import LineLost, MapRefusal
from ..formats.inbox import milliseconds, present
from ..formats.map import (
    NO_ADDRESS,
    NO_AGENT,
    PRIORITIES,
    REPLAY,
    TERMINATED,
    Address,
    answered,
    letter_fields,
    note_of,
    once_key,
    payload_of,
    read_address,
)
from ..model.codec import blake2b, encode
from ..model.delivery import State
from ..model.message import MAP_NOTE, Message, content_of
from ..model.query import Query
from ..model.record import CARD
from .directory import LINK, MANY, MOST_PAGES, Neighbour

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ..federation.connection import Line
    from ..formats.map import Role
    from ..letter import Batch, Work
    from ..room import Room
    from ..server.events import Event
    from ..server.executor import Executor


ORIGIN = "id"  # in what is noted of a letter that came over MAP
FLEETING = 60_000  # milliseconds that an event is worth telling
BESIDE = "_meta"  # in a payload
_PLAIN = ("body", "priority", "expires", "conversation_id", "thread_tag", "subject", "metadata", "extra")


class Incoming(Struct, frozen=True, kw_only=True):
    """A message that came, in our words."""

    id: str  # the server's
    key: str  # the same whenever it comes again
    speaker: str  # who the server says it is from: an agent's id, or a session's
    to: Any
    meta: dict[str, Any]
    fields: dict[str, Any]  # of the letter
    answers: str | None  # a letter's id, if its sender knows that one
    at: int  # milliseconds

    @property
    def origin(self) -> str:
        """What its sender calls it."""
        named = self.meta.get("messageId")
        return named if isinstance(named, str) and named else self.id

    @property
    def says_from(self) -> Any:
        """Who it says it is from, where the server names no agent."""
        return self.meta.get("senderId")

    @property
    def target(self) -> str | None:
        """Whom agent-inbox would hand it to."""
        named = self.meta.get("targetAgent")
        return named if isinstance(named, str) else None


def outgoing(
    message: Message,
    *,
    system: str,
    to: Neighbour,
    expires_in: float | None,
    answers: Message | None,
    beside: bool,
) -> dict[str, Any]:
    """The parameters of `map/send`. `answers`: the letter it answers; `beside`: the server keeps no `meta`."""
    note = note_of(message)
    meta = _unless_said(message) | present(
        priority=message.priority.name.lower(),
        ttlMs=None if expires_in is None else max(int(expires_in * 1000), 1),
        mail=_mail(message),
        messageId=message.id,
        senderId=message.sender,
        sourceSystem=system,
        targetAgent=to.title,
        subject=message.subject or None,
        threadTag=message.thread_tag or None,
        inReplyTo=message.in_reply_to if answers is None else origin_of(answers) or answers.id,
    )
    payload = content_of(message.parts) if note is None else payload_of(message, note.shape)
    if beside and isinstance(payload, dict):
        payload = payload | {BESIDE: meta}
    return {"to": {"agent": to.id}, "payload": payload, "meta": meta}


def correlation_of(meta: Mapping[str, Any]) -> str | None:
    """By what its sender knows the answer to it, or what that answers."""
    params = meta.get("correlationId")
    return params if isinstance(params, str) and params else None


def _unless_said(message: Message) -> dict[str, Any]:
    """All of its metadata, and what we say where that says nothing. Its sender goes by what it said itself."""
    params = {name: value for name, value in message.metadata.items() if value is not None}
    ours = {"correlationId": message.thread, "timestamp": milliseconds(message.created_at)}
    importance = params.get("importance")
    if not isinstance(importance, str) or importance not in PRIORITIES:
        params["importance"] = message.priority.name.lower()
    return message.metadata | ours | params


def _mail(message: Message) -> dict[str, Any] | None:
    if message.conversation_id is None:
        return None
    params = message.metadata.get("mail")
    return (params if isinstance(params, dict) else {}) | {"conversationId": message.conversation_id}


def told_of(event: Event) -> dict[str, Any]:
    """Payload and meta of what somebody emitted. MAP's agents emit nothing but messages; this one soon expires."""
    meta = {"messageId": event.id, "delivery": "fire-and-forget", "ttlMs": FLEETING}
    return {"payload": {"type": event.type, "source": event.sender, **event.data}, "meta": meta}


def origin_of(message: Message) -> str | None:
    """The id that a letter had where it came from: its sender knows it by that one. Anybody may write anything
    into `extra`.
    """
    note = message.extra.get(MAP_NOTE)
    origin = note.get(ORIGIN) if isinstance(note, dict) else None
    return origin if isinstance(origin, str) else None


def incoming(message: Mapping[str, Any]) -> Incoming | None:
    """None: that is no message."""
    payload, meta = _parted(message)
    to = message.get("to")
    if to is None and payload is None:
        return None
    params = {"to": to, "payload": payload} | ({"meta": meta} if meta else {})
    try:
        fields = letter_fields(params)
    except Invalid:  # a word of its meta means nothing here: it is carried, not followed
        fields = letter_fields({"to": to, "payload": payload}) | {"metadata": meta}
    at = message.get("timestamp")
    return Incoming(
        id=str(message.get("id") or ""),
        key=_key(message, meta),
        speaker=str(message.get("from") or ""),
        to=to,
        meta=meta,
        fields={name: value for name, value in fields.items() if name in _PLAIN},
        answers=answered(params),
        at=int(at) if isinstance(at, int | float) and 0 < at < 1e15 else 0,
    )


def _parted(message: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The payload and its meta, wherever that came."""
    payload, meta = message.get("payload"), message.get("meta")
    beside = payload.get(BESIDE) if isinstance(payload, dict) else None
    if isinstance(payload, dict) and isinstance(beside, dict):
        payload = {name: value for name, value in payload.items() if name != BESIDE}
    if not isinstance(meta, dict):
        meta = beside if isinstance(beside, dict) else {}
    return payload, meta


def _key(message: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    """By the sender's own id, which is the same when it sends again; else the server's; else by all it says."""
    for id in (meta.get("messageId"), message.get("id")):
        if isinstance(id, str) and id:
            return id
    params = {name: message.get(name) for name in ("from", "to", "payload", "timestamp")}
    return blake2b(encode(params), digest_size=16).hexdigest()


# What waits for agents of the server is sent there: claimed, sent, acknowledged once the server has it.
#
# A letter stays in its mailbox until then, so nothing is lost while the link is down or its agent is not there.
# After a cut in the middle it is sent again, under the same id. What the server refuses is tried again later, as
# any
# failed work; after the last try the sender is told.

log = logging.getLogger("postroom")
Send = Callable[[Message, Neighbour], Awaitable[None]]
AT_ONCE = 32  # letters claimed in one go
NOT_THERE = (NO_ADDRESS, NO_AGENT, TERMINATED)
SLICE = 1000  # changes looked at in one go
LEASE = 120.0  # seconds: longer than we wait for all the answers that may fail to come


class _Left(Exception):
    """The agent is not there any more: what is left for it goes on waiting."""


class Carrier:
    """Knows which mailboxes may hold something for the server."""

    def __init__(self, executor: Executor, room: Room) -> None:
        self._executor = executor
        self._room = room
        self._store = room._core.store
        self._cursor = self._store.cursor()
        self._number = self._cursor.number
        self._waiting: set[str] = set()

    async def look_everywhere(self, system: str) -> None:
        """At every mailbox of theirs: at the beginning, and now and then for what comes due again."""
        self._waiting = await self._executor.run_slow(lambda: self._all(system))

    async def look_at_news(self, system: str) -> bool:
        """At the mailboxes that got a letter since the last look; were cards written, too?"""
        names, cards = await self._executor.run_slow(lambda: (self._news(system), self._new_cards()))
        self._waiting |= names
        return bool(cards)

    def _all(self, system: str) -> set[str]:
        return {
            name for name in self._store.mailboxes() if self._is_ours_to_empty(name, system) and self._holds(name)
        }

    def _news(self, system: str) -> set[str]:
        now = self._store.cursor().number
        query = Query(states=(State.UNREAD,), unread_only=True, after=self._number, until=now, order="age")
        found = self._store.find(query) if now > self._number else []
        self._number = now
        names = {one.delivery.mailbox for one in found}
        return {name for name in names if self._is_ours_to_empty(name, system)}

    def _new_cards(self) -> bool:
        try:
            changes, self._cursor = self._store.changes(self._cursor, SLICE)
        except Resync:
            self._cursor = self._store.cursor()
            return True
        return any(change.kind == CARD for change in changes) or len(changes) == SLICE

    def _is_ours_to_empty(self, name: str, system: str) -> bool:
        """Is it of an agent of theirs, or of nobody yet? One of ours may be called the same."""
        if not name.startswith(f"{system}/"):
            return False
        card = self._store.records(CARD, name)
        return not card or card[0].value.get("principal") == LINK.name

    def _holds(self, mailbox: str) -> bool:
        return bool(self._store.find(Query(mailbox=mailbox, states=(State.UNREAD,), limit=1)))

    @property
    def waits_for_strangers(self) -> bool:
        """Is there mail for somebody the server has not told of?"""
        return bool(self._waiting)

    async def carry(self, there: Mapping[str, Neighbour], send: Send) -> set[str]:
        """Send what waits for those who are there. What waits for others goes on waiting, also for those who
        turned out to have left: they are given back.
        """
        left: set[str] = set()
        for mailbox in sorted(self._waiting & there.keys()):
            try:
                while await self._some(there[mailbox], send):
                    pass
            except _Left:
                left.add(mailbox)
            else:
                self._waiting.discard(mailbox)
        return left

    async def _some(self, one: Neighbour, send: Send) -> bool:
        """A few of them; False: that was all."""
        box = self._room.mailbox(one.mailbox)
        works = await self._executor.run_slow(lambda: box.claim(AT_ONCE, lease=LEASE, holder="map link"))
        done: list[Work] = []
        try:
            for work in works:
                await self._one(work, one, send)
                done.append(work)
        finally:
            await self._executor.run_slow(lambda: _settle(works, done))
        return len(works) == AT_ONCE

    async def _one(self, work: Work, one: Neighbour, send: Send) -> None:
        """A letter during which the line is cut has failed a try: it may be what cuts it, and must not do so for
        ever.
        """
        try:
            await send(work.message, one)
        except LineLost as cut:
            await self._failed(work, f"the line was cut: {cut}")
            raise
        except MapRefusal as refused:
            if refused.code in NOT_THERE:
                raise _Left from None
            log.warning("the MAP server did not take a letter for %s: %s", one.mailbox, refused)
            await self._failed(work, f"the MAP server: {refused}")

    async def _failed(self, work: Work, reason: str) -> None:
        with suppress(LeaseLost):
            await self._executor.run_slow(lambda: work.fail(reason))


def _settle(works: Batch, done: list[Work]) -> None:
    """What was sent is done; the rest goes back. A lease that ran out was sent too late: it is sent again."""
    with suppress(LeaseLost):
        works._mailbox.ack([work for work in done if not work.is_settled])
    with suppress(LeaseLost):
        works.release()


# What comes from the server becomes mail, once: the same message has the same key, however often it comes.
#
# It goes through the same door as all mail: allow lists, quotas, hops and sizes hold for agents of the server
# too.
# Only agents that are shown there can be reached from there; what is for nobody of them lies in the link's own
# mailbox. The protocol has no way to say that a letter was refused here; the log says it.
#
# On the desk's threads: nothing here waits for the network.

if TYPE_CHECKING:
    Members = Callable[[str | Role], list[str]]

LATELY = 20  # letters
_NEEDED = frozenset({"body", "metadata", "extra", "key"})  # everything else is a label


def recipients(room: Room, message: Incoming, shown: Mapping[str, str], members: Members, own: str) -> list[str]:
    """For whom of ours it is. `shown`: names by the ids they have there; `members`: who of them is in a scope, or
    has a role; `own`: the link's own mailbox.
    """
    names = frozenset(shown.values()) - {own}
    address = _address(message)
    found = sorted(names) if address.everyone else [shown.get(one, one) for one in _named(address, members)]
    found = [name for name in found if name in names]
    if not found and message.target in names:
        found = [str(message.target)]
    if not found and message.answers is not None:
        request = room._core.store.get((message.answers,)).get(message.answers)
        found = [request.message.sender] if request is not None and request.message.sender in names else []
    return list(dict.fromkeys(found)) or [own]


def is_for(message: Incoming, shown: Mapping[str, str]) -> bool:
    """Is it for one of these by name or id? Others' messages are replayed too."""
    names = frozenset(shown.values())
    params = _named(_address(message), lambda _: [])
    return any(one in shown or one in names for one in params) or message.target in names


def _address(message: Incoming) -> Address:
    try:
        return read_address(message.to)
    except Invalid:
        return Address()


def _named(address: Address, members: Members) -> list[str]:
    named = [*address.agents, *(one.agent for one in address.remote if one.agent)]
    groups: list[str | Role] = [*address.scopes, *address.roles, *named]
    meant = [name for group in groups for name in members(group)]
    return [*named, *meant]  # the SDK's server says only the name of a scope, as if it were an agent's


def only_asker(room: Room, mailbox: str) -> tuple[str | None, str | None]:
    """Who of ours wrote to somebody there, if lately it was one alone; and its last letter, if all were of one
    thread.
    """
    lately = Query(mailbox=mailbox, states=(State.DONE, State.CLAIMED), order="newest", limit=LATELY)
    letters = [found.message for found in room._core.store.find(lately)]
    if len({letter.sender for letter in letters}) != 1:
        return None, None
    return letters[0].sender, letters[0].id if len({letter.thread for letter in letters}) == 1 else None


def take(room: Room, message: Incoming, sender: str, to: list[str]) -> bool:
    """False: it was refused, for good. A temporary error is raised: it is to be tried again."""
    agents = [{"agent": name} for name in to]
    is_one = len(agents) == 1 and not isinstance(message.to, list)
    noted = {"to": agents[0] if is_one else agents, ORIGIN: message.origin}
    key = once_key(message.key, to)  # one letter to several comes as several messages of one id
    fields = message.fields | {"extra": {MAP_NOTE: message.fields["extra"][MAP_NOTE] | noted}, "key": key}
    try:
        _send(room, sender, to, fields, message.answers)
    except IdTaken:  # it came before, and is kept as it was then
        return True
    except PostroomError as refused:
        if refused.temporary:
            raise
        log.warning("a message from %s for %s was refused: %s", sender, ", ".join(to), refused)
        return False
    return True


def _send(room: Room, sender: str, to: list[str], fields: dict[str, Any], answers: str | None) -> None:
    """With all that it says; without what it answers, where its sender never had that letter; at last without the
    labels that mean something there and cannot be followed here. They stay in its metadata.
    """
    box, bare = room.mailbox(sender), {name: fields[name] for name in fields if name in _NEEDED}
    if answers is not None:
        with suppress(UnknownMessage, Invalid):
            box.send(to, **fields, in_reply_to=answers)
            return
    try:
        box.send(to, **fields)
    except Invalid:
        box.send(to, **bare)


# Messages for us that the SDK's server put aside, because nobody there has the id that they are for.
#
# That server tells its agents the connection of who wrote to them, and the SDK's `reply` answers to that. No
# agent
# has such an id. Nor does anybody have the id that an agent of ours had before the link was cut. Both are queued
# there for good; but the server's events tell of them, and can be asked for: `message.queued` says for whom,
# `message.sent` what was said.
#
# A wish to hear events is needed to ask for them. Ours name a sender that nobody is, so nothing is ever said to
# us
# of them unasked: that server loses connections to which it says two things at once.

SUBSCRIBE = "map/subscribe"
QUEUED, SENT = "message.queued", "message.sent"
NOBODY = "nobody"
STRANDED_AT_ONCE = 1.0  # seconds between two looks while an answer may come
AWAITED = 60.0  # seconds in which it may: after a letter, and after we were away
SELDOM = 15.0  # seconds between two looks otherwise
_TIME = 10  # the characters of an id that say when it was made


class Stranded:
    """What one server put aside. `since`: the last event that an earlier visit saw."""

    def __init__(self, line: Line, since: str) -> None:
        self._line = line
        self.since = since
        self._wishes: dict[str, str] = {}
        self._looked, self._wrote = float("-inf"), monotonic()

    async def begin(self) -> None:
        """A server that cannot tell has nothing for us."""
        try:
            for kind in (QUEUED, SENT):
                result = await self._line.ask(SUBSCRIBE, filter={"eventTypes": [kind], "fromAgents": [NOBODY]})
                self._wishes[kind] = str(result.get("subscriptionId"))
        except MapRefusal:
            self._wishes = {}

    def wrote(self) -> None:
        """A letter went there: an answer may come soon."""
        self._wrote = monotonic()

    @property
    def wait(self) -> float:
        """Seconds until the next look."""
        if not self._wishes:
            return SELDOM
        every = STRANDED_AT_ONCE if monotonic() - self._wrote < AWAITED else SELDOM
        return max(every - (monotonic() - self._looked), 0.0)

    async def found(self, ours: Container[str]) -> list[tuple[str, dict[str, Any]]]:
        """Messages since the last look for these ids, each with the one it was for."""
        self._looked = monotonic()
        messages: list[tuple[str, dict[str, Any]]] = []
        for _ in range(MOST_PAGES if self._wishes else 0):
            events = await self._events(QUEUED, **({"since": self.since} if self.since else {}))
            for event in events:
                id = event["data"].get("agentId")
                if isinstance(id, str) and id in ours:
                    messages += [(id, message) for message in await self._message(event)]
                self.since = event["id"]
            if len(events) < MANY:
                break
        return messages

    async def _message(self, queued: dict[str, Any]) -> list[dict[str, Any]]:
        """What was put aside by that event. It was sent in the moment before."""
        id = str(queued["data"].get("messageId"))
        begin = id[:_TIME].ljust(len(id), "0")
        events = await self._events(SENT, since=begin, until=queued["id"])
        sent = [event["data"].get("message") for event in events]
        return [message for message in sent if isinstance(message, dict) and message.get("id") == id]

    async def _events(self, kind: str, **span: str) -> list[dict[str, Any]]:
        try:
            result = await self._line.ask(REPLAY, subscriptionId=self._wishes.get(kind), limit=MANY, **span)
        except MapRefusal:
            self._wishes = {}
            return []
        rows = result.get("items")
        return [row for row in rows if isinstance(row, dict) and _is_sound(row)] if isinstance(rows, list) else []


def _is_sound(event: dict[str, Any]) -> bool:
    return isinstance(event.get("id"), str) and isinstance(event.get("data"), dict)
