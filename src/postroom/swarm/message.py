"""A letter as the swarm design has it: its fields, its words, its JSON, its Markdown. Plain values, no room.

Times are local and without a zone, as there. A time that comes with a zone is understood, too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import Any

from ..service.present import one_line


class MessageType(Enum):
    REQUEST = "request"  # somebody is to do something
    RESPONSE = "response"  # an answer
    NOTIFICATION = "notification"  # needs no answer
    HANDOFF = "handoff"  # work changes hands, with its context
    ESCALATION = "escalation"  # a question to the level above


class MessagePriority(Enum):
    LOW = 1
    NORMAL = 2
    HIGH = 3
    URGENT = 4


class MessageStatus(Enum):
    UNREAD = "unread"
    READ = "read"  # looked at, not worked on
    PROCESSING = "processing"  # somebody works on it
    COMPLETED = "completed"
    ARCHIVED = "archived"  # completed, and out of the inbox
    FAILED = "failed"  # given up or expired; may be tried again


_MARKS = {MessagePriority.HIGH: "[HIGH]", MessagePriority.URGENT: "[URGENT]"}
_TIMES = ("created_at", "expires_at", "read_at", "completed_at")
_ENUMS: dict[str, type[Enum]] = {"type": MessageType, "priority": MessagePriority, "status": MessageStatus}
_REQUIRED = ("id", "from_agent", "to_agent", "type", "subject", "body", "priority", "created_at")


@dataclass
class Message:
    """One letter in one mailbox. A copy: changing it changes nothing in the mailbox."""

    id: str
    from_agent: str
    to_agent: str
    swarm_name: str | None
    type: MessageType
    subject: str
    body: str
    payload: dict[str, Any]
    priority: MessagePriority
    created_at: datetime
    expires_at: datetime | None
    status: MessageStatus = MessageStatus.UNREAD
    read_at: datetime | None = None
    completed_at: datetime | None = None
    reply_to: str | None = None  # the id of the letter that this one answers
    thread_id: str | None = None
    context: dict[str, Any] = field(default_factory=dict)  # of a handoff
    attachments: list[str] = field(default_factory=list)  # paths
    tags: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a file: only what JSON knows, in the order of the fields."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Message:
        """What `to_dict` or a file says. What may be missing is filled in; else KeyError or ValueError."""
        for name in _REQUIRED:
            data[name]
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        said = {"swarm_name": None, "payload": {}, "expires_at": None} | known
        for name in _TIMES:
            said[name] = read_time(said.get(name))
        for name, words in _ENUMS.items():
            if name in said:
                said[name] = words(said[name])
        return cls(**said)

    def to_markdown(self) -> str:
        """For a reader, in the plain layout of the design. `with_pending_mail` is for prompts. What stands in a
        heading or a list has no line breaks, so that it cannot begin a heading of its own.
        """
        mark = _MARKS.get(self.priority, "")  # without one the design writes two spaces, and so do we
        lines = [f"## {mark} {one_line(self.subject)}".strip(), "", *self._facts()]
        lines += ["", "---", "", self.body]
        if self.context:
            lines += ["", "### Context", "", *_context_lines(self.context)]
        if self.attachments:
            lines += ["", "### Attachments", "", *(f"- `{one_line(path)}`" for path in self.attachments)]
        if self.payload:
            lines += ["", "### Payload", "", "```json", json.dumps(self.payload, indent=2), "```"]
        return "\n".join(lines)

    def _facts(self) -> list[str]:
        facts = (
            ("From", self.from_agent),
            ("Type", self.type.value),
            ("Priority", self.priority.name),
            ("Sent", self.created_at.strftime("%Y-%m-%d %H:%M")),
            ("Thread", self.thread_id),
            ("Swarm", self.swarm_name),
        )
        return [f"**{name}:** {one_line(value)}" for name, value in facts if value]


def read_time(value: Any) -> datetime | None:
    """A time in ISO form, as local time without a zone."""
    if not value:
        return None
    time = datetime.fromisoformat(value)
    return time if time.tzinfo is None else time.astimezone().replace(tzinfo=None)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    return value.isoformat() if isinstance(value, datetime) else value


def _context_lines(context: dict[str, Any]) -> list[str]:
    lines = []
    for name, value in context.items():
        if isinstance(value, list):
            lines += [f"- **{one_line(name)}:**", *(f"  - {one_line(str(item))}" for item in value)]
        else:
            lines.append(f"- **{one_line(name)}:** {value}")
    return lines
