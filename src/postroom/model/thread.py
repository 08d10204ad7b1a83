"""Threads, conversations and turns: folds over letters, never a second truth.

The same letters always fold to the same ids, so nothing changes over a restart.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from .hashing import blake2b
from .message import DEFAULT_SCOPE, is_any, is_broadcast

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
