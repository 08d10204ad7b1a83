"""Threads, conversations and turns: folds over letters, never a second truth.

The same letters always fold to the same ids, so nothing changes over a restart.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import replace

from ..errors import IllegalMove
from .codec import blake2b
from .message import DEFAULT_SCOPE, TURN_NOTE, is_any, is_broadcast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .message import Message


GENERAL = "conv-general:"  # and a scope: all letters of a scope that belong to no other conversation
_SLASH = "::"  # stands for the "/" of a scope in an id, which may hold none; no scope holds two colons in a row


class Thread(Struct, frozen=True, kw_only=True):
    """A root letter and the replies to it."""

    id: str  # the root letter's id
    subject: str
    participants: tuple[str, ...]
    count: int
    started_at: datetime
    last_at: datetime


class Turn(Struct, frozen=True, kw_only=True):
    """A letter, seen as one contribution to a conversation."""

    id: str
    conversation_id: str
    participant: str
    message_id: str
    thread_id: str | None  # only once somebody has replied
    in_reply_to: str | None  # a turn's id
    created_at: datetime


class Conversation(Struct, frozen=True, kw_only=True):
    """Letters that belong together: by an explicit id, by thread tag and scope, or all others of a scope."""

    id: str
    scope: str
    subject: str
    participants: tuple[str, ...]
    threads: int
    turns: int
    started_at: datetime
    last_at: datetime


def conversation_of(message: Message) -> str:
    """Explicit id, else thread tag and scope, else the scope's catch-all."""
    if message.conversation_id is not None:
        return message.conversation_id
    if message.thread_tag is not None:
        return tag_conversation(message.thread_tag, message.scope)
    return general_conversation(message.scope)


def tag_conversation(tag: str, scope: str = DEFAULT_SCOPE) -> str:
    """Tags are free text, so the id is a hash; the same tag and scope always give the same one."""
    return "conv-" + blake2b(f"{scope}\0{tag}".encode(), digest_size=13).hexdigest()


def general_conversation(scope: str = DEFAULT_SCOPE) -> str:
    return f"{GENERAL}{scope.replace('/', _SLASH)}"


def general_scope(conversation: str) -> str | None:
    """The scope whose catch-all this is, if it is one."""
    if not conversation.startswith(GENERAL):
        return None
    return conversation.removeprefix(GENERAL).replace(_SLASH, "/")


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
    """The thread these letters make; there is at least one, the oldest first."""
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
    """The conversation these letters make; there is at least one, the oldest first."""
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
    """Senders and visible recipients, in order of appearance."""
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


# What letters cannot tell of a conversation: its state, its subject, who sits in it, the threads somebody opened.
#
# Letters stay the truth about turns. A talk is kept only where somebody said something about the conversation
# itself; one that nobody ever spoke about is told by its letters alone (`thread.py`).

# content: an object with a type. bare: anything else, such as "hi". text: {"text": "hi"}, as MAP's clients say it
Shape: TypeAlias = Literal["content", "bare", "text"]
ACTIVE = "active"
# (status, action) -> status. Whoever does again what is done already changes nothing.
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
TURN = "turn-"  # and the id of its letter
THREAD = "thread-"  # and the id of its root letter, or of its own


class Seat(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A participant."""

    agent: str
    joined_at: datetime
    role: str = ""
    left_at: datetime | None = None  # who left comes back by joining or by an invitation
    permissions: dict[str, Any] = field(default_factory=dict)  # said by others, shown as they were said


class Strand(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread that somebody opened, rather than by replying."""

    id: str
    root: str  # a letter's id
    created_at: datetime
    created_by: str = ""
    parent: str | None = None
    subject: str = ""


class Talk(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation, as far as letters do not tell it."""

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
    seats: tuple[Seat, ...] = ()
    strands: tuple[Strand, ...] = ()

    def seat(self, agent: str) -> Seat | None:
        return next((seat for seat in self.seats if seat.agent == agent), None)


class TurnNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was said of a turn besides its content. It lies in the `extra` of its letter."""

    content_type: str = "text"
    shape: Shape = "content"  # how the content was said
    thread: str | None = None
    reply_to: str | None = None  # a letter's id; the letter itself says it only where all who get it know that one
    source: str | None = None  # the message it was made of, elsewhere
    visibility: dict[str, Any] | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def note_of(message: Message) -> TurnNote | None:
    """None: a letter like any other. Anybody may write anything into `extra`; what is no note is none."""
    try:
        return convert(message.extra[TURN_NOTE], TurnNote) if TURN_NOTE in message.extra else None
    except ValidationError:
        return None


def turn_id(letter: str) -> str:
    return f"{TURN}{letter}"


def letter_of_turn(turn: str) -> str:
    return turn.removeprefix(TURN)


def thread_of(message: Message) -> str | None:
    """The thread a turn belongs to; a root is in none."""
    note = note_of(message)
    if note is not None and note.thread is not None:
        return note.thread
    return None if message.thread_id is None else f"{THREAD}{message.thread_id}"


def reply_of(message: Message) -> str | None:
    """The letter a turn answers."""
    note = note_of(message)
    return message.in_reply_to or (note.reply_to if note else None)


def seated(talk: Talk, seat: Seat) -> Talk:
    """With this one in it, in the place it had."""
    others = [held for held in talk.seats if held.agent != seat.agent]
    at = next((i for i, held in enumerate(talk.seats) if held.agent == seat.agent), len(others))
    return replace(talk, seats=(*others[:at], seat, *others[at:]))


def stepped(talk: Talk, action: str, now: datetime) -> Talk:
    """The talk after `action`, itself where nothing changes, or IllegalMove in the table's words."""
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
