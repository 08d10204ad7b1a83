"""How much mail there is, where it waits, and how it flows: numbers, never letters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .alert import Ring, Sight
from .delivery import Attempt, State
from .message import Message, Priority, RecipientKind
from .record import Cursor
from .task import TaskState

if TYPE_CHECKING:
    from .alert import Audit
    from .delivery import Delivery


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


# The life of one letter, as somebody may see it: where it is, what happened to it, what came of it.


class Stop(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The letter at one mailbox. A lease's token is never shown: it is the proof of holding."""

    mailbox: str
    kind: RecipientKind
    state: State
    attempts: int = 0
    delivered_at: datetime | None = None
    read_at: datetime | None = None
    acked_at: datetime | None = None
    dead_at: datetime | None = None
    due_at: datetime | None = None
    archived_at: datetime | None = None
    expires_at: datetime | None = None
    holder: str | None = None  # who holds it, or who acknowledged it
    reason: str | None = None
    history: tuple[Attempt, ...] = ()
    rings: tuple[Ring, ...] = ()  # its recipient was told of it: hints, whatever came of them
    sights: tuple[Sight, ...] = ()  # it was put before somebody
    task: TaskState | None = None  # of the task that it opened here
    done_at: datetime | None = None  # that task was over


class Trace(Struct, frozen=True, kw_only=True):
    """One letter's life."""

    message: Message
    number: int  # of its acceptance
    stops: tuple[Stop, ...]
    replies: tuple[Message, ...]
    relays: tuple[Message, ...]  # the letter passed on
    bounces: tuple[Message, ...]  # the house's notices about it


def stop_of(delivery: Delivery, *, with_holder: bool) -> Stop:
    """Who holds it, and what holders said, is for the recipient and the operator."""
    same = {name: getattr(delivery, name) for name in _SAME}
    if not with_holder:
        return Stop(**same)
    holder = None if delivery.lease is None else delivery.lease.holder
    return Stop(**same, holder=holder, history=delivery.history)


def with_audit(stop: Stop, audit: Audit, *, whole: bool) -> Stop:
    """That it was rung and shown is for its sender too; on what occasion, and why a bell failed, is not."""
    if whole:
        rings = tuple(replace(ring, telling=0) for ring in audit.rings)
        return replace(stop, rings=rings, sights=audit.sights)
    rings = tuple(replace(ring, why="", telling=0) for ring in audit.rings)
    return replace(stop, rings=rings, sights=tuple(replace(sight, where="") for sight in audit.sights))


_ADDED = {"holder", "history", "rings", "sights", "task", "done_at"}
_SAME = tuple(name for name in Stop.__struct_fields__ if name not in _ADDED)


# What a look at a room's health says: findings, one or more for each check, and what was done about them.

# (done, total): called now and then while work goes on. A total of 0 means that nobody knows it.
Progress: TypeAlias = Callable[[int, int], object]


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    NOTE = 1  # worth knowing; nothing is wrong
    WARNING = 2  # something will go wrong, or is slower or less safe than it should be
    ERROR = 3  # something is wrong

    def __str__(self) -> str:
        return self.name.lower()


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing a check found."""

    check: str  # the check's name, such as "integrity"
    level: Level
    what: str
    hint: str = ""  # what to do about it
    repaired: bool = False  # `what` says what was wrong; it is mended now


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Level:
        """The worst of what is left; what was repaired does not count."""
        return max((found.level for found in self.findings if not found.repaired), default=Level.OK)

    @property
    def is_healthy(self) -> bool:
        """Nothing is wrong, and nothing will be."""
        return self.worst < Level.WARNING


def ok(check: str, what: str) -> Finding:
    return Finding(check=check, level=Level.OK, what=what)


def note(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.NOTE, what=what, hint=hint, repaired=repaired)


def warning(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.WARNING, what=what, hint=hint, repaired=repaired)


def error(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.ERROR, what=what, hint=hint, repaired=repaired)


class BackupReport(Struct, frozen=True, kw_only=True):
    """A copy of a room that was made, or put back."""

    path: str  # of the copy; of a restore: of the room
    letters: int
    bytes: int
    seconds: float
    kept: str | None = None  # of a restore: where the room that was there before is kept
