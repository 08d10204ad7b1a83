"""How much mail there is, where it waits, and how it flows: numbers, never letters."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from .change import Cursor
from .delivery import State
from .message import Priority


class Tally(Struct, frozen=True, kw_only=True):
    """The open and dead mail of one mailbox. What is done is not counted here: it costs a look at all of it."""

    mailbox: str
    unread: dict[Priority, int]  # nobody looked at it yet
    seen: int = 0  # looked at, not settled
    claimed: int = 0
    queued: int = 0  # not due yet
    dead: int = 0
    oldest_unread_at: datetime | None = None  # when it was delivered
    oldest_seen_at: datetime | None = None  # likewise, of what was looked at and not settled
    oldest_claimed_at: datetime | None = None  # likewise, of what somebody works on

    @property
    def total_unread(self) -> int:
        return sum(self.unread.values())

    @property
    def backlog(self) -> int:
        """All that somebody still has to do."""
        return self.total_unread + self.seen + self.claimed


class Rate(Struct, frozen=True, kw_only=True):
    """What came of telling somebody of mail, in one way or one host: of the letters it rang for or showed last."""

    name: str  # `claude`, `exec`, `webhook:1`
    letters: int
    rung: int  # of these: it rang for them, and no failure is known
    shown: int  # they were put before somebody, anywhere
    acknowledged: int
    median_to_shown: float | None  # seconds from its first ring to the next sight
    median_to_acknowledged: float | None  # seconds from the first sight


class Stats(Struct, frozen=True, kw_only=True):
    """A room in numbers."""

    letters: int
    deliveries: int
    states: dict[State, int]  # of the deliveries; unread ones are in the inbox, looked at or not
    unread: dict[Priority, int]  # nobody looked at it yet
    oldest_unread_at: datetime | None
    agents: int  # registered
    quarantined: int
    mailboxes: tuple[Tally, ...]  # those with open or dead mail, by name
    rates: tuple[Rate, ...] = ()  # by name


class Settled(Struct, frozen=True):
    """A delivery that was done: where, and how many seconds after it came."""

    mailbox: str
    seconds: float


class Traffic(Struct, frozen=True, kw_only=True):
    """What happened after a cursor."""

    cursor: Cursor  # up to where
    sent: int
    settled: tuple[Settled, ...]
    died: int


class AgentFlow(Struct, frozen=True, kw_only=True):
    """One mailbox, as a live view shows it."""

    mailbox: str
    unread: int
    backlog: int  # unread, looked at or claimed
    claimed: int
    dead: int
    settled: int  # since the last look
    oldest_unread: float | None  # seconds since it was delivered
    oldest_seen: float | None  # likewise, of what was looked at and not settled
    oldest_claimed: float | None  # likewise, of what somebody works on
    median_to_done: float | None  # seconds from delivery to done, of what was settled since the last look


class Flow(Struct, frozen=True, kw_only=True):
    """The room's flow since the last look. `seconds` is 0 in a first look: then there are no rates yet."""

    cursor: Cursor
    at: datetime
    uptime: float  # of the machine, when this was seen
    boot: str
    seconds: float  # since the last look
    sent: int
    settled: int
    died: int
    backlog: int
    median_to_done: float | None
    agents: tuple[AgentFlow, ...]  # the largest backlog first

    @property
    def sent_per_second(self) -> float:
        return self.sent / self.seconds if self.seconds else 0.0

    @property
    def settled_per_second(self) -> float:
        return self.settled / self.seconds if self.seconds else 0.0
