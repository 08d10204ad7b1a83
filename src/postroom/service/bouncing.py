"""Notices to a sender whose letter died. Written by the house, and never about another notice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.address import system_of
from ..model.hashing import blake2b
from ..model.message import BOUNCE, CAME, same_name
from ..model.names import AT, POSTMASTER
from .notices import about, notice

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..store.base import Write
    from .office import Office


def bounce(office: Office, message: Message, delivery: Delivery, now: datetime) -> list[Write]:
    """The notice to the sender that its letter died here; none for what the house wrote itself, and none to
    somebody elsewhere from where the letter did not come: who put it here wrote in a name that is not theirs.
    """
    if message.is_automatic or _is_forged(message):
        return []
    reason = delivery.reason or "no reason given"
    words = f"Your letter to {delivery.mailbox} is dead after {_tries(delivery.attempts)}: {reason}"
    facts = {"message_id": message.id, "mailbox": delivery.mailbox, "reason": reason}
    subject = f"Undeliverable: {message.subject or message.id}"
    return [notice(office, BOUNCE, message.sender, subject, words, facts, now, **about(message))]


def turn_away(office: Office, message: Message, to: str, reason: str) -> None:
    """The notice to a sender elsewhere that its letter was not taken here, once for each letter. What is said to
    the house itself is not answered, else two that answer everything would never end.
    """
    if message.is_automatic or same_name(to, POSTMASTER):
        return
    key = f"refused:{blake2b(f'{message.sender} {message.id}'.encode(), digest_size=16).hexdigest()}"

    def plan() -> Sequence[Write]:
        if office.store.sent(POSTMASTER, key):
            return []
        words = f"Your letter to {to} was not taken: {reason}"
        facts = {"message_id": message.id, "mailbox": to, "reason": reason}
        subject = f"Undeliverable: {message.subject or message.id}"
        now = office.now().wall
        return [notice(office, BOUNCE, message.sender, subject, words, facts, now, key=key, **about(message))]

    office.store.commit(plan)


def _is_forged(message: Message) -> bool:
    if AT not in message.sender:
        return False
    came = message.extra.get(CAME)
    source = came.get("source") if isinstance(came, dict) else None
    return not isinstance(source, str) or not same_name(source, system_of(message.sender))


def _tries(count: int) -> str:
    return "1 try" if count == 1 else f"{count} tries"
