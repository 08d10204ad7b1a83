"""Events: the changes of a room as one subscriber may see them, and the filters of subscriptions.

    changes, cursor = store.changes(cursor, 500)
    for event in events(room.acting_as(caller), LoadedChanges(room, changes)): ...

A letter is `message.created`, and as a turn of its conversation `mail.turn.added`. A change to a conversation
leaves a notice (`core/conversations.py`) that says what happened and when, not only the present state. So a
subscriber that comes back with a cursor gets everything once. One change may give several events: they share a
number, and the one that is `last` completes it. Only then may a cursor move past that number.

An agent sees letters that it sent or received, when they arrive, and the conversations it is in. No event names
recipients in bcc.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..core import conversations, tokens
from ..core.core import find_record
from ..core.names import current_name, is_sent_by, seen_by
from ..core.threads import type_of
from ..core.validation import as_list
from ..core.verb import snake
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
from ..model.thread import ENDS, ConversationRecord, Participant, conversation_of, thread_of

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
MAP_TYPES = {MESSAGE: "message.sent"}  # where MAP has another name
_NOTICE_TYPES = {
    "created": CREATED,
    "joined": JOINED,
    "left": LEFT,
    "reopened": REOPENED,
    "threaded": THREAD_CREATED,
}
_NOTICE_TYPES |= dict.fromkeys(ENDS, CLOSED)
DELIVERED, DELIVERED_SDK = "message.delivered", "message_delivered"
NO_SPELLINGS: Mapping[str, str] = {}
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
_SLICE = 500


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


def events(room: Room, loaded: LoadedChanges) -> list[Event]:
    """Return the events of these changes that this caller may see, in their order."""
    if tokens.effective_or_nobody(room.core, room.principal) is not room.principal:
        return []  # a token was made since for the agent as which the caller acts without one
    if not loaded.concerns(room):
        return []
    results: list[Event] = []
    for change in loaded.changes:
        found = list(
            _events_of_letter(room, change, loaded) if change.message_id else _events_of_notice(room, change)
        )
        found[:-1] = [replace(event, last=False) for event in found[:-1]]
        results += found
    return results


def number_of(id: Any) -> int | None:
    """Return the number of the change of the event with this id, or None if it is not the id of an event."""
    found = re.match(r"([0-9]{1,18})-[a-z]", id) if isinstance(id, str) else None
    return None if found is None else int(found[1])


def map_event(event: Event, spelt: Mapping[str, str] = NO_SPELLINGS) -> dict[str, Any]:
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


class LoadedChanges:
    """Some changes with their letters and deliveries, loaded once for all subscribers."""

    def __init__(self, room: Room, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.core = room.core
        self._roles: dict[str, str | None] = {}
        store = room.core.store
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
        self._is_long = any(conversations.is_long(room.core, id) for id in {id for id, *_ in notices})
        self._has_new = any(what == "created" for _, what, *_ in notices)
        self._parties = {delivery.mailbox for some in self._deliveries.values() for delivery in some}
        for sender in {message.sender for message in self._messages.values()}:
            self._parties |= {sender, ONE_MAILBOX.get(sender, sender), current_name(room.core, sender)}

    def get(self, id: str) -> tuple[Message | None, list[Delivery]]:
        return self._messages.get(id), self._deliveries.get(id, [])

    def takes_long(self, room: Room) -> bool:
        """Return whether finding out what this caller may see can take long: the participants of a long
        conversation are looked up. An operator sees everything, but a new conversation lists its participants.
        """
        return self._is_long and (self._has_new or conversations.reader_of(room.principal) is not None)

    def role(self, name: str) -> str | None:
        """Return the role on an agent's card."""
        if name not in self._roles:
            card = find_record(self.core, CARD, name)
            self._roles[name] = None if card is None else role_of(convert(card.value, Card))
        return self._roles[name]

    def concerns(self, room: Room) -> bool:
        """Return whether any of it may be for this caller. Conversations are checked later: their participants
        take longer to find.
        """
        reader = conversations.reader_of(room.principal)
        return reader is None or self._has_notices or reader in self._parties


def _events_of_letter(room: Room, change: Change, loaded: LoadedChanges) -> Iterator[Event]:
    message, deliveries = loaded.get(change.message_id or "")
    if message is None:  # deleted since
        return
    came = [d for d in deliveries if _is_delivered_by(d, change)]
    reader = conversations.reader_of(room.principal)
    sent = change.what == "posted" and (reader is None or is_sent_by(room.core, message, reader))
    if sent or any(d.mailbox == reader and not d.is_hidden for d in came):
        for event in _visible_events(room, change.number, message, deliveries):
            yield replace(event, role=loaded.role(message.sender))


def _is_delivered_by(delivery: Delivery, change: Change) -> bool:
    """Return whether this is the change by which the letter came to this mailbox; a scheduled one came later than
    it was posted.
    """
    if change.what == "posted":
        return delivery.arrived == 0 and delivery.delivered_at is not None
    return delivery.arrived == change.number and delivery.mailbox == change.mailbox


def _visible_events(room: Room, number: int, message: Message, deliveries: Sequence[Delivery]) -> Iterator[Event]:
    reader = conversations.reader_of(room.principal)
    shown = seen_by(room.core, message, reader)
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
    yield replace(event, in_map=_map_fields(shown))
    turn = turn_record(shown)
    yield replace(event, id=f"{number}-{TURN_ADDED}", type=TURN_ADDED, data=turn | {"turn": turn})


def _map_fields(message: Message) -> dict[str, Any]:
    letter = map_letter(message)
    return {word: letter[word] for word in ("from", "to", "timestamp")} | present(
        messageId=message.id,
        priority=message.priority.name.lower(),
        correlationId=(letter.get("meta") or {}).get("correlationId"),
        message=letter,
    )


def _events_of_notice(room: Room, change: Change) -> Iterator[Event]:
    """Yield the event of a notice, which says: conversation, kind, agent or thread, time."""
    words = _notice(change)
    if words is None:
        return
    id, kind, subject, time = words
    held = find_record(room.core, CONVERSATION, id)
    talk = None if held is None else convert(held.value, ConversationRecord)
    about_caller = subject == room.principal.agent
    if talk is None or not (about_caller or conversations.is_notified(room.core, room.principal, talk)):
        return
    data = _notice_data(room, talk, kind, subject)
    if data is None:
        return
    actor = data.get("createdBy", "") if kind == "threaded" else subject.removeprefix("-")  # no name begins so
    yield Event(
        id=f"{change.number}-{_NOTICE_TYPES[kind]}",
        type=_NOTICE_TYPES[kind],
        number=change.number,
        timestamp=datetime.fromisoformat(time),
        data=data,
        scope=talk.scope,
        conversation=id,
        sender=actor,
        participant=subject if kind in {"created", "joined", "left"} else actor,
        parties=tuple(seat.agent for seat in talk.seats if seat.left_at is None or seat.agent == subject),
        thread=subject if kind == "threaded" else None,
    )


def _notice(change: Change) -> list[str] | None:
    words = (change.key or "").split(" ") if change.kind == HAPPENED else []
    return words if len(words) == 4 and words[1] in _NOTICE_TYPES else None


def _notice_data(room: Room, talk: ConversationRecord, kind: str, subject: str) -> dict[str, Any] | None:
    about = {"conversation_id": talk.id, "conversationId": talk.id}
    if kind == "created":
        return _created_data(room, talk, about)
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


def _created_data(room: Room, talk: ConversationRecord, about: dict[str, str]) -> dict[str, Any] | None:
    try:
        return conversation_record(conversations.get_view(room.core, room.principal, talk.id)) | about
    except Missing:
        return None


# -- the filter of `map/subscribe`
#
# Every field narrows; within one field any of its values matches. An unknown field is refused: ignoring it would
# send more than was asked for.

_LIST_FIELDS = ("event_types", "scopes", "from_agents", "priorities", "roles", "from_roles", "correlation_ids")
_MAIL_FIELDS = ("conversation_id", "thread_id", "participant_id", "content_type")
_TYPE_OF_MAP = {word: ours for ours, word in MAP_TYPES.items()}


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events a subscriber wants. Without any field it gets everything it may see."""

    event_types: tuple[str, ...] | None = None
    spelt: dict[str, str] = field(default_factory=dict)  # types that were spelt as the SDK's constants are
    scopes: tuple[str, ...] | None = None
    from_agents: tuple[str, ...] | None = None
    priorities: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None  # of the agent it is about, or that caused it
    from_roles: tuple[str, ...] | None = None  # MAP's other name for `roles`
    correlation_ids: tuple[str, ...] | None = None
    metadata_match: dict[str, Any] | None = None  # all of these stand in the letter's metadata
    agent: str | None = None  # whose mailbox
    conversation_id: str | None = None
    thread_id: str | None = None
    participant_id: str | None = None
    content_type: str | None = None


def check_filter(params: Any) -> EventFilter:
    """Return the filter of a request, which has MAP's fields and `agent` or `mailbox`."""
    words = _filter_fields(params, "filter")
    mail = _filter_fields(words.pop("mail", {}), "filter.mail")
    match = words.pop("metadata_match", None)
    if match is not None and not isinstance(match, dict):
        raise Invalid("must be an object", field="filter.metadata_match")
    agent = words.pop("agent", words.pop("mailbox", None))
    fields: dict[str, Any] = {name: _texts(words.pop(name), name) for name in _LIST_FIELDS if name in words}
    fields |= {name: _text(mail.pop(name), f"mail.{name}") for name in _MAIL_FIELDS if name in mail}
    for unknown in (*words, *(f"mail.{name}" for name in mail)):
        hint = ", ".join((*_LIST_FIELDS, "metadata_match", "mail", "agent"))
        raise Invalid("there is no such filter", field=f"filter.{unknown}"[:100], hint=hint)
    if "event_types" in fields:
        types = fields["event_types"]
        fields["spelt"] = {_type(type): type for type in types if "_" in type and _dotted(type) not in types}
        fields["event_types"] = tuple(map(_type, types))
    whose = None if agent is None else check_agent(agent, "filter.agent")
    return EventFilter(agent=whose, metadata_match=match, **fields)


def wanted(event: Event, filter: EventFilter) -> bool:
    """Return whether an event passes the filter."""
    return (
        (filter.event_types is None or any(_matches_type(event.type, kind) for kind in filter.event_types))
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
    """Return our name of a type: `message_sent`, `message.sent` and `message.created` are one; `mail.*` matches
    all that begin so.
    """
    dotted = _dotted(text)
    return _TYPE_OF_MAP.get(dotted, dotted)


def _dotted(type: str) -> str:
    return type.replace("_", ".")


def _matches_type(type: str, kind: str) -> bool:
    if kind.endswith("*"):
        return _dotted(type).startswith(kind[:-1])
    return _dotted(type) == kind


def _filter_fields(params: Any, field: str) -> dict[str, Any]:
    if params is None:
        return {}
    if not isinstance(params, dict):
        raise Invalid("must be an object", field=field)
    values: Mapping[str, Any] = params
    return {snake(name): value for name, value in values.items() if value is not None}


def _texts(value: Any, name: str) -> tuple[str, ...]:
    return tuple(_text(one, name) for one in as_list(value, f"filter.{name}"))


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Invalid("must be text", field=f"filter.{name}")
    return value
