"""To what somebody subscribes: the filter of `map/subscribe`, and whether an event passes it.

Every word narrows; within one word any of its values will do. A word that is not understood is refused: to ignore
it would be to tell more than was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ..errors import Invalid
from ..model.names import check_agent
from ..service.given import listed
from .events import MAP_TYPES
from .table import snake

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .events import Event

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


def check_filter(said: Any) -> EventFilter:
    """As it was said, in MAP's words; `agent` or `mailbox` besides."""
    words = _words(said, "filter")
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
        asked = fields["event_types"]
        fields["spelt"] = {_type(said): said for said in asked if "_" in said and _dotted(said) not in asked}
        fields["event_types"] = tuple(map(_type, asked))
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


def _type(said: str) -> str:
    """`message_sent`, `message.sent` and `message.created` are one; `mail.*` is all that begins so."""
    dotted = _dotted(said)
    return _OURS.get(dotted, dotted)


def _dotted(type: str) -> str:
    return type.replace("_", ".")


def _is_of(type: str, kind: str) -> bool:
    if kind.endswith("*"):
        return _dotted(type).startswith(kind[:-1])
    return _dotted(type) == kind


def _words(said: Any, field: str) -> dict[str, Any]:
    if said is None:
        return {}
    if not isinstance(said, dict):
        raise Invalid("must be an object", field=field)
    given: Mapping[str, Any] = said
    return {snake(name): value for name, value in given.items() if value is not None}


def _texts(value: Any, name: str) -> tuple[str, ...]:
    return tuple(_text(one, name) for one in listed(value, f"filter.{name}"))


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise Invalid("must be text", field=f"filter.{name}")
    return value
