"""The design's Message and HandoffContext, with their JSON and Markdown, and letters of a room as Messages.

Times are local and without a zone, as in the design; a time with a zone is converted. A letter with several
recipients is one letter in the room and several Messages here. Their ids are then followed by `@` and the
mailbox, so that every id names one letter in one mailbox. The design's own programs never make such a letter.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..core.presentation import notice_of, one_line
from ..model.message import is_broadcast
from ..store.files.layouts.swarm import LAYOUT

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..model.delivery import Delivery
    from ..model.message import Message as Letter
    from ..model.query import Found


class MessageType(Enum):
    """The purpose of a letter."""

    REQUEST = "request"  # asks for work
    RESPONSE = "response"  # an answer
    NOTIFICATION = "notification"  # needs no answer
    HANDOFF = "handoff"  # passes work on, with its context
    ESCALATION = "escalation"  # a question to the level above


class MessagePriority(Enum):
    """The urgency of a letter."""

    LOW = 1
    NORMAL = 2
    HIGH = 3
    URGENT = 4


class MessageStatus(Enum):
    """The status of a letter in its mailbox."""

    UNREAD = "unread"
    READ = "read"  # read, not worked on
    PROCESSING = "processing"  # claimed by a worker
    COMPLETED = "completed"
    ARCHIVED = "archived"  # completed, and out of the inbox
    FAILED = "failed"  # dead or expired; may be tried again


_MARKS = {MessagePriority.HIGH: "[HIGH]", MessagePriority.URGENT: "[URGENT]"}
_TIMES = ("created_at", "expires_at", "read_at", "completed_at")
_ENUMS: dict[str, type[Enum]] = {"type": MessageType, "priority": MessagePriority, "status": MessageStatus}
_REQUIRED = ("id", "from_agent", "to_agent", "type", "subject", "body", "priority", "created_at")


@dataclass
class Message:
    """A copy of one letter in one mailbox. Changing it changes nothing in the mailbox."""

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
    # Whose word it is, for prompts. Not a field of the design, and none of the class: files do not hold it.
    notice = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a file as plain JSON, in the order of the class."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Message:
        """Return the Message in the fields of a file. Raise KeyError or ValueError if one is missing or wrong."""
        for name in _REQUIRED:
            data[name]  # raises KeyError
        known = {each.name: data[each.name] for each in fields(cls) if each.name in data}
        values = {"swarm_name": None, "payload": {}, "expires_at": None} | known
        for name in _TIMES:
            values[name] = read_time(values.get(name))
        for name, enum in _ENUMS.items():
            if name in values:
                values[name] = enum(values[name])
        return cls(**values)

    def to_markdown(self) -> str:
        """Return the letter as Markdown in the plain layout of the design; for prompts use `with_pending_mail`.

        Text in a heading or a list has no line breaks, so that it cannot add a heading of its own.
        """
        mark = _MARKS.get(self.priority, "")  # without a mark the design writes two spaces, and so do we
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
    """Return a time in ISO form as local time without a zone."""
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


@dataclass
class HandoffContext:
    """The context of a handoff: what was done, the current state, and the next steps."""

    work_completed: str
    files_modified: list[str] = field(default_factory=list)
    files_created: list[str] = field(default_factory=list)
    current_state: str = ""
    state_file: str | None = None  # the path of a file that describes the state
    next_steps: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    related_escalations: list[str] = field(default_factory=list)
    job_id: str | None = None
    notes: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the context of a letter."""
        return asdict(self)

    @property
    def files(self) -> list[str]:
        """The attachments of the letter."""
        return [*self.files_modified, *self.files_created]


def handoff_body(from_agent: str, to_agent: str, context: HandoffContext, additional_notes: str = "") -> str:
    """Return the text of a handoff for a model. It also holds fields that the design has in the context only."""
    lines = [f"Work handoff from {from_agent} to {to_agent}."]
    lines += _line("Work Completed", context.work_completed)
    lines += _line("Current State", context.current_state)
    lines += _line("State File", context.state_file)
    lines += _list("Next Steps", context.next_steps)
    lines += _list("Blockers", context.blockers)
    lines += _list("Dependencies", context.dependencies)
    lines += _list("Related Escalations", context.related_escalations)
    for notes in (context.notes, additional_notes):
        lines += ["", "**Notes:**", notes] if notes else []
    return "\n".join(lines)


def _line(title: str, words: str | None) -> list[str]:
    return ["", f"**{title}:** {words}"] if words else []


def _list(title: str, items: list[str]) -> list[str]:
    return ["", f"**{title}:**", *(f"- {item}" for item in items)] if items else []


# Letters of a room as Messages

HUMAN = "human"  # the person's mailbox in the room


def message_of(found: Found, people: Collection[str]) -> Message:
    """Return the letter as its mailbox may see it, with the fields of its file.

    `people` holds the folded names of people in the room.
    """
    mailbox = found.delivery.mailbox
    letter = found.message.seen_by(mailbox)
    fields = LAYOUT.write(letter, mailbox)
    LAYOUT.write_state(fields, found.delivery)
    # A copy of the context: the caller may change it. The file of a letter without a subject has one made up.
    more = {"id": handle_of(letter, mailbox), "subject": letter.subject, "context": {**fields["context"]}}
    made = Message.from_dict(fields | more)
    made.notice = notice_of(letter, people)
    return made


def type_of(letter: Letter) -> MessageType:
    """Return the type of a letter. A kind that the design does not have is a notification."""
    return MessageType(LAYOUT.kind_word(letter))


def is_unread(delivery: Delivery) -> bool:
    """Return whether a letter was never read, or is back in the inbox because its worker failed or died."""
    return delivery.is_unread or delivery.is_back


def handle_of(letter: Letter, mailbox: str) -> str:
    """Return the id of a letter in one mailbox."""
    alone = len(letter.recipients) == 1 and not is_broadcast(letter.recipients[0].address)
    return letter.id if alone else f"{letter.id}@{mailbox}"


def id_in(handle: str) -> str:
    return handle.partition("@")[0]


def aware(time: datetime | None) -> datetime | None:
    """Return a time of the design in UTC; one without a zone is local."""
    return None if time is None else time.astimezone(UTC)
