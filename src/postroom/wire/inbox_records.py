"""Letters and agents as agent-inbox writes them: snake_case records, times with milliseconds, nothing that is not
known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.card import Warmth
from ..model.message import is_any, is_broadcast
from ..model.parts import FIELDS, Part
from ..model.thread import conversation_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from ..model.card import Agent
    from ..model.delivery import Delivery
    from ..model.message import Message

FOREIGN = "x-"  # before a type of content that is not ours


def message_record(message: Message, deliveries: Iterable[Delivery], reader: str | None) -> dict[str, Any]:
    """A letter as `reader` may see it (None: the operator), with what is known of its deliveries."""
    record: dict[str, Any] = {
        "id": message.id,
        "scope": message.scope,
        "sender_id": message.sender,
        "recipients": _recipients(message, deliveries, reader),
        "content": content_of(message.parts),
        "conversation_id": conversation_of(message),
        "importance": message.priority.name.lower(),
        "metadata": message.metadata,
        "created_at": stamp(message.created_at),
    }
    told = {"subject": message.subject, "thread_tag": message.thread_tag, "in_reply_to": message.in_reply_to}
    return record | {name: value for name, value in told.items() if value}


def _recipients(message: Message, deliveries: Iterable[Delivery], reader: str | None) -> list[dict[str, Any]]:
    """As the sender wrote them; whoever got it by a broadcast stands in its place."""
    known = {delivery.mailbox: delivery for delivery in deliveries}
    seen = message if reader is None else message.seen_by(reader)
    named = [(r.address, r.kind) for r in seen.recipients if not (is_broadcast(r.address) or is_any(r.address))]
    if len(named) < len(seen.recipients):
        hidden = {r.address for r in message.recipients}
        named += [(name, "to") for name in known if name not in hidden]
    return [_recipient(name, kind, known.get(name)) for name, kind in named]


def _recipient(name: str, kind: str, delivery: Delivery | None) -> dict[str, Any]:
    record = {"agent_id": name, "kind": kind}
    if delivery is not None:
        times = {
            "delivered_at": delivery.delivered_at,
            "read_at": delivery.read_at,
            "ack_at": delivery.acked_at,
        }
        record |= {field: stamp(time) for field, time in times.items() if time is not None}
    return record


def content_of(parts: Sequence[Part]) -> dict[str, Any]:
    """One part is the content itself. Several stand in a list, which agent-inbox calls data."""
    if not parts:
        return {"type": "text", "text": ""}
    if len(parts) == 1:
        return _content(parts[0])
    return {"type": "data", "data": [_content(part) for part in parts]}


def _content(part: Part) -> dict[str, Any]:
    plain = part.to_json()
    if part.type.startswith(FOREIGN) and "content" in plain and len(plain) == 2:
        return dict(plain["content"])
    return plain


def payload_to_parts(payload: Any) -> list[Any]:
    """Text is text, an object with a type is kept as it is, everything else is data."""
    if payload is None or payload == "":
        return [Part("text", text="")] if payload == "" else [Part("data", data=None)]
    if isinstance(payload, str):
        return [Part("text", text=payload)]
    if isinstance(payload, dict) and isinstance(kind := payload.get("type"), str):
        needs = FIELDS.get(kind)
        if needs is not None and kind != "file" and _fits(payload, needs):
            return [payload]
        return [Part(f"{FOREIGN}content", content=payload)]
    return [Part("data", data=payload)]


def _fits(payload: dict[str, Any], needs: dict[str, tuple[bool, Any]]) -> bool:
    """Is this a part of ours? What only looks like one is kept as content of another kind."""
    missing = any(required and name not in payload for name, (required, _) in needs.items())
    wrong = any(kind is str and not isinstance(payload.get(name, ""), str) for name, (_, kind) in needs.items())
    return not missing and not wrong


def agent_record(agent: Agent) -> dict[str, Any]:
    """A row of `list_agents`."""
    card, presence = agent.card, agent.presence
    row = {
        "agentId": card.id,
        "name": card.display_name or None,
        "scope": card.scopes[0] if card.scopes else "default",
        "status": STATUS[presence.warmth],
        "program": card.program or None,
        "lastActive": stamp(presence.last_active_at or presence.last_heartbeat or card.registered_at),
        "location": "local",
    }
    return {name: value for name, value in row.items() if value is not None}


STATUS = {Warmth.ACTIVE: "active", Warmth.AWAY: "idle", Warmth.EXPIRED: "offline", Warmth.GONE: "offline"}


def stamp(time: datetime) -> str:
    """2026-01-31T12:00:00.000Z"""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
