"""The letter: written once, never changed.

Everything that happens to a letter happens to its deliveries (`delivery.py`).
"""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from .names import ANY, BROADCAST, POSTMASTER, fold
from .parts import Part

FIRST_HOPS = 3  # A→B→C→D is the longest chain of relays
DEFAULT_SCOPE = "default"
BOUNCE = "bounce"  # the kind of a notice about mail that could not be delivered
ESCALATION_UPDATE = "escalation_update"  # of one about a question that climbs
OVERDUE = "task_overdue"  # and of one about a task that is not over at its deadline
AUTOMATIC = frozenset({BOUNCE, ESCALATION_UPDATE, OVERDUE})  # only the house writes these
CAME = "federation"  # in `extra`: by which way a letter came from another system
TURN_NOTE = "turn"  # in `extra`: the letter was sent as a turn of a conversation
MAP_NOTE = "map"  # in `extra`: how the letter was written in a MAP message
OWN_NOTES = frozenset({CAME, TURN_NOTE, MAP_NOTE})  # what Postroom writes into `extra`; all else is a stranger's

RecipientKind: TypeAlias = Literal["to", "cc", "bcc"]


class Priority(IntEnum):
    """Inboxes answer the highest first."""

    LOW = 1
    NORMAL = 2
    HIGH = 3
    URGENT = 4


class Recipient(Struct, frozen=True, gc=False, order=True):
    """Whom a letter is addressed to, as its sender wrote it."""

    address: str  # an agent's name, broadcast:<scope>, or any:<capability>
    kind: RecipientKind = "to"


class TaskNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a letter says about a task: the opening letter and every update carry one."""

    id: str
    state: str = "pending"  # a word of the table in task.py
    deadline: datetime | None = None
    reason: str | None = None


class Message(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A letter."""

    id: str  # a ULID, or the id it came with from outside
    sender: str
    recipients: tuple[Recipient, ...]
    created_at: datetime  # aware UTC; says when, never decides order
    kind: str = "message"
    subject: str = ""
    parts: tuple[Part, ...] = ()
    priority: Priority = Priority.NORMAL
    scope: str = DEFAULT_SCOPE
    expires_at: datetime | None = None
    thread_tag: str | None = None  # a label people chose for the thread
    thread_id: str | None = None  # id of the root letter; None in the root itself
    conversation_id: str | None = None
    in_reply_to: str | None = None
    hops: int = FIRST_HOPS  # how often it may still be relayed, plus one
    trace: tuple[str, ...] = ()  # the agents it went through, the first sender first
    task: TaskNote | None = None
    callback: dict[str, Any] | None = None  # a stranger's; echoed, never acted on
    context: dict[str, Any] | None = None  # of a handoff
    attachments: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    key: str | None = None  # idempotency key; None means the id is the key
    extra: dict[str, Any] = field(default_factory=dict)  # unknown fields of a source format
    proven: bool = False  # its sender showed a token; set by the house, never taken from what a caller says

    @property
    def text(self) -> str:
        """All text parts, as one text."""
        return "\n\n".join(part["text"] for part in self.parts if part.type == "text")

    @property
    def thread(self) -> str:
        """The thread this letter belongs to: its root's id."""
        return self.thread_id or self.id

    @property
    def is_automatic(self) -> bool:
        """Was this written by the house? Such a letter never causes another automatic one."""
        return self.kind in AUTOMATIC

    @property
    def origin(self) -> str:
        """Its sender, and whether that is known or only said."""
        return f"{self.sender} ({origin_word(self.sender, proven=self.proven)})"

    def seen_by(self, mailbox: str | None) -> Message:
        """This letter as `mailbox` may see it: bcc is shown to the sender and to that recipient alone."""
        if mailbox == self.sender:
            return self
        for recipient in self.recipients:
            if recipient.kind == "bcc":
                shown = tuple([r for r in self.recipients if r.kind != "bcc" or r.address == mailbox])
                return replace(self, recipients=shown)
        return self


def origin_word(sender: str, *, proven: bool) -> str:
    """Nobody but the house can write in its name."""
    return "verified" if proven or sender == POSTMASTER else "unverified"


def is_broadcast(address: str) -> bool:
    return address.startswith(BROADCAST)


def is_any(address: str) -> bool:
    return address.startswith(ANY)


def same_name(first: str, second: str) -> bool:
    return fold(first) == fold(second)
