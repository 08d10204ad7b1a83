"""Notices to a sender whose letter died. Written by the house, and never about another notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.message import BOUNCE
from .notices import about, notice

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..store.base import Write
    from .office import Office


def bounce(office: Office, message: Message, delivery: Delivery, now: datetime) -> list[Write]:
    """The notice to the sender that its letter died here; none for what the house wrote itself."""
    if message.is_automatic:
        return []
    reason = delivery.reason or "no reason given"
    words = f"Your letter to {delivery.mailbox} is dead after {_tries(delivery.attempts)}: {reason}"
    facts = {"message_id": message.id, "mailbox": delivery.mailbox, "reason": reason}
    subject = f"Undeliverable: {message.subject or message.id}"
    return [notice(office, BOUNCE, message.sender, subject, words, facts, now, **about(message))]


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"
