"""Queries to a store, and what it answers: `Query` asks for deliveries, `LetterQuery` for letters.

Searches for letters by their words are in `model/search.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from .delivery import Delivery, State
from .message import Message, Priority
from .values import Brief

# inbox: unread first, then by priority and age. priority: by priority and age. age, newest: by acceptance number.
Order = Literal["inbox", "priority", "age", "newest"]


class Moment(Struct, frozen=True, gc=False, kw_only=True):
    """The present by both clocks: the wall clock for deadlines, the machine's uptime for leases."""

    wall: datetime
    steady: float
    boot: str


class Name(Struct, frozen=True):
    """A mailbox, with or without mail; `known` if its agent registered, wrote, or read or claimed mail."""

    mailbox: str
    known: bool


class Found(Brief, frozen=True, gc=False):
    """A letter with its delivery at one mailbox."""

    message: Message
    delivery: Delivery


class Query(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A query for deliveries. Every field narrows it; the default asks for all."""

    mailbox: str | None = None
    states: tuple[State, ...] = ()
    message_ids: tuple[str, ...] = ()
    unread_only: bool = False  # without read_at
    shown_only: bool = False  # without letters that the sender took back before they were read
    kinds: tuple[str, ...] = ()
    min_priority: Priority = Priority.LOW
    sender: str | None = None
    thread: str | None = None
    thread_tag: str | None = None
    tag: str | None = None
    scope: str | None = None
    after: int | None = None  # arrived after this number; then the result is in order of arrival
    until: int | None = None  # and not after this one
    since: datetime | None = None  # created at or after
    sent_before: datetime | None = None  # created before
    offered_at: datetime | None = None  # not expired at this time
    due_at: datetime | None = None  # and not waiting for a later attempt
    due_most: datetime | None = None  # a retry later than this was set by a wrong clock, and counts as due
    unarchived_before: datetime | None = None  # acknowledged before, not archived yet
    reason: str | None = None  # of its death
    dead_by: datetime | None = None  # died at this time or earlier
    order: Order = "inbox"
    limit: int | None = None


class LetterQuery(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query for letters, whatever their recipients. Every field narrows it."""

    thread: str | None = None
    thread_tag: str | None = None
    conversation: str | None = None
    scope: str | None = None
    party: str | None = None  # sent by, or delivered to
    sender: str | None = None
    key: str | None = None  # sent by `sender` with this key, or without a key under this id; no other field counts
    beginning: str = ""  # of their ids
    replies_in: str | None = None  # a thread, without its root
    received_by: str | None = None  # delivered to
    to_several: bool = False  # delivered to more than one mailbox
    newest: int | None = None  # of one conversation or the replies of one thread: only so many, the newest
    after: int = 0  # acceptance number
    before: int | None = None  # acceptance number
    newest_of: Literal["", "thread", "conversation"] = ""  # of each, only the newest letter; then newest first
    settled_before: datetime | None = None  # every delivery done or dead by then
    spared: tuple[str, ...] = ()  # ids of letters to leave out
    order: Literal["age", "newest", "id"] = "age"
    skip: int = 0
    limit: int | None = None


# Answers that count

# all: a number. priority, mailbox: of deliveries; mailboxes in the order of their oldest letter. state: a Tally
# for each mailbox. quota, sender: see `Store.count`. reason: of deliveries, by mailbox and reason. pair: of
# letters, by sender and mailbox. moved: of changes of deliveries, by mailbox and state.
Group = Literal["all", "priority", "mailbox", "state", "quota", "sender", "reason", "pair", "moved"]


class Tally(Brief, frozen=True, kw_only=True):
    """The open and dead mail of one mailbox. Settled mail is not counted: that would read all of it."""

    mailbox: str
    unread: dict[Priority, int]  # not read yet
    seen: int = 0  # read, not settled
    claimed: int = 0
    queued: int = 0  # not due yet
    dead: int = 0
    oldest_unread_at: datetime | None = None  # time of delivery
    oldest_seen_at: datetime | None = None  # time of delivery
    oldest_claimed_at: datetime | None = None  # time of delivery

    @property
    def total_unread(self) -> int:
        return sum(self.unread.values())

    @property
    def backlog(self) -> int:
        """The number of letters that are not settled."""
        return self.total_unread + self.seen + self.claimed
