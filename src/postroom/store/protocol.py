"""The store protocol: one write verb, queries, and notification.

In every store `commit` is all or nothing, and durable on return or at the end of `batch`. Each write carries its
own precondition, so races are decided in the store and nowhere else. A commit may also be a plan: a function that
reads the store and returns the writes; no other commit happens between its reads and its writes. A plan may run
twice, so it has no side effects.

`tests/contract` holds the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, overload

from msgspec import Struct
from msgspec.structs import replace

from ..errors import QuotaFull
from ..model.delivery import COPIED, DURABLE, REDIRECTED, Delivery, State
from ..model.message import Message
from ..model.names import AT, system_of
from ..model.query import Found, LetterQuery, Query
from ..model.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from ..clock import Clock
    from ..model.delivery import Lease
    from ..model.message import Priority
    from ..model.query import Group, Moment, Name, Tally
    from ..model.record import Change, Cursor
    from ..model.report import Finding, Progress
    from ..model.search import SearchQuery


FEW = 8  # up to this many recipients are looked up one by one


class Post(Struct, frozen=True, gc=False, kw_only=True):
    """A letter to accept: its id must be new, and the same letter again (by id or key) changes nothing."""

    message: Message
    deliveries: tuple[Delivery, ...]
    encoded: bytes = b""  # the letter as JSON, if the caller has it already
    copies: tuple[str, ...] = ()  # further mailboxes, each with a delivery like the first
    quota: int | None = None  # refuse when an inbox holds this many unread letters, or its sender has its share
    outbox: int | None = None  # like `quota`, for letters that wait for one other system
    known_only: bool = False  # refuse a recipient that never registered, wrote or read mail
    # Called inside the commit, at least where any mailbox has a guard: returns the letter as it may be written,
    # or raises a refusal.
    admit: Callable[[Post], Post] | None = None
    routes: bool = False  # always call `admit`: it still has to choose a recipient


class Move(Struct, frozen=True, gc=False):
    """A change of a delivery that is still at its revision and, if it is claimed, under the same lease token.

    It may go to another mailbox (`REDIRECTED`).
    """

    before: Delivery
    after: Delivery
    action: str  # a word of the transition table in `model/delivery.py`


class Put(Struct, frozen=True, gc=False, kw_only=True):
    """A record to write, if the stored one is still at the revision it was read at."""

    record: Record
    first: int = 1  # the revision of a record that did not exist before; an import sets it
    durable: bool = True  # False: harmless to lose in a power cut, such as a heartbeat


class Forget(Struct, frozen=True):
    """The deletion of a letter whose deliveries are all settled. Its id and key cannot be used again."""

    message_id: str


class Rename(Struct, frozen=True):
    """A new name for a mailbox, which no other mailbox may have. The old name becomes an alias.

    Where no mailbox is called `old`, that name becomes an alias of `new`.
    """

    old: str
    new: str


class Introduce(Struct, frozen=True):
    """A name that becomes known to the room without mail."""

    mailbox: str
    known: bool  # True if the agent wrote or registered, False if it was only written to


class RenewEpoch(Struct, frozen=True):
    """A new epoch: every cursor given out before needs a resync."""


Write: TypeAlias = Post | Move | Put | Forget | Rename | Introduce | RenewEpoch
Plan: TypeAlias = Callable[[], Sequence[Write]]  # must be quick and never block: other writers wait for it


class Posted(Struct, frozen=True, gc=False, kw_only=True):
    """The result of a Post."""

    message_id: str  # the first letter's id, if this one repeats it
    number: int  # the acceptance number; 0 if it repeats another
    repeated: bool = False
    unknown: tuple[str, ...] = ()  # recipients that never registered nor wrote
    written: Post | None = None  # the letter as it was written, where `admit` changed it


class Letter(Struct, frozen=True, gc=False):
    """A letter and its acceptance number."""

    number: int
    message: Message


class Overdue(Struct, frozen=True, gc=False):
    """What time has done to deliveries, and what it will do next."""

    found: list[Found]
    next_in: float | None  # seconds until the next delivery becomes overdue or due for another try


class Trimmed(Struct, frozen=True, gc=False):
    """The result of one round of care."""

    changes: int  # dropped
    indexed: int  # letters that were added to the text index


class Watch(Protocol):
    """A watch on some mailboxes. Push is a hint: a signal may come early, late, or without news."""

    def add(self, mailbox: str) -> None: ...
    def wait(self, timeout: float) -> bool:
        """Block until a signal comes or the time is up."""

    def fileno(self) -> int:
        """Return a descriptor that becomes readable when a signal comes, or -1: then poll `notified`."""

    def notified(self) -> set[str]:
        """Return the mailboxes signalled since the last call, without blocking."""

    def close(self) -> None: ...


class Store(Protocol):
    """The storage of one room."""

    vouches: bool  # does no other program write here? Only then can `Message.proven` be trusted
    archives_by_sending: bool  # is settled mail archived by the time it was sent, not by when it was settled?
    clock: Clock  # leases are measured by it: a store on another machine keeps that machine's time
    fresh_id: Callable[[str], str] | None  # makes the id of a sender's new letter, where the store prescribes ids
    # Claims what a query finds, in one step, where that is cheaper than to find and then to move. It returns None
    # where the caller must do it: the query is unusual, or something is overdue.
    take: Callable[[Query, Moment, Lease], list[Found] | None] | None

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        """Write all or nothing, durably, and return one Posted per Post.

        An empty list writes nothing: it returns once everything that was visible before is on stable storage.
        """

    def batch(self) -> AbstractContextManager[None]:
        """Make all commits of this thread durable together at the end of the block; no answer may leave before.

        If that fails, the end of the block raises StoreFailing.
        """

    def get(self, ids: Sequence[str]) -> dict[str, Letter]: ...
    def find(self, query: Query) -> list[Found]: ...
    @overload
    def count(self, query: Query | LetterQuery, by: Literal["all"]) -> int: ...
    @overload
    def count(self, query: Query, by: Literal["priority"] = "priority") -> dict[Priority, int]: ...
    @overload
    def count(self, query: Query, by: Literal["mailbox"]) -> dict[str, int]: ...
    @overload
    def count(self, query: Query, by: Literal["state"]) -> list[Tally]: ...
    @overload
    def count(self, query: Query, by: Literal["quota"]) -> tuple[int, int]: ...
    @overload
    def count(self, query: Query, by: Literal["sender"]) -> dict[str, int]: ...
    @overload
    def count(self, query: Query, by: Literal["reason"]) -> dict[tuple[str, str], int]: ...
    @overload
    def count(self, query: LetterQuery, by: Literal["pair"]) -> dict[tuple[str, str], int]: ...
    @overload
    def count(self, query: LetterQuery, by: Literal["moved"]) -> dict[tuple[str, State], int]: ...
    def count(self, query: Any, by: Group = "priority") -> Any:
        """Count the matching deliveries or letters, whatever `skip`, `order` and `limit` say.

        By `state`, only the query's `mailbox` counts, and the cost grows with the mail that is not done. By
        `quota`: how many letters count towards the quota of the query's `mailbox`, of all senders and of its
        `sender`; for a mailbox at another system that is the quota of the outbox for that system. These counts are
        kept, so the cost does not depend on how many letters wait. By `sender`: how many count towards the quota
        of the query's `mailbox`, which is one of this room, of each sender. By `pair` and `moved`, only the
        query's `after` and `before` count, and the cost grows with what came between them.
        """

    def letters(self, query: LetterQuery) -> list[Letter]: ...
    def search(self, query: SearchQuery, reader: str | None, limit: int) -> list[Letter]:
        """Return matching letters that `reader` sent or received (None: all letters), the newest first.

        Every letter committed before is found, even if the text index lags behind.
        """

    def overdue(
        self, moment: Moment, mailboxes: Sequence[str] | None, limit: int, *, ahead: float = 0.0
    ) -> Overdue:
        """Return the deliveries that time must change: leases run out, mail now due, mail expired.

        With `ahead`, also return when the next one will be, if that is at most so many seconds away.
        """

    def records(
        self, kind: str, key: str | None = None, *, prefix: bool = False, values: bool = True
    ) -> list[Record]:
        """Return the record with this key, or all records of this kind, by key.

        With `prefix`, of every kind that begins like this. Without `values`, every value is None.
        """

    def quarantined(self) -> list[str]:
        """Return the ids of letters that were found damaged and moved out of the way."""

    def names(self, name: str | None = None) -> list[Name]:
        """Return every name that was written to, wrote or registered; or the one that `name` means here.

        A name means the mailbox with this name or former name, however it is spelt.
        """

    def changes(self, since: Cursor, limit: int) -> tuple[list[Change], Cursor]:
        """Return the changes after `since` and the next cursor; Resync when they are no longer complete."""

    def cursor(self) -> Cursor:
        """Return the cursor of the latest change."""

    def trim(self, keep: int | None = None) -> Trimmed:
        """Drop all but the newest `keep` changes (at least one; None: drop none), and fill the text index.

        Cursors older than the changes that are left need a resync.
        """

    def watch(self, mailboxes: Sequence[str]) -> Watch: ...
    def close(self) -> None: ...

    def examine(self, *, repair: bool, full: bool, progress: Progress) -> Iterator[Finding]:
        """Check the store and yield findings. With `repair`, mend what is safe to mend."""

    def backup(self, path: Path, *, overwrite: bool, progress: Progress) -> int:
        """Write a consistent copy into a file of its own, and return how many letters it holds."""


def must_last(write: Write) -> bool:
    """Return whether this write must be on stable storage before success is reported.

    Accepted letters, acks, dead letters and records that grant or revoke must; claims and read stamps need no sync
    of their own.
    """
    if isinstance(write, Move):
        return write.action in DURABLE or write.action in {COPIED, REDIRECTED}
    return write.durable if isinstance(write, Put) else True


def vouched(store: Store, message: Message) -> Message:
    """Return the letter without `proven` where this store cannot keep that claim true."""
    return replace(message, proven=False) if message.proven and not store.vouches else message


def check_space(sender: str, mailbox: str, waiting: tuple[int, int], limit: int, more: int = 1) -> None:
    """Refuse letters that do not fit into an inbox, or into the outbox for another system.

    `waiting` is how many letters are there, of all senders and of this one. One sender gets at most half of what
    the others leave free, and always one letter while anything is free: so a sender that floods a mailbox leaves
    space for all others (G10).
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
    """Return whether an agent sends something here; notices that Postroom itself sends do not count."""
    return any(isinstance(write, Post) and not write.message.is_automatic for write in writes)


def mailboxes_to_notify(writes: Sequence[Write], posted: Sequence[Posted]) -> set[str]:
    """Return the mailboxes that a commit gives something new to read or to claim."""
    notified: set[str] = set()
    posts = 0
    for write in writes:
        if isinstance(write, Move):
            if write.action != "read" and write.after.state is State.UNREAD:
                notified.add(write.after.mailbox)
        elif isinstance(write, Post):
            post = posted[posts].written or write
            posts += 1
            for delivery in post.deliveries:
                notified.add(delivery.mailbox)
            if post.copies:
                notified.update(post.copies)
        elif isinstance(write, Rename):
            notified.add(write.old)  # a process may still wait under the old name
    return notified


def record_keys(store: Store, kind: str) -> list[str]:
    """Return the keys of all records of a kind, without reading their values."""
    return [record.key for record in store.records(kind, values=False)]


def first_sent(store: Store, sender: str, key: str) -> Letter | None:
    """Return the letter this sender sent with this key, or without a key under this id."""
    found = store.letters(LetterQuery(sender=sender, key=key))
    return found[0] if found else None


def spelling_of(store: Store, name: str) -> str | None:
    """Return how the agent with this name or former name is spelt here; None if there is none."""
    found = store.names(name)
    return found[0].mailbox if found else None


def spelt(store: Store, name: str) -> str:
    """Return a name as it is spelt here; unchanged if there is no such agent."""
    return spelling_of(store, name) or name


def is_known(store: Store, name: str) -> bool:
    """Return whether the agent with this name or former name registered, wrote, or read or claimed mail."""
    return any(found.known for found in store.names(name))


def known_names(store: Store) -> list[str]:
    """Return the names of all agents that registered, wrote, or read or claimed mail."""
    return [name.mailbox for name in store.names() if name.known]


def all_names(store: Store) -> list[str]:
    """Return the names of all mailboxes."""
    return [name.mailbox for name in store.names()]


def outgoing(store: Store, due: datetime | None = None, most: datetime | None = None) -> dict[str, int]:
    """Count the mail that waits for each mailbox at another system, ordered by the oldest letter.

    Only mail due at this time counts (None: all of it); a retry set for later than `most` counts as due.
    """
    queued = store.count(Query(states=(State.QUEUED,), due_at=due, due_most=most), by="mailbox")
    return {mailbox: many for mailbox, many in queued.items() if AT in mailbox}


def waiting_letters(store: Store, mailbox: str, sender: str) -> tuple[int, int]:
    """Return how many letters count towards the quota of this mailbox: of all senders, and of this one."""
    return store.count(Query(mailbox=mailbox, sender=sender), by="quota")
