"""Events: the changes of a room as one subscriber may see them, and the filters of subscriptions.

    for event in events(principal, LoadedChanges(core, store.changes(cursor, 500)[0])): ...

A letter is `message.created`, and as a turn of its conversation `mail.turn.added`. A change to a conversation
leaves a notice (`core/conversations.py`) that says what happened and when, not only the present state. So a
subscriber that comes back with a cursor gets everything once. One change may give several events: they share a
number, and the one that is `last` completes it. Only then may a cursor move past that number.

An agent sees letters that it sent or received, when they arrive, and the conversations it is in. No event names
recipients in bcc.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from ..core import conversations, tokens
from ..core.core import find_record
from ..core.deliveries import deliveries_of
from ..core.names import current_name, is_sent_by, seen_by
from ..core.proof import people_names
from ..core.verb import perform, snake
from ..errors import Invalid, Missing
from ..formats.events import MAP_TYPES, NOTICE_TYPES, Event, created_data, letter_events, notice_data
from ..formats.map import role_of
from ..model.agent import Card
from ..model.codec import convert
from ..model.names import ONE_MAILBOX, check_agent
from ..model.record import CARD, CONVERSATION, HAPPENED
from ..model.thread import ConversationRecord
from ..model.values import as_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.record import Change


log = logging.getLogger("postroom")
_SLICE = 500


class LoadedChanges:
    """Some successive changes with their letters and deliveries, loaded once for all subscribers; on a thread."""

    def __init__(self, core: Core, changes: Sequence[Change]) -> None:
        self.changes = changes
        self.core = core
        self._roles: dict[str, str | None] = {}
        store = core.store
        self._messages: dict[str, Message] = {}
        self._deliveries: dict[str, list[Delivery]] = {}
        ids = sorted({c.message_id for c in changes if c.what in {"posted", "moved"} and c.message_id is not None})
        for start in range(0, len(ids), _SLICE):
            some = tuple(ids[start : start + _SLICE])
            self._messages |= {id: letter.message for id, letter in store.get(some).items()}
            self._deliveries |= deliveries_of(store, some)
        notices = [words for words in map(_notice, changes) if words is not None]
        self._has_notices = bool(notices)
        self._is_long = any(conversations.is_long(core, id) for id in {id for id, *_ in notices})
        self._has_new = any(what == "created" for _, what, *_ in notices)
        self._parties = {delivery.mailbox for some in self._deliveries.values() for delivery in some}
        for sender in {message.sender for message in self._messages.values()}:
            self._parties |= {sender, ONE_MAILBOX.get(sender, sender), current_name(core, sender)}

    def find_events(self, principal: Principal) -> list[Event] | None:
        """Return the events this caller may see, or None after a bug: they are sent later."""
        try:
            return events(principal, self)
        except Exception:  # boundary: a bug met for one subscriber must not stop the others
            log.exception("events of %d changes could not be made for %s", len(self.changes), principal.name)
            return None

    def get(self, id: str) -> tuple[Message | None, list[Delivery]]:
        return self._messages.get(id), self._deliveries.get(id, [])

    def takes_long(self, principal: Principal) -> bool:
        """Return whether finding out what this caller may see can take long: the participants of a long
        conversation are looked up. An operator sees everything, but a new conversation lists its participants.
        """
        return self._is_long and (self._has_new or conversations.reader_of(principal) is not None)

    def role(self, name: str) -> str | None:
        """Return the role on an agent's card."""
        if name not in self._roles:
            card = find_record(self.core, CARD, name)
            self._roles[name] = None if card is None else role_of(convert(card.value, Card))
        return self._roles[name]

    def concerns(self, principal: Principal) -> bool:
        """Return whether any of it may be for this caller. Conversations are checked later: their participants
        take longer to find.
        """
        reader = conversations.reader_of(principal)
        return reader is None or self._has_notices or reader in self._parties


def events(principal: Principal, loaded: LoadedChanges) -> list[Event]:
    """Return the events of these changes that this caller may see, in their order."""
    if tokens.effective_or_nobody(loaded.core, principal) is not principal:
        return []  # a token was made since for the agent as which the caller acts without one
    if not loaded.concerns(principal):
        return []
    results: list[Event] = []
    for change in loaded.changes:
        found = list(
            _events_of_letter(principal, change, loaded)
            if change.message_id
            else _events_of_notice(loaded.core, principal, change)
        )
        found[:-1] = [replace(event, last=False) for event in found[:-1]]
        results += found
    return results


def _events_of_letter(principal: Principal, change: Change, loaded: LoadedChanges) -> Iterator[Event]:
    message, deliveries = loaded.get(change.message_id or "")
    if message is None:  # deleted since
        return
    came = [d for d in deliveries if _is_delivered_by(d, change)]
    reader = conversations.reader_of(principal)
    sent = change.what == "posted" and (reader is None or is_sent_by(loaded.core, message, reader))
    if sent or any(d.mailbox == reader and not d.is_hidden for d in came):
        shown = seen_by(loaded.core, message, reader)
        people, role = people_names(loaded.core), loaded.role(message.sender)
        yield from letter_events(change.number, shown, deliveries, reader, role, people)


def _is_delivered_by(delivery: Delivery, change: Change) -> bool:
    """Return whether this is the change by which the letter came to this mailbox; a scheduled one came later than
    it was posted.
    """
    if change.what == "posted":
        return delivery.arrived == 0 and delivery.delivered_at is not None
    return delivery.arrived == change.number and delivery.mailbox == change.mailbox


def _events_of_notice(core: Core, principal: Principal, change: Change) -> Iterator[Event]:
    """Yield the event of a notice, which says: conversation, kind, agent or thread, time."""
    words = _notice(change)
    if words is None:
        return
    id, kind, subject, time = words
    held = find_record(core, CONVERSATION, id)
    talk = None if held is None else convert(held.value, ConversationRecord)
    about_caller = subject == principal.agent
    if talk is None or not (about_caller or conversations.is_notified(core, principal, talk)):
        return
    data = _created_data(core, principal, talk) if kind == "created" else notice_data(talk, kind, subject)
    if data is None:
        return
    actor = data.get("createdBy", "") if kind == "threaded" else subject.removeprefix("-")  # no name begins so
    yield Event(
        id=f"{change.number}-{NOTICE_TYPES[kind]}",
        type=NOTICE_TYPES[kind],
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
    return words if len(words) == 4 and words[1] in NOTICE_TYPES else None


def _created_data(core: Core, principal: Principal, talk: ConversationRecord) -> dict[str, Any] | None:
    try:
        return created_data(perform(core, principal, conversations.ViewConversation(conversation=talk.id)))
    except Missing:
        return None


# -- the filter of `map/subscribe`
#
# Every field narrows; within one field any of its values matches. An unknown field is refused: ignoring it would
# send more than was asked for.

_LIST_FIELDS = ("event_types", "scopes", "from_agents", "priorities", "roles", "from_roles", "correlation_ids")
MAIL_FIELDS = ("conversation_id", "thread_id", "participant_id", "content_type")
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
    fields |= {name: _text(mail.pop(name), f"mail.{name}") for name in MAIL_FIELDS if name in mail}
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
