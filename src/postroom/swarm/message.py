"""A letter as the swarm design has it: its fields, its words, its JSON, its Markdown. Plain values, no room.

Times are local and without a zone, as there. A time that comes with a zone is understood, too.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..core.presentation import one_line
from ..model.delivery import State
from ..model.message import DEFAULT_SCOPE, is_broadcast

if TYPE_CHECKING:
    from ..model.delivery import Delivery
    from ..model.message import Message as Letter
    from ..model.query import Found


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
        value = {"swarm_name": None, "payload": {}, "expires_at": None} | known
        for name in _TIMES:
            value[name] = read_time(value.get(name))
        for name, words in _ENUMS.items():
            if name in value:
                value[name] = words(value[name])
        return cls(**value)

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


# Work that changes hands: what was done, where it stands, what comes next. Plain values, no room.


@dataclass
class HandoffContext:
    """All that the next agent has to know."""

    work_completed: str
    files_modified: list[str] = field(default_factory=list)
    files_created: list[str] = field(default_factory=list)
    current_state: str = ""
    state_file: str | None = None  # where the state is written down
    next_steps: list[str] = field(default_factory=list)
    blockers: list[str] = field(default_factory=list)
    dependencies: list[str] = field(default_factory=list)
    related_escalations: list[str] = field(default_factory=list)
    job_id: str | None = None
    notes: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The context of a letter."""
        return asdict(self)

    @property
    def files(self) -> list[str]:
        """What a letter attaches."""
        return [*self.files_modified, *self.files_created]


def handoff_body(from_agent: str, to_agent: str, context: HandoffContext, additional_notes: str = "") -> str:
    """The handoff for a model to read. What the design leaves to the context alone stands here, too."""
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


# A letter of the room as a Message of the design, and the design's times and names as ours.
#
# A letter with several recipients is one letter here and several there. Its id is then followed by `@` and the
# mailbox, so that every id names one letter in one mailbox. The design's own programs never make such a letter.

HUMAN = "human"  # what the room calls the person whom the design calls `user`
USER = "user"
_TYPES = {each.value: each for each in MessageType} | {"task": MessageType.REQUEST}
_STATUSES = {
    State.CLAIMED: MessageStatus.PROCESSING,
    State.DEAD: MessageStatus.FAILED,
    State.QUEUED: MessageStatus.UNREAD,
}


def message_of(found: Found) -> Message:
    """The letter as its mailbox sees it."""
    mailbox, delivery = found.delivery.mailbox, found.delivery
    letter = found.message.seen_by(mailbox)
    return Message(
        id=handle_of(letter, mailbox),
        from_agent=their_name(letter.sender),
        to_agent=their_name(mailbox),
        swarm_name=None if letter.scope == DEFAULT_SCOPE else letter.scope,
        type=type_of(letter),
        subject=letter.subject,
        body=letter.text,
        payload=_payload(letter),
        priority=MessagePriority(int(letter.priority)),
        created_at=local(letter.created_at),
        expires_at=None if letter.expires_at is None else local(letter.expires_at),
        status=status_of(delivery),
        read_at=None if delivery.read_at is None else local(delivery.read_at),
        completed_at=None if delivery.acked_at is None else local(delivery.acked_at),
        reply_to=letter.in_reply_to,
        thread_id=letter.thread_id,
        context=dict(letter.context or {}),
        attachments=list(letter.attachments),
        tags=list(letter.tags),
    )


def type_of(letter: Letter) -> MessageType:
    """A kind that the design has no word for is news to it."""
    return _TYPES.get(letter.kind, MessageType.NOTIFICATION)


def status_of(delivery: Delivery) -> MessageStatus:
    if delivery.state is State.UNREAD:
        return MessageStatus.UNREAD if is_unread(delivery) else MessageStatus.READ
    if delivery.state is State.DONE:
        return MessageStatus.COMPLETED if delivery.archived_at is None else MessageStatus.ARCHIVED
    return _STATUSES[delivery.state]


def is_unread(delivery: Delivery) -> bool:
    """Never looked at, or back in the inbox because whoever worked on it failed or vanished."""
    return delivery.is_unread or delivery.is_back


def handle_of(letter: Letter, mailbox: str) -> str:
    """What names this letter in this mailbox."""
    alone = len(letter.recipients) == 1 and not is_broadcast(letter.recipients[0].address)
    return letter.id if alone else f"{letter.id}@{mailbox}"


def id_in(handle: str) -> str:
    return handle.partition("@")[0]


def their_name(name: str) -> str:
    return USER if name == HUMAN else name


def local(time: datetime) -> datetime:
    """As in the design: local, without a zone."""
    return time.astimezone().replace(tzinfo=None)


def aware(time: datetime | None) -> datetime | None:
    """A time of the design; one without a zone is local."""
    return None if time is None else time.astimezone(UTC)


def _payload(letter: Letter) -> dict[str, Any]:
    """The first data part, if it is an object."""
    data = next((part["data"] for part in letter.parts if part.type == "data"), None)
    return data if isinstance(data, dict) else {}
