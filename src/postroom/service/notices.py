"""Notices of the house: letters of the postmaster, about another letter and in its thread. Nobody answers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.delivery import open_delivery
from ..model.message import Message, Recipient
from ..model.names import POSTMASTER
from ..model.parts import data, text
from ..store.base import Post
from .compose import LONGEST_SUBJECT

if TYPE_CHECKING:
    from datetime import datetime

    from .office import Office


def notice(
    office: Office,
    kind: str,
    to: str,
    subject: str,
    words: str,
    facts: dict[str, Any],
    now: datetime,
    *,
    schema: str | None = None,
    **fields: Any,
) -> Post:
    """A notice to one agent, in words and as data; `fields` are the letter's own, as `about` gives them."""
    message = Message(
        id=office.new_id(POSTMASTER),
        sender=POSTMASTER,
        recipients=(Recipient(to),),
        created_at=now,
        kind=kind,
        subject=subject[:LONGEST_SUBJECT],
        parts=(text(words), data(facts, schema=schema or kind)),
        trace=(POSTMASTER,),
        **fields,
    )
    home = office.store.spelling(to) or to  # it may have another name by now
    return Post(message=message, deliveries=(open_delivery(message, home, "to", now),))


def about(letter: Message) -> dict[str, Any]:
    """Where a notice about this letter belongs."""
    return {
        "scope": letter.scope,
        "thread_id": letter.thread,
        "thread_tag": letter.thread_tag,
        "conversation_id": letter.conversation_id,
        "in_reply_to": letter.id,
    }
