"""A letter as a line of an `inbox.jsonl` file: all fields of both designs that know such files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.codec import encode
from ..model.content import content_of
from ..model.names import POSTMASTER
from ..model.thread import conversation_of
from .inbox_records import stamp

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.message import Message


def entry_of(message: Message, mailbox: str) -> dict[str, Any]:
    """For one recipient. Nobody else is named in it, so nobody's copy can give another one away."""
    content = content_of(message.parts)
    entry = {
        "messageId": message.id,
        "from": message.sender,
        "to": mailbox,
        "payload": _payload(content),
        "content": content,
        "subject": message.subject or None,
        "threadTag": message.thread_tag,
        "importance": message.priority.name.lower(),
        "timestamp": stamp(message.created_at),
        "conversationId": conversation_of(message),
    }
    return {name: value for name, value in entry.items() if value is not None or name == "payload"}


def line_of(message: Message, mailbox: str) -> bytes:
    return encode(entry_of(message, mailbox)) + b"\n"


def notice_of(mailbox: str, dropped: int, now: datetime) -> bytes:
    """The line that says what a file does not hold any more. `dropped` comes first: it is looked for there."""
    told = f"{dropped} older letter(s) are not in this file any more; they are in the inbox of {mailbox}"
    entry = {
        "dropped": dropped,
        "from": POSTMASTER,
        "to": mailbox,
        "payload": told,
        "content": {"type": "text", "text": told},
        "importance": "normal",
        "timestamp": stamp(now),
    }
    return encode(entry) + b"\n"


def _payload(content: dict[str, Any]) -> Any:
    """What was sent, as `send` takes it: text, data, or an object with a type."""
    if content.keys() == {"type", "text"} and content["type"] == "text":
        return content["text"]
    if content.keys() == {"type", "data"} and content["type"] == "data":
        return content["data"]
    return content
