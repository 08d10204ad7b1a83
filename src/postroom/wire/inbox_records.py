"""Letters and agents as the inbox design writes them down: snake_case, what is not there is left out.

A letter's recipients are those who got it, with their stamps. Those in bcc are shown to its sender and to
themselves; nobody else's copy says that there are any.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from ..model.card import MAP_STATES, WORDS, Status
from ..model.content import content_of, payload_to_parts
from ..model.message import DEFAULT_SCOPE, Priority, is_any, is_broadcast, same_name
from ..model.thread import conversation_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..model.card import Agent
    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.peer import Route

__all__ = ["agent_record", "far_agent_record", "message_record", "milliseconds", "payload_to_parts"]
__all__ += ["present", "stamp"]

_IMPORTANCE = {priority: priority.name.lower() for priority in Priority}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def message_record(message: Message, deliveries: Iterable[Delivery], reader: str | None) -> dict[str, Any]:
    """A letter as `reader` may see it; None: somebody who is no party to it."""
    record: dict[str, Any] = {  # what is always there in one go: a dictionary that grows is made anew
        "id": message.id,
        "scope": message.scope,
        "sender_id": message.sender,
        "recipients": recipient_records(message, deliveries, reader),
        "content": content_of(message.parts),
        "conversation_id": conversation_of(message),
        "importance": _IMPORTANCE[message.priority],
        "metadata": message.metadata,
        "created_at": stamp(message.created_at),
    }
    if message.subject:
        record["subject"] = message.subject
    if message.thread_tag is not None:
        record["thread_tag"] = message.thread_tag
    if message.in_reply_to is not None:
        record["in_reply_to"] = message.in_reply_to
    return record


def recipient_records(
    message: Message, deliveries: Iterable[Delivery], reader: str | None
) -> list[dict[str, Any]]:
    """Who got it, in the order they were named; where nobody did, who was named."""
    got = [d for d in deliveries if d.message_id == message.id]
    if len(got) == 1:  # most letters: to one
        (only,) = got
        shown = _is_shown(message, only.mailbox, only.kind, reader)
        return [_recipient(only.mailbox, only.kind, only)] if shown else []
    if not got:
        named = [r for r in message.recipients if not (is_broadcast(r.address) or is_any(r.address))]
        rows = [(r.address, r.kind, None) for r in named]
        return [_recipient(*row) for row in rows if _is_shown(message, row[0], row[1], reader)]
    order = {r.address: place for place, r in enumerate(message.recipients)}
    got.sort(key=lambda delivery: order.get(delivery.mailbox, len(order)))
    return [_recipient(d.mailbox, d.kind, d) for d in got if _is_shown(message, d.mailbox, d.kind, reader)]


def agent_record(agent: Agent) -> dict[str, Any]:
    """A row of `list_agents`."""
    card, presence = agent.card, agent.presence
    return present(
        agentId=card.id,
        name=card.display_name or None,
        scope=card.scopes[0] if card.scopes else DEFAULT_SCOPE,
        status=WORDS[Status.OFFLINE].inbox if presence.left else presence.words.inbox,
        program=card.program or None,
        lastActive=stamp(presence.last_active_at or card.registered_at),
        location="local",
    )


def far_agent_record(name: str, route: Route) -> dict[str, Any]:
    """The same of an agent at another system, as that one told of it."""
    words = WORDS[MAP_STATES.get(route.status, Status.IDLE)]
    told = {"agentId": name, "peerId": route.system, "scope": DEFAULT_SCOPE, "status": words.inbox}
    return {**told, "location": "federated"}


@lru_cache(maxsize=256)  # of letters that are told together, many were read at one moment
def stamp(time: datetime) -> str:
    """`2026-01-31T12:00:00.000Z`."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    text: str = to_builtins(time)  # several times as fast as isoformat
    return f"{text[:23]}Z" if "." in text else f"{text[:-1]}.000Z"


def milliseconds(time: datetime) -> int:
    """Since 1970, as MAP counts time; cut off, as in `stamp`."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def present(fields: Mapping[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:
    """Without what is not there."""
    return {name: value for name, value in {**(fields or {}), **more}.items() if value is not None}


def _is_shown(message: Message, name: str, kind: str, reader: str | None) -> bool:
    return kind != "bcc" or (reader is not None and (same_name(reader, name) or reader == message.sender))


def _recipient(name: str, kind: str, delivery: Delivery | None) -> dict[str, Any]:
    if delivery is None:
        return {"agent_id": name, "kind": kind}
    record: dict[str, Any] = {"agent_id": name, "kind": kind}
    if delivery.delivered_at is not None:
        record["delivered_at"] = stamp(delivery.delivered_at)
    if delivery.read_at is not None:
        record["read_at"] = stamp(delivery.read_at)
    if delivery.acked_at is not None:
        record["ack_at"] = stamp(delivery.acked_at)
    return record
