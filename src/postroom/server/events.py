"""What happened in a room, for those who subscribe: from the numbered past to events, as one caller may hear them.

    changes, cursor = store.changes(cursor, 500)
    for event in events(room.acting_as(caller), Past(room, changes)): ...

A letter is `message.created`, and as a turn of its conversation `mail.turn.added`. What is done to a conversation
leaves a notice in the past (`service.conversing`), which says what happened and when, not only how things stand.
So whoever comes back with a cursor hears everything once. Several events may come of one change: they share a
number, and the one that is `last` completes it. Only then may a cursor be moved past that number.

An agent hears of letters that it sent or received, when they come to it, and of conversations it is in. Nobody's
events tell of those in bcc.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..core import conversations, tokens
from ..core.core import find_record
from ..core.names import is_sent_by, resident, seen_by
from ..core.threads import type_of
from ..core.validation import listed
from ..errors import Invalid, Missing
from ..formats.inbox import MessageRecord, message_record, milliseconds, present
from ..formats.mail import conversation_record, seat_record, thread_record, turn_record
from ..formats.map import (
    AGENT_CHANGED,
    AGENT_REGISTERED,
    AGENT_UNREGISTERED,
    AGENT_UPDATED,
    SCOPE_CREATED,
    SCOPE_DELETED,
    SCOPE_JOINED,
    SCOPE_LEFT,
    map_letter,
    role_of,
)
from ..model.agent import Card
from ..model.codec import convert, to_plain
from ..model.message import DEFAULT_SCOPE
from ..model.names import ONE_MAILBOX, check_agent, fold
from ..model.query import Query
from ..model.record import CARD, CONVERSATION, HAPPENED
from ..model.thread import ENDS, Seat, Talk, conversation_of, thread_of
from .table import snake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.record import Change
    from ..room import Room


MESSAGE, TURN_ADDED = "message.created", "mail.turn.added"
CREATED, JOINED, LEFT = "mail.created", "mail.participant.joined", "mail.participant.left"
CLOSED, REOPENED, THREAD_CREATED = "mail.closed", "mail.reopened", "mail.thread.created"
TYPES = (MESSAGE, TURN_ADDED, CREATED, JOINED, LEFT, CLOSED, REOPENED, THREAD_CREATED)
MAP_TYPES = {MESSAGE: "message.sent"}  # where MAP's word is another
_OF_A_NOTICE = {
    "created": CREATED,
    "joined": JOINED,
    "left": LEFT,
    "reopened": REOPENED,
    "threaded": THREAD_CREATED,
}
_OF_A_NOTICE |= dict.fromkeys(ENDS, CLOSED)
DELIVERED, DELIVERED_IN_THE_SDK = "message.delivered", "message_delivered"
NO_SPELLING: Mapping[str, str] = {}
EMITTED = "emit"
# The types of what the service itself publishes. Nobody else's event may be taken for one of these (G8).
_PUBLISHED = frozenset({
    *TYPES, *MAP_TYPES.values(), DELIVERED, "resync", AGENT_REGISTERED, AGENT_UNREGISTERED, AGENT_CHANGED,
    AGENT_UPDATED, SCOPE_CREATED, SCOPE_DELETED, SCOPE_JOINED, SCOPE_LEFT,
})  # fmt: skip
# The fields of agent-inbox's event streams, by type. Types that it does not know are told as they are.
_IN_STREAMS: dict[str, frozenset[str]] = {
    MESSAGE: frozenset(MessageRecord.__struct_fields__),
    TURN_ADDED: frozenset({
        "id", "conversation_id", "participant_id", "source_message_id", "content_type", "content", "thread_id",
        "in_reply_to", "importance", "created_at",
    }),
    CREATED: frozenset({
        "id", "scope", "subject", "status", "participants", "metadata", "created_at", "updated_at",
    }),
    JOINED: frozenset({"conversation_id", "agent_id"}),
    CLOSED: frozenset({"conversation_id", "status"}),
    REOPENED: frozenset({"conversation_id", "status"}),
}  # fmt: skip
_OF_A_SEAT = ("agent_id", "role", "joined_at")
# What says the same once more, in MAP's spelling.
_SPELT_TWICE = frozenset({
    "conversation_id", "conversationId", "participantId", "participant", "participantCount", "timestamp",
    "contentType", "threadId", "inReplyTo", "createdAt", "updatedAt", "closedAt", "turn", "message", "messageId",
    "from", "to", "priority",
})  # fmt: skip
OURS = "postroom"  # the one key under which a stream tells what agent-inbox's does not
_SLICE = 500


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened, as one caller may hear it."""

    id: str
    type: str
    number: int  # of the change it came of
    timestamp: datetime
    data: dict[str, Any]  # agent-inbox's payload, with MAP's fields beside its own
    scope: str
    conversation: str
    sender: str = ""  # whose doing it was
    participant: str = ""  # who spoke, joined or left
    parties: tuple[str, ...] = ()  # who sent or got the letter, or whom it is about
    thread: str | None = None
    content_type: str | None = None
    importance: str | None = None
    role: str | None = None  # of whom it is about
    correlation: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    in_map: dict[str, Any] = field(default_factory=dict)  # what MAP's events tell besides `data`
    last: bool = True  # of those with its number


def events(room: Room, past: Past) -> list[Event]:
    """What of these changes this caller hears, in their order."""
    if tokens.standing_or_nobody(room._core, room.principal) is not room.principal:
        return []  # somebody was sealed since it came
    if not past.concerns(room):
        return []
    results: list[Event] = []
    for change in past.changes:
        found = list(_of_letter(room, change, past) if change.message_id else _of_notice(room, change))
        found[:-1] = [replace(event, last=False) for event in found[:-1]]
        results += found
    return results


def number_of(id: Any) -> int | None:
    """Of the change that the event with this id came of; None: it is no event's id."""
    found = re.match(r"([0-9]{1,18})-[a-z]", id) if isinstance(id, str) else None
    return None if found is None else int(found[1])


def map_event(event: Event, spelt: Mapping[str, str] = NO_SPELLING) -> dict[str, Any]:
    """The `event` of a `map/event`. `spelt`: types as they were asked for: MAP's SDK writes them in two ways."""
    return {
        "id": event.id,
        "type": spelt.get(event.type) or MAP_TYPES.get(event.type, event.type),
        "timestamp": milliseconds(event.timestamp),
        "source": event.sender,
        "data": event.data | event.in_map,
    }


def is_for(event: Event, mailbox: str | None) -> bool:
    """Is it of a letter that came to this mailbox?"""
    return event.type == MESSAGE and any(row["agent_id"] == mailbox for row in event.data["recipients"])


def arrived(event: Event, mailbox: str, type: str) -> Event:
    """A letter came to who listens, and is handed nothing."""
    result = {"agentId": mailbox, "deliveredTo": [mailbox]} | event.in_map
    return replace(event, id=f"{event.number}-{DELIVERED}", type=type, data=result, in_map={})


def stream_data(type: str, data: dict[str, Any]) -> dict[str, Any]:
    """The data of an event as agent-inbox's streams have it: its fields, and what else there is under one key."""
    theirs = _IN_STREAMS.get(type)
    if theirs is None:
        return data
    fields = {name: value for name, value in data.items() if name in theirs}
    if "participants" in fields:
        seats = fields["participants"]
        fields["participants"] = [{word: seat[word] for word in _OF_A_SEAT if word in seat} for seat in seats]
    more = {name: value for name, value in data.items() if name not in theirs | _SPELT_TWICE}
    return fields | ({OURS: more} if more else {})


def emitted(params: dict[str, Any], id: str, number: int, now: datetime, source: str) -> Event:
    """What somebody told those who listen; it is kept nowhere. `source` says who. Every type arrives under its own
    name, but for those that the service publishes itself: they become `emit.` and that name, so that nobody takes
    them for something that happened.
    """
    result = params["event"]
    kind = result.get("type") if isinstance(result, dict) else None
    word = " ".join(kind.split()) if isinstance(kind, str) else ""  # as streams write it, on one line
    word = word or EMITTED
    return Event(
        id=f"{number}-{EMITTED}-{id}",  # many may be told between two changes
        type=f"{EMITTED}.{word}" if fold(word).replace("_", ".") in _PUBLISHED else word,
        number=number,
        timestamp=now,
        data={"event": result, "meta": params.get("meta") or {}},
        scope=params.get("scope", DEFAULT_SCOPE),
        conversation="",
        sender=source,
    )


class Past:
    """Some changes with their letters and deliveries; looked up once, for all who may hear of them."""

    def __init__(self, room: Room, changes: Sequence[Change]) -> None:
        self.changes = changes
        self._core = room._core
        self._roles: dict[str, str | None] = {}
        store = room._core.store
        self._messages: dict[str, Message] = {}
        self._deliveries: dict[str, list[Delivery]] = {}
        ids = sorted({c.message_id for c in changes if c.what in {"posted", "moved"} and c.message_id is not None})
        for start in range(0, len(ids), _SLICE):
            some = tuple(ids[start : start + _SLICE])
            self._messages |= {id: letter.message for id, letter in store.get(some).items()}
            for found in store.find(Query(message_ids=some, order="age")):
                self._deliveries.setdefault(found.delivery.message_id, []).append(found.delivery)
        notices = [words for words in map(_notice, changes) if words is not None]
        self._has_notices = bool(notices)
        self._is_long = any(conversations.is_long(room._core, id) for id in {id for id, *_ in notices})
        self._has_new = any(what == "created" for _, what, *_ in notices)
        self._parties = {delivery.mailbox for some in self._deliveries.values() for delivery in some}
        for sender in {message.sender for message in self._messages.values()}:
            self._parties |= {sender, ONE_MAILBOX.get(sender, sender), resident(room._core, sender)}

    def get(self, id: str) -> tuple[Message | None, list[Delivery]]:
        return self._messages.get(id), self._deliveries.get(id, [])

    def takes_long(self, room: Room) -> bool:
        """May it take more than a moment to find out what this caller hears of it? An operator hears of all, but a
        new conversation is told with those who are in it.
        """
        return self._is_long and (self._has_new or conversations.party(room.principal) is not None)

    def role(self, name: str) -> str | None:
        """What somebody does here, as its card says."""
        if name not in self._roles:
            card = find_record(self._core, CARD, name)
            self._roles[name] = None if card is None else role_of(convert(card.value, Card))
        return self._roles[name]

    def concerns(self, room: Room) -> bool:
        """May any of it be for this caller? Who is in a conversation is a longer question: it may."""
        reader = conversations.party(room.principal)
        return reader is None or self._has_notices or reader in self._parties


def _of_letter(room: Room, change: Change, letters: Past) -> Iterator[Event]:
    message, deliveries = letters.get(change.message_id or "")
    if message is None:  # deleted since
        return
    came = [d for d in deliveries if _came_with(d, change)]
    reader = conversations.party(room.principal)
    sent = change.what == "posted" and (reader is None or is_sent_by(room._core, message, reader))
    if sent or any(d.mailbox == reader and not d.is_hidden for d in came):
        for event in _letter_events(room, change.number, message, deliveries):
            yield replace(event, role=letters.role(message.sender))


def _came_with(delivery: Delivery, change: Change) -> bool:
    """Is this the change by which the letter came to this mailbox? One that was due later came later."""
    if change.what == "posted":
        return delivery.arrived == 0 and delivery.delivered_at is not None
    return delivery.arrived == change.number and delivery.mailbox == change.mailbox


def _letter_events(room: Room, number: int, message: Message, deliveries: Sequence[Delivery]) -> Iterator[Event]:
    reader = conversations.party(room.principal)
    shown = seen_by(room._core, message, reader)
    record = message_record(shown, deliveries, reader)
    operator_knows = () if reader is not None else tuple(d.mailbox for d in deliveries)
    received = (message.sender, *(row.agent_id for row in record.recipients), *operator_knows)
    event = Event(
        id=f"{number}-{MESSAGE}",
        type=MESSAGE,
        number=number,
        timestamp=message.created_at,
        data=to_plain(record),
        scope=message.scope,
        conversation=conversation_of(message),
        sender=message.sender,
        participant=message.sender,
        parties=tuple(dict.fromkeys(received)),
        thread=thread_of(message),
        content_type=type_of(message),
        importance=message.priority.name.lower(),
        correlation=message.metadata.get("correlationId") or message.thread_tag,
        metadata=message.metadata,
    )
    yield replace(event, in_map=_of_map_message(shown))
    turn = turn_record(shown)
    yield replace(event, id=f"{number}-{TURN_ADDED}", type=TURN_ADDED, data=turn | {"turn": turn})


def _of_map_message(message: Message) -> dict[str, Any]:
    letter = map_letter(message)
    return {word: letter[word] for word in ("from", "to", "timestamp")} | present(
        messageId=message.id,
        priority=message.priority.name.lower(),
        correlationId=(letter.get("meta") or {}).get("correlationId"),
        message=letter,
    )


def _of_notice(room: Room, change: Change) -> Iterator[Event]:
    """A notice says: which conversation, what happened, to or by whom, when."""
    words = _notice(change)
    if words is None:
        return
    id, what, whom, when = words
    held = find_record(room._core, CONVERSATION, id)
    talk = None if held is None else convert(held.value, Talk)
    about_caller = whom == room.principal.agent
    if talk is None or not (about_caller or conversations.hears(room._core, room.principal, talk)):
        return
    data = _data(room, talk, what, whom)
    if data is None:
        return
    actor = data.get("createdBy", "") if what == "threaded" else whom.removeprefix("-")  # no name begins so
    yield Event(
        id=f"{change.number}-{_OF_A_NOTICE[what]}",
        type=_OF_A_NOTICE[what],
        number=change.number,
        timestamp=datetime.fromisoformat(when),
        data=data,
        scope=talk.scope,
        conversation=id,
        sender=actor,
        participant=whom if what in {"created", "joined", "left"} else actor,
        parties=tuple(seat.agent for seat in talk.seats if seat.left_at is None or seat.agent == whom),
        thread=whom if what == "threaded" else None,
    )


def _notice(change: Change) -> list[str] | None:
    words = (change.key or "").split(" ") if change.kind == HAPPENED else []
    return words if len(words) == 4 and words[1] in _OF_A_NOTICE else None


def _data(room: Room, talk: Talk, what: str, whom: str) -> dict[str, Any] | None:
    about = {"conversation_id": talk.id, "conversationId": talk.id}
    if what == "created":
        return _created(room, talk, about)
    if what in {"joined", "left"}:
        seat = talk.seat(whom) or Seat(agent=whom, joined_at=talk.updated_at)
        return about | {"agent_id": whom, "participantId": whom, "participant": seat_record(seat)}
    if what == "threaded":
        strand = next((one for one in talk.strands if one.id == whom), None)
        record = None if strand is None else thread_record(strand, talk.id, [])
        return None if record is None else record | {"thread": record}
    status = what if what in ENDS else "active"
    by = {} if whom == "-" else {"closedBy" if what in ENDS else "reopenedBy": whom}
    return about | {"status": status} | by


def _created(room: Room, talk: Talk, about: dict[str, str]) -> dict[str, Any] | None:
    try:
        return conversation_record(conversations.look(room._core, room.principal, talk.id)) | about
    except Missing:
        return None


# To what somebody subscribes: the filter of `map/subscribe`, and whether an event passes it.
#
# Every word narrows; within one word any of its values will do. A word that is not understood is refused: to
# ignore
# it would be to tell more than was asked for.

_LISTS = ("event_types", "scopes", "from_agents", "priorities", "roles", "from_roles", "correlation_ids")
_OF_MAIL = ("conversation_id", "thread_id", "participant_id", "content_type")
_OURS = {word: ours for ours, word in MAP_TYPES.items()}


class EventFilter(Struct, frozen=True, kw_only=True):
    """Nothing said: everything one may hear."""

    event_types: tuple[str, ...] | None = None
    spelt: dict[str, str] = field(default_factory=dict)  # types that were asked for as the SDK's constants are
    scopes: tuple[str, ...] | None = None
    from_agents: tuple[str, ...] | None = None
    priorities: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None  # of whom it is about, or who did it
    from_roles: tuple[str, ...] | None = None  # the same
    correlation_ids: tuple[str, ...] | None = None
    metadata_match: dict[str, Any] | None = None  # all of these stand in the letter's metadata
    agent: str | None = None  # whose mailbox
    conversation_id: str | None = None
    thread_id: str | None = None
    participant_id: str | None = None
    content_type: str | None = None


def check_filter(params: Any) -> EventFilter:
    """As it was said, in MAP's words; `agent` or `mailbox` besides."""
    words = _words(params, "filter")
    mail = _words(words.pop("mail", {}), "filter.mail")
    match = words.pop("metadata_match", None)
    if match is not None and not isinstance(match, dict):
        raise Invalid("must be an object", field="filter.metadata_match")
    agent = words.pop("agent", words.pop("mailbox", None))
    fields: dict[str, Any] = {name: _texts(words.pop(name), name) for name in _LISTS if name in words}
    fields |= {name: _text(mail.pop(name), f"mail.{name}") for name in _OF_MAIL if name in mail}
    for unknown in (*words, *(f"mail.{name}" for name in mail)):
        hint = ", ".join((*_LISTS, "metadata_match", "mail", "agent"))
        raise Invalid("there is no such filter", field=f"filter.{unknown}"[:100], hint=hint)
    if "event_types" in fields:
        request = fields["event_types"]
        fields["spelt"] = {
            _type(params): params for params in request if "_" in params and _dotted(params) not in request
        }
        fields["event_types"] = tuple(map(_type, request))
    whose = None if agent is None else check_agent(agent, "filter.agent")
    return EventFilter(agent=whose, metadata_match=match, **fields)


def wanted(event: Event, filter: EventFilter) -> bool:
    """Does it pass?"""
    return (
        (filter.event_types is None or any(_is_of(event.type, kind) for kind in filter.event_types))
        and (filter.scopes is None or event.scope in filter.scopes)
        and (filter.from_agents is None or event.sender in filter.from_agents)
        and (filter.priorities is None or event.importance in filter.priorities)
        and (filter.roles is None or event.role in filter.roles)
        and (filter.from_roles is None or event.role in filter.from_roles)
        and (filter.correlation_ids is None or event.correlation in filter.correlation_ids)
        and (filter.metadata_match is None or filter.metadata_match.items() <= event.metadata.items())
        and (filter.agent is None or filter.agent in event.parties)
        and (filter.conversation_id is None or event.conversation == filter.conversation_id)
        and (filter.thread_id is None or event.thread == filter.thread_id)
        and (filter.participant_id is None or filter.participant_id == event.participant)
        and (filter.content_type is None or event.content_type == filter.content_type)
    )


def _type(text: str) -> str:
    """`message_sent`, `message.sent` and `message.created` are one; `mail.*` is all that begins so."""
    dotted = _dotted(text)
    return _OURS.get(dotted, dotted)


def _dotted(type: str) -> str:
    return type.replace("_", ".")


def _is_of(type: str, kind: str) -> bool:
    if kind.endswith("*"):
        return _dotted(type).startswith(kind[:-1])
    return _dotted(type) == kind


def _words(params: Any, field: str) -> dict[str, Any]:
    if params is None:
        return {}
    if not isinstance(params, dict):
        raise Invalid("must be an object", field=field)
    values: Mapping[str, Any] = params
    return {snake(name): value for name, value in values.items() if value is not None}


def _texts(value: Any, name: str) -> tuple[str, ...]:
    return tuple(_text(one, name) for one in listed(value, f"filter.{name}"))


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Invalid("must be text", field=f"filter.{name}")
    return value
