"""Notices to a sender whose letter died. Written by the house, and never about another notice."""

from __future__ import annotations

from datetime import datetime

from ..model.delivery import Delivery, open_delivery
from ..model.message import BOUNCE, Message, Recipient
from ..model.parts import data, text
from ..store.base import Post, Write
from .office import POSTMASTER, Office


def bounce(office: Office, message: Message, delivery: Delivery, now: datetime) -> list[Write]:
    """The notice to the sender that its letter died here; none for what the house wrote itself."""
    if message.is_automatic:
        return []
    reason = delivery.reason or "no reason given"
    notice = Message(
        id=office.ids.message(),
        sender=POSTMASTER,
        recipients=(Recipient(message.sender),),
        created_at=now,
        kind=BOUNCE,
        subject=f"Undeliverable: {message.subject or message.id}"[:1000],
        parts=(
            text(f"Your letter to {delivery.mailbox} is dead after {_tries(delivery.attempts)}: {reason}"),
            data({"message_id": message.id, "mailbox": delivery.mailbox, "reason": reason}, schema=BOUNCE),
        ),
        scope=message.scope,
        thread_id=message.thread,
        thread_tag=message.thread_tag,
        conversation_id=message.conversation_id,
        in_reply_to=message.id,
        trace=(POSTMASTER,),
    )
    home = office.store.spelling(message.sender) or message.sender  # it may have another name by now
    return [Post(message=notice, deliveries=(open_delivery(notice, home, "to", now),))]


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"
