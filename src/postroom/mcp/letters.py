"""Letters, agents and tasks in the words of the inbox design. Bodies are data: they stay in their own fields."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..model.card import Presence
from ..model.codec import convert
from ..model.content import content_of
from ..model.parts import Part
from ..wire.inbox_records import stamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TASK = ("id", "state", "giver", "receiver", "thread", "deadline", "reason", "subject", "is_final")


def message(letter: Mapping[str, Any]) -> dict[str, Any]:
    """A letter as a model gets it. What is empty is left out."""
    told = {
        "id": letter["id"],
        "from": letter["sender"],
        "verified": letter["proven"] or None,  # said where it is true
        "subject": letter["subject"],
        "content": content(letter),
        "threadTag": letter["thread_tag"],
        "importance": letter["priority"],
        "createdAt": time(letter["created_at"]),
        "inReplyTo": letter["in_reply_to"],
        "thread": letter["thread"],
        "kind": letter["kind"],
        "task": letter.get("task"),
        "token": letter.get("token"),
        "leaseSeconds": letter.get("lease_seconds"),
    }
    return {name: value for name, value in told.items() if value not in (None, "")}


def messages(letters: Iterable[Mapping[str, Any]], **more: Any) -> dict[str, Any]:
    told = [message(letter) for letter in letters]
    return {**more, "count": len(told), "messages": told}


def time(text: str) -> str:
    """As on the socket."""
    return stamp(datetime.fromisoformat(text))


def content(letter: Mapping[str, Any]) -> dict[str, Any]:
    """As agent-inbox has it: one part stands for itself."""
    return content_of([Part(**part) for part in letter["parts"]])


def agent(row: Mapping[str, Any]) -> dict[str, Any]:
    card, presence = row["card"], convert(row["presence"], Presence)
    told = {
        "agentId": card["id"],
        "name": card.get("display_name"),
        "scope": next(iter(card.get("scopes") or ()), None) or "default",
        "status": presence.inbox_word,
        "program": card.get("program"),
        "description": card.get("description"),
        "capabilities": card.get("capabilities"),
        "lastActive": stamp(presence.last_active_at) if presence.last_active_at else None,
        "location": "local",
    }
    return {name: value for name, value in told.items() if value not in (None, "", [], ())}


def task(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in _TASK if row.get(name) not in (None, "")}
