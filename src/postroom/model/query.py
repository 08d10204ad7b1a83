"""What a store can be asked: for deliveries (mail at mailboxes), or for letters themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from .delivery import Delivery, State
from .message import Message, Priority

# inbox: unread first, then priority, then age. priority: priority, then age. age and newest: acceptance.
Order = Literal["inbox", "priority", "age", "newest"]


class Moment(Struct, frozen=True, gc=False, kw_only=True):
    """Now, by both clocks: the wall's for what people agreed on, the machine's uptime for leases."""

    wall: datetime
    steady: float
    boot: str


class Found(Struct, frozen=True, gc=False):
    """A letter at a mailbox."""

    message: Message
    delivery: Delivery


class Query(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Deliveries. Every field narrows; the default asks for all."""

    mailbox: str | None = None
    states: tuple[State, ...] = ()
    message_ids: tuple[str, ...] = ()
    unread_only: bool = False  # without read_at
    shown_only: bool = False  # without what was taken back before its recipient looked
    kinds: tuple[str, ...] = ()
    min_priority: Priority = Priority.LOW
    sender: str | None = None
    thread: str | None = None
    thread_tag: str | None = None
    tag: str | None = None
    scope: str | None = None
    after: int | None = None  # came after this number; then the answer is in order of coming
    until: int | None = None  # and not after this one
    since: datetime | None = None  # created at or after
    sent_before: datetime | None = None  # created before
    offered_at: datetime | None = None  # not expired at this time
    due_at: datetime | None = None  # and not waiting for a later try
    due_most: datetime | None = None  # a retry set for later than this was set by a wrong clock, and is due
    unarchived_before: datetime | None = None  # acknowledged before, not archived yet
    order: Order = "inbox"
    limit: int | None = None


class LetterQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Letters, whoever got them."""

    thread: str | None = None
    thread_tag: str | None = None
    conversation: str | None = None
    scope: str | None = None
    party: str | None = None  # sent by, or delivered to
    sender: str | None = None
    replies_in: str | None = None  # a thread, without its root
    received_by: str | None = None  # delivered to
    to_several: bool = False  # delivered to more than one mailbox
    newest: int | None = None  # of one conversation or the replies of one thread: only the newest so many
    after: int = 0  # acceptance number
    settled_before: datetime | None = None  # every delivery done or dead by then
    spared: tuple[str, ...] = ()  # not these, by id
    order: Literal["age", "newest"] = "age"
    skip: int = 0
    limit: int | None = None
