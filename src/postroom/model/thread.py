"""Threads, conversations and turns, which are computed from letters.

The same letters always give the same ids, so a restart changes nothing. A `ConversationRecord` stores what letters
cannot hold of a conversation: its state and subject, its participants, and threads that were opened without a
reply. It exists only once an agent has changed one of these.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ..errors import IllegalMove
from .codec import blake2b, note_in
from .message import DEFAULT_SCOPE, TURN_NOTE, is_any, is_broadcast
from .values import Brief

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .message import Message


GENERAL = "conv-general:"  # followed by a scope: all letters of a scope that belong to no other conversation
SLASH = "::"  # replaces the "/" of a scope, which no id may hold; no scope holds two colons in a row


class Thread(Brief, frozen=True, kw_only=True):
    """A root letter and the replies to it."""

    id: str  # the root letter's id
    subject: str
    participants: tuple[str, ...]
    count: int
    started_at: datetime
    last_at: datetime


class Turn(Brief, frozen=True, kw_only=True):
    """A letter as one contribution to a conversation."""

    id: str
    conversation_id: str
    participant: str
    message_id: str
    thread_id: str | None  # None until there is a reply
    in_reply_to: str | None  # a turn's id
    created_at: datetime


class Conversation(Brief, frozen=True, kw_only=True):
    """Letters with the same explicit id, or the same thread tag and scope, or all others of a scope."""

    id: str
    scope: str
    subject: str
    participants: tuple[str, ...]
    threads: int
    turns: int
    started_at: datetime
    last_at: datetime


def conversation_of(message: Message) -> str:
    """Return the id of a letter's conversation: explicit, by thread tag and scope, or the scope's catch-all."""
    if message.conversation_id is not None:
        return message.conversation_id
    if message.thread_tag is not None:
        return tag_conversation(message.thread_tag, message.scope)
    return general_conversation(message.scope)


def tag_conversation(tag: str, scope: str = DEFAULT_SCOPE) -> str:
    """Return the id of the conversation with a tag: a hash, because tags are free text."""
    return "conv-" + blake2b(f"{scope}\0{tag}".encode(), digest_size=13).hexdigest()


def general_conversation(scope: str = DEFAULT_SCOPE) -> str:
    return f"{GENERAL}{scope.replace('/', SLASH)}"


def general_scope(conversation: str) -> str | None:
    """Return the scope whose catch-all conversation this is, if it is one."""
    if not conversation.startswith(GENERAL):
        return None
    return conversation.removeprefix(GENERAL).replace(SLASH, "/")


def turn_of(message: Message) -> Turn:
    return Turn(
        id=f"turn-{message.id}",
        conversation_id=conversation_of(message),
        participant=message.sender,
        message_id=message.id,
        thread_id=message.thread_id,
        in_reply_to=None if message.in_reply_to is None else f"turn-{message.in_reply_to}",
        created_at=message.created_at,
    )


def fold_thread(letters: Sequence[Message]) -> Thread:
    """Return the thread of these letters, at least one, the oldest first."""
    root = letters[0]
    return Thread(
        id=root.thread,
        subject=root.subject,
        participants=_participants(letters),
        count=len(letters),
        started_at=root.created_at,
        last_at=letters[-1].created_at,
    )


def fold_conversation(letters: Sequence[Message]) -> Conversation:
    """Return the conversation of these letters, at least one, the oldest first."""
    first = letters[0]
    return Conversation(
        id=conversation_of(first),
        scope=first.scope,
        subject=first.thread_tag or (first.subject if first.conversation_id else "General"),
        participants=_participants(letters),
        threads=len({letter.thread_id for letter in letters if letter.thread_id is not None}),
        turns=len(letters),
        started_at=first.created_at,
        last_at=letters[-1].created_at,
    )


def _participants(letters: Sequence[Message]) -> tuple[str, ...]:
    """Return senders and visible recipients, in order of appearance."""
    names: dict[str, None] = {}
    for letter in letters:
        names[letter.sender] = None
        shown = (
            r.address
            for r in letter.recipients
            if r.kind != "bcc" and not (is_broadcast(r.address) or is_any(r.address))
        )
        names.update(dict.fromkeys(shown))
    return tuple(names)


# The stored part of a conversation

# content: an object with a type. bare: any other JSON, such as "hi". text: {"text": "hi"}, as MAP's clients
# write it.
Shape: TypeAlias = Literal["content", "bare", "text"]
ACTIVE = "active"
# The transition table: (status, action) -> status. A repeated action changes nothing.
STEPS: dict[tuple[str, str], str] = {
    ("active", "complete"): "completed",
    ("active", "archive"): "archived",
    ("active", "pause"): "paused",
    ("active", "fail"): "failed",
    ("paused", "complete"): "completed",
    ("paused", "archive"): "archived",
    ("paused", "fail"): "failed",
    ("completed", "archive"): "archived",
    ("failed", "archive"): "archived",
    ("paused", "reopen"): ACTIVE,
    ("completed", "reopen"): ACTIVE,
    ("failed", "reopen"): ACTIVE,
    ("archived", "reopen"): ACTIVE,
}
ENDS = {"completed": "complete", "archived": "archive", "paused": "pause", "failed": "fail"}
STATUSES = (ACTIVE, *ENDS)
TYPES = ("multi-agent", "user-session", "agent-task", "mixed")
TURN = "turn-"  # followed by the id of its letter
THREAD = "thread-"  # followed by the id of its root letter, or by an id of its own


class Participant(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A participant of a conversation."""

    agent: str
    joined_at: datetime
    role: str = ""
    left_at: datetime | None = None  # an agent that left returns by joining or by an invitation
    permissions: dict[str, Any] = field(default_factory=dict)  # set by other programs, and shown unchanged


class ThreadRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread that was opened explicitly, not by a reply."""

    id: str
    root: str  # a letter's id
    created_at: datetime
    created_by: str = ""
    parent: str | None = None
    subject: str = ""


class ConversationRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The stored part of a conversation: everything that does not follow from its letters."""

    id: str
    scope: str
    created_at: datetime
    updated_at: datetime
    created_by: str = ""
    subject: str = ""
    type: str = TYPES[0]
    status: str = ACTIVE
    closed_at: datetime | None = None
    parent: str | None = None  # another conversation
    parent_turn: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    seats: tuple[Participant, ...] = ()
    strands: tuple[ThreadRecord, ...] = ()

    def seat(self, agent: str) -> Participant | None:
        return next((seat for seat in self.seats if seat.agent == agent), None)


class TurnNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a turn besides its content, stored in the `extra` of its letter."""

    content_type: str = "text"
    shape: Shape = "content"  # the form of the content in the request
    thread: str | None = None
    reply_to: str | None = (
        None  # a letter's id; the letter itself has it only if all its recipients know that letter
    )
    source: str | None = None  # the id of the message from which it was made, in another system
    visibility: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def note_of(message: Message) -> TurnNote | None:
    """Return the note of a turn; None for other letters."""
    return note_in(message, TURN_NOTE, TurnNote)


def turn_id(letter: str) -> str:
    return f"{TURN}{letter}"


def letter_of_turn(turn: str) -> str:
    return turn.removeprefix(TURN)


def thread_of(message: Message) -> str | None:
    """Return the id of a turn's thread; None for a root."""
    note = note_of(message)
    if note is not None and note.thread is not None:
        return note.thread
    return None if message.thread_id is None else f"{THREAD}{message.thread_id}"


def reply_of(message: Message) -> str | None:
    """Return the id of the letter that a turn answers."""
    note = note_of(message)
    return message.in_reply_to or (note.reply_to if note else None)


def with_participant(talk: ConversationRecord, seat: Participant) -> ConversationRecord:
    """Return the talk with a participant added, or replaced at its position."""
    others = [held for held in talk.seats if held.agent != seat.agent]
    at = next((i for i, held in enumerate(talk.seats) if held.agent == seat.agent), len(others))
    return replace(talk, seats=(*others[:at], seat, *others[at:]))


def after_action(talk: ConversationRecord, action: str, now: datetime) -> ConversationRecord:
    """Return the talk after `action`, unchanged if it already has that status, or raise IllegalMove."""
    wanted = ACTIVE if action == "reopen" else next(end for end, step in ENDS.items() if step == action)
    if talk.status == wanted:
        return talk
    after = STEPS.get((talk.status, action))
    if after is None:
        legal = ", ".join(sorted(a for s, a in STEPS if s == talk.status)) or "none"
        raise IllegalMove(
            f"a conversation that is {talk.status} cannot {action}",
            field="status",
            hint=f"legal from here: {legal}",
        )
    return replace(talk, status=after, updated_at=now, closed_at=None if after == ACTIVE else now)
