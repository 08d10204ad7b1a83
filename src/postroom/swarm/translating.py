"""A letter of the room as a Message of the design, and the design's times and names as ours.

A letter with several recipients is one letter here and several there. Its id is then followed by `@` and the
mailbox, so that every id names one letter in one mailbox. The design's own programs never make such a letter.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from ..model.delivery import State
from ..model.message import DEFAULT_SCOPE, is_broadcast
from .message import Message, MessagePriority, MessageStatus, MessageType

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import Message as Letter
    from ..model.query import Found

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
