"""The store protocol: one write verb, a few questions, and a bell.

Whatever a store is made of, `commit` is all or nothing and durable on return, and each write carries its own
precondition, so that races are decided here and nowhere else. A commit may be given as a plan: a function that
looks first and then says what to write, with nobody in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import QuotaFull
from ..model.delivery import COPIED, DURABLE, REDIRECTED, Delivery, State
from ..model.message import Message
from ..model.names import system_of
from ..model.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from ..model.message import Priority
    from ..model.query import Found, LetterQuery, Moment, Query, SearchQuery
    from ..model.record import Change, Cursor
    from ..model.report import Finding, Progress, Tally, Traffic


FEW = 8  # up to so many recipients are looked up one by one


class Post(Struct, frozen=True, gc=False, kw_only=True):
    """Accept a letter. Its id must be new; the same letter again (by id or key) changes nothing."""

    message: Message
    deliveries: tuple[Delivery, ...]
    encoded: bytes = b""  # the letter as JSON, if the caller has it already
    copies: tuple[str, ...] = ()  # further mailboxes, each with a delivery like the first
    quota: int | None = None  # refuse when an inbox holds this many unread letters, or its sender has its share
    outbox: int | None = None  # the same of letters that wait for one other system
    known_only: bool = False  # refuse a recipient nobody has heard of
    # Asked inside the commit, at least where anybody has a guard: the letter as it may be written, or a refusal.
    admit: Callable[[Post], Post] | None = None
    routes: bool = False  # it must be asked in any case: somebody is still to be chosen


class Move(Struct, frozen=True, gc=False):
    """Change a delivery, if it still is what it was. It may go to another mailbox (`REDIRECTED`)."""

    before: Delivery
    after: Delivery
    action: str  # the word of the transition table


class Put(Struct, frozen=True, gc=False, kw_only=True):
    """Write a record, if it still is at the revision it was read at."""

    record: Record
    first: int = 1  # the revision of a record that was not there, such as one that comes in with an import
    durable: bool = True  # False: harmless to lose in a power cut, such as a heartbeat


class Forget(Struct, frozen=True):
    """Delete a letter, all of whose deliveries are settled. Its id and key stay spent."""

    message_id: str


class Rename(Struct, frozen=True):
    """A mailbox has another name from now on, and its old one still means it. Nobody else may have the new one.
    Where nobody is called `old`, it becomes another name of `new`.
    """

    old: str
    new: str


class Introduce(Struct, frozen=True):
    """Let the room know a name that need not have mail."""

    mailbox: str
    known: bool  # it wrote or registered; else it was only written to


Write: TypeAlias = Post | Move | Put | Forget | Rename | Introduce
Plan: TypeAlias = Callable[[], Sequence[Write]]  # quick, and waits for nothing: everyone else stands in line


class Posted(Struct, frozen=True, gc=False, kw_only=True):
    """What became of a Post."""

    message_id: str  # the first letter's id when this one repeats it
    number: int  # 0 when it repeats
    repeated: bool = False
    unknown: tuple[str, ...] = ()  # recipients that never registered nor wrote
    written: Post | None = None  # the letter as it was written, if not as it was given


class Letter(Struct, frozen=True, gc=False):
    """A letter and its acceptance number."""

    number: int
    message: Message


class Undone(Exception):
    """What was gathered is not in the room, nothing of it. It can be done again, each by itself."""


class Watch(Protocol):
    """An ear at some mailboxes. Push is a hint: it may ring early, late, or for nothing."""

    def add(self, mailbox: str) -> None: ...
    def wait(self, timeout: float) -> bool:
        """Block until a bell rings or the time is up."""
        ...

    def fileno(self) -> int:
        """A descriptor that becomes readable when a bell rings, or -1: then poll `rung`."""
        ...

    def rung(self) -> set[str]:
        """Which mailboxes rang since last asked; does not block."""
        ...

    def close(self) -> None: ...


class Store(Protocol):
    """A room's memory."""

    vouches: bool  # are letters kept where nobody else writes? Only there can one say who proved what
    archives_by_sending: bool  # is settled mail archived by the time it was sent, not by when it was settled?

    def fresh_id(self, sender: str) -> str | None:
        """An id for a new letter, where the store names letters in its own way."""
        ...

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        """Write all or nothing, durably. One Posted per Post."""
        ...

    def gathered(self, *, joined: bool = False) -> AbstractContextManager[None]:
        """What this thread commits inside is made safe together, at the end. Nobody may be told before that.
        `joined`: it may all be one transaction; if that fails, Undone at the end.
        """
        ...

    def hurried(self) -> AbstractContextManager[Callable[[], bool]]:
        """What this thread commits inside waits for nobody: StoreBusy at once. The function that it yields tells
        whether anything was committed all the same.
        """
        ...

    def sync(self) -> None:
        """A barrier: when it returns, all that was visible before is on stable storage."""
        ...

    def get(self, ids: Sequence[str]) -> dict[str, Letter]: ...
    def sent(self, sender: str, key: str) -> Letter | None:
        """The letter this sender sent with this key, or without a key under this id."""
        ...

    def find(self, query: Query) -> list[Found]: ...
    def count(self, query: Query) -> dict[Priority, int]:
        """How many deliveries match, by priority; `limit` and `order` do not matter."""
        ...

    def letters(self, query: LetterQuery) -> list[Letter]: ...
    def count_letters(self, query: LetterQuery) -> int:
        """How many letters match; `skip`, `limit` and `order` do not matter."""
        ...

    def ids(self, beginning: str, party: str | None, limit: int) -> list[str]:
        """The ids that begin so, in their order, of letters that `party` sent or was delivered (None: of all)."""
        ...

    def search(self, query: SearchQuery, reader: str | None, limit: int) -> list[Letter]:
        """Letters that `reader` sent or was delivered (None: all letters), the newest first.

        Whatever was committed before is found; an index that lags behind makes no difference.
        """
        ...

    def keep_index(self) -> int:
        """Bring up to date what makes searches quick, where there is such a thing. How many letters were new."""
        ...

    def threads(self, party: str | None, limit: int) -> list[str]:
        """Threads that have replies, the most recently active first."""
        ...

    def conversations(self, party: str | None, scope: str | None, limit: int) -> list[str]:
        """Conversations, the most recently active first."""
        ...

    def overdue(self, moment: Moment, mailboxes: Sequence[str] | None, limit: int) -> list[Found]:
        """Deliveries that time has caught up with: leases run out, mail now due, mail expired."""
        ...

    def offered(self, query: Query, moment: Moment) -> list[Found] | None:
        """What `find` finds at the query's mailbox, or None if anything there is overdue: that comes first."""
        ...

    def next_timer(self, moment: Moment, mailboxes: Sequence[str]) -> float | None:
        """Seconds until the next delivery of these becomes overdue or due for another try."""
        ...

    def records(self, kind: str, key: str | None = None) -> list[Record]: ...
    def keys(self, kind: str) -> list[str]:
        """The keys of all records of a kind, without their values."""
        ...

    def quarantined(self) -> list[str]:
        """The ids of letters that were found damaged and set aside; they block nobody."""
        ...

    def spelling(self, name: str) -> str | None:
        """How the agent that counts as `name`, or was called so before, is spelt here; None if there is none."""
        ...

    def mailboxes(self) -> list[str]:
        """Every name that was ever written to, wrote, or registered."""
        ...

    def known(self) -> list[str]:
        """Those of them that wrote, registered, or read or claimed mail."""
        ...

    def is_known(self, name: str) -> bool:
        """Is the agent that counts as `name`, or was called so before, one of those?"""
        ...

    def strangers(self) -> dict[str, int]:
        """Mailboxes here with letters that nobody has looked at, and whose owner was never heard from; with the
        number of the newest such letter.
        """
        ...

    def outgoing(self, due: datetime | None, most: datetime | None = None) -> dict[str, int]:
        """Mailboxes at other systems that mail waits for, and how much: of that due at this time (None: of all of
        it); a retry set for later than `most` is due as well. Whose first letter was accepted first comes first.
        """
        ...

    def waiting(self, mailbox: str, sender: str) -> tuple[int, int]:
        """How many letters count towards the quota of this mailbox (or, if it is elsewhere, of the outbox for its
        system): of all senders, and of this one. The counts are kept: to ask for them costs the same however many
        letters wait.
        """
        ...

    def tally(self, mailbox: str | None) -> list[Tally]:
        """The open and dead mail of a mailbox, or of every mailbox that has some, by name. Its cost grows with
        what is open and dead, not with what is done.
        """
        ...

    def count_deliveries(self) -> int:
        """All deliveries there are."""
        ...

    def traffic(self, since: Cursor, after: datetime) -> Traffic:
        """What happened after a cursor that was taken at the time `after`; Resync as `changes`."""
        ...

    def changes(self, since: Cursor, limit: int) -> tuple[list[Change], Cursor]:
        """What happened after `since`; raises Resync when that can no longer be told."""
        ...

    def cursor(self) -> Cursor:
        """Now."""
        ...

    def renew_epoch(self) -> None:
        """Begin another life: every cursor given out before needs a resync."""
        ...

    def trim_changes(self, keep: int) -> int:
        """Drop old changes, not the newest `keep` (at least one); cursors older than that need a resync."""
        ...

    def watch(self, mailboxes: Sequence[str]) -> Watch: ...
    def close(self) -> None: ...

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
        """What the store knows of its own health. With `repair`, what is safe to mend is mended."""
        ...

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        """A whole copy, as of one moment, in a file of its own; how many letters it holds."""
        ...


def must_last(write: Write) -> bool:
    """Must this be on stable storage before success is reported?"""
    if isinstance(write, Move):
        return write.action in DURABLE or write.action in {COPIED, REDIRECTED}
    return write.durable if isinstance(write, Put) else True


def vouched(store: Store, message: Message) -> Message:
    """The letter, claiming no more for its origin than this store can keep true."""
    return replace(message, proven=False) if message.proven and not store.vouches else message


def check_space(sender: str, mailbox: str, waiting: tuple[int, int], limit: int, more: int = 1) -> None:
    """Refuse letters that do not fit into an inbox, or into the outbox for another system. `waiting`: how many are
    there, of all senders and of this one. One sender gets at most half of what the others leave free, and always
    one letter while anything is free: so a sender that floods a mailbox leaves space for all others (G10).
    """
    total, own = waiting
    system = system_of(mailbox)
    if total + more > limit:
        full = f"{total} letters wait for the system {system!r}, and at most {limit} may"
        problem = full if system else f"the inbox of {mailbox!r} is full ({limit} letters)"
    elif own + more > max(1, (limit - total + own) // 2):
        where = f"wait for the system {system!r}" if system else f"are unread in the inbox of {mailbox!r}"
        problem = f"{own} letters of {sender!r} {where}; one sender gets at most half of what is free"
    else:
        return
    wait = f"postroom peers ping {system} tells why they wait" if system else f"wait until {mailbox} has read some"
    raise QuotaFull(problem, field="to", hint=f"{wait}; then send it again")


def sends(writes: Sequence[Write]) -> bool:
    """Does an agent send something? The notices of the house belong to what they tell of."""
    return any(isinstance(write, Post) and not write.message.is_automatic for write in writes)


def rung_by(writes: Sequence[Write], posted: Sequence[Posted]) -> set[str]:
    """Whose bell a commit rings: those with something new to read or to claim."""
    rung: set[str] = set()
    posts = 0
    for write in writes:
        if isinstance(write, Move):
            if write.action != "read" and write.after.state is State.UNREAD:
                rung.add(write.after.mailbox)
        elif isinstance(write, Post):
            post = posted[posts].written or write
            posts += 1
            for delivery in post.deliveries:
                rung.add(delivery.mailbox)
            if post.copies:
                rung.update(post.copies)
        elif isinstance(write, Rename):
            rung.add(write.old)  # whoever still waits there is told
    return rung
