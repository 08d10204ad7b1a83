"""The codec of events: agent-inbox's event streams, and the events of MAP.

The data of an event holds agent-inbox's fields, with MAP's beside them. A letter is `message.created`, and as a
turn of its conversation `mail.turn.added`. No event names recipients in bcc.

    letter_events, notice_data   what an event says
    stream_data                  as agent-inbox's streams have it
    map_event, event_params      as MAP has it: to a subscriber, and as a message through a link
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..core.threads import type_of
from ..model.codec import to_plain
from ..model.message import DEFAULT_SCOPE
from ..model.names import PEOPLE, fold
from ..model.thread import ENDS, Participant, conversation_of, thread_of
from .inbox import MessageRecord, message_record, milliseconds, present
from .mail import conversation_record, seat_record, thread_record, turn_record
from .map import (
    AGENT_CHANGED,
    AGENT_REGISTERED,
    AGENT_UNREGISTERED,
    AGENT_UPDATED,
    SCOPE_CREATED,
    SCOPE_DELETED,
    SCOPE_JOINED,
    SCOPE_LEFT,
    map_letter,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from ..core.conversations import View
    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.thread import ConversationRecord


MESSAGE, TURN_ADDED = "message.created", "mail.turn.added"
CREATED, JOINED, LEFT = "mail.created", "mail.participant.joined", "mail.participant.left"
CLOSED, REOPENED, THREAD_CREATED = "mail.closed", "mail.reopened", "mail.thread.created"
TYPES = (MESSAGE, TURN_ADDED, CREATED, JOINED, LEFT, CLOSED, REOPENED, THREAD_CREATED)
MAP_TYPES = {MESSAGE: "message.sent"}  # where MAP has another name
DELIVERED, DELIVERED_SDK = "message.delivered", "message_delivered"
_NO_SPELLINGS: Mapping[str, str] = {}
EMITTED = "emit"
# The types that the server itself publishes. An event emitted by an agent never has one of these (G8).
_PUBLISHED = frozenset({
    *TYPES, *MAP_TYPES.values(), DELIVERED, "resync", AGENT_REGISTERED, AGENT_UNREGISTERED, AGENT_CHANGED,
    AGENT_UPDATED, SCOPE_CREATED, SCOPE_DELETED, SCOPE_JOINED, SCOPE_LEFT,
})  # fmt: skip
# The fields of agent-inbox's event streams, by type. Types that agent-inbox does not know are sent as they are.
_STREAM_FIELDS: dict[str, frozenset[str]] = {
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
_SEAT_FIELDS = ("agent_id", "role", "joined_at")
# Fields that repeat another one in MAP's spelling.
_MAP_SPELLINGS = frozenset({
    "conversation_id", "conversationId", "participantId", "participant", "participantCount", "timestamp",
    "contentType", "threadId", "inReplyTo", "createdAt", "updatedAt", "closedAt", "turn", "message", "messageId",
    "from", "to", "priority",
})  # fmt: skip
EXTRA_KEY = "postroom"  # the key under which a stream has the fields that agent-inbox's streams do not have
NOTICE_TYPES = {
    "created": CREATED,
    "joined": JOINED,
    "left": LEFT,
    "reopened": REOPENED,
    "threaded": THREAD_CREATED,
}
NOTICE_TYPES |= dict.fromkeys(ENDS, CLOSED)
FLEETING = 60_000  # milliseconds before an event that is passed on expires


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened, as one caller may see it."""

    id: str
    type: str
    number: int  # of the change it came of
    timestamp: datetime
    data: dict[str, Any]  # agent-inbox's payload, with MAP's fields beside its own
    scope: str
    conversation: str
    sender: str = ""  # the agent that caused it
    participant: str = ""  # the agent that spoke, joined or left
    parties: tuple[str, ...] = ()  # sender and recipients of the letter, or the agents it is about
    thread: str | None = None
    content_type: str | None = None
    importance: str | None = None
    role: str | None = None  # of the agent it is about
    correlation: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    in_map: dict[str, Any] = field(default_factory=dict)  # what MAP's events have besides `data`
    last: bool = True  # is it the last of the events with its number?


def number_of(id: Any) -> int | None:
    """Return the number of the change of the event with this id, or None if it is not the id of an event."""
    found = re.match(r"([0-9]{1,18})-[a-z]", id) if isinstance(id, str) else None
    return None if found is None else int(found[1])


def map_event(event: Event, spelt: Mapping[str, str] = _NO_SPELLINGS) -> dict[str, Any]:
    """Return the `event` of a `map/event`. `spelt` maps types to how the subscriber spelt them: MAP's SDK has two
    spellings.
    """
    return {
        "id": event.id,
        "type": spelt.get(event.type) or MAP_TYPES.get(event.type, event.type),
        "timestamp": milliseconds(event.timestamp),
        "source": event.sender,
        "data": event.data | event.in_map,
    }


def is_for(event: Event, mailbox: str | None) -> bool:
    """Return whether the event is about a letter to this mailbox."""
    return event.type == MESSAGE and any(row["agent_id"] == mailbox for row in event.data["recipients"])


def delivered_event(event: Event, mailbox: str, type: str) -> Event:
    """Return the event which says that a letter came to a mailbox whose mail no session delivers."""
    data = {"agentId": mailbox, "deliveredTo": [mailbox]} | event.in_map
    return replace(event, id=f"{event.number}-{DELIVERED}", type=type, data=data, in_map={})


def delivered_data(message: Message, agent: str, people: Collection[str] = PEOPLE) -> dict[str, Any]:
    """Return the data of MAP's event that an agent has received a letter."""
    letter = map_letter(message, people)
    meta = letter.get("meta") or {}
    data: dict[str, Any] = {"messageId": message.id, "agentId": agent, "deliveredTo": [agent]}
    data |= {"from": message.sender, "timestamp": letter["timestamp"], "message": letter}
    return data | {word: meta[word] for word in ("correlationId",) if word in meta}


def stream_data(type: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event as agent-inbox's streams have it, and all other fields under EXTRA_KEY."""
    theirs = _STREAM_FIELDS.get(type)
    if theirs is None:
        return data
    fields = {name: value for name, value in data.items() if name in theirs}
    if "participants" in fields:
        seats = fields["participants"]
        fields["participants"] = [{word: seat[word] for word in _SEAT_FIELDS if word in seat} for seat in seats]
    more = {name: value for name, value in data.items() if name not in theirs | _MAP_SPELLINGS}
    return fields | ({EXTRA_KEY: more} if more else {})


def emitted_event(params: dict[str, Any], id: str, number: int, now: datetime, source: str) -> Event:
    """Return the event that an agent (`source`) emitted; it is stored nowhere. A type that the server publishes
    itself gets the prefix `emit.`, so that no subscriber mistakes it for a change of the room (G8).
    """
    event = params["event"]
    kind = event.get("type") if isinstance(event, dict) else None
    type = " ".join(kind.split()) if isinstance(kind, str) else ""  # as streams write it, on one line
    type = type or EMITTED
    return Event(
        id=f"{number}-{EMITTED}-{id}",  # many may be emitted between two changes
        type=f"{EMITTED}.{type}" if fold(type).replace("_", ".") in _PUBLISHED else type,
        number=number,
        timestamp=now,
        data={"event": event, "meta": params.get("meta") or {}},
        scope=params.get("scope", DEFAULT_SCOPE),
        conversation="",
        sender=source,
    )


def event_params(event: Event) -> dict[str, Any]:
    """Return payload and `meta` of an event that is passed on.

    MAP's agents send only messages, so it goes as one that expires.
    """
    meta = {"messageId": event.id, "delivery": "fire-and-forget", "ttlMs": FLEETING}
    return {"payload": {"type": event.type, "source": event.sender, **event.data}, "meta": meta}


# What an event says


def letter_events(
    number: int,
    message: Message,
    deliveries: Sequence[Delivery],
    reader: str | None,
    role: str | None,
    people: Collection[str] = PEOPLE,
) -> Iterator[Event]:
    """Yield the events of a letter as `reader` may see it; None is an operator. `role`: of its sender."""
    record = message_record(message, deliveries, reader)
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
        role=role,
    )
    yield replace(event, in_map=_map_fields(message, people))
    turn = turn_record(message)
    yield replace(event, id=f"{number}-{TURN_ADDED}", type=TURN_ADDED, data=turn | {"turn": turn})


def _map_fields(message: Message, people: Collection[str]) -> dict[str, Any]:
    letter = map_letter(message, people)
    return {word: letter[word] for word in ("from", "to", "timestamp")} | present(
        messageId=message.id,
        priority=message.priority.name.lower(),
        correlationId=(letter.get("meta") or {}).get("correlationId"),
        message=letter,
    )


def created_data(view: View) -> dict[str, Any]:
    """Return the data of the event that a conversation was created."""
    return conversation_record(view) | _about(view.talk)


def notice_data(talk: ConversationRecord, kind: str, subject: str) -> dict[str, Any] | None:
    """Return the data of any other event of a conversation; None if its thread is gone."""
    about = _about(talk)
    if kind in {"joined", "left"}:
        seat = talk.seat(subject) or Participant(agent=subject, joined_at=talk.updated_at)
        return about | {"agent_id": subject, "participantId": subject, "participant": seat_record(seat)}
    if kind == "threaded":
        strand = next((one for one in talk.strands if one.id == subject), None)
        record = None if strand is None else thread_record(strand, talk.id, [])
        return None if record is None else record | {"thread": record}
    status = kind if kind in ENDS else "active"
    by = {} if subject == "-" else {"closedBy" if kind in ENDS else "reopenedBy": subject}
    return about | {"status": status} | by


def _about(talk: ConversationRecord) -> dict[str, str]:
    return {"conversation_id": talk.id, "conversationId": talk.id}
