"""Reports: statistics of a room and its traffic, the trace of one letter, and findings about a room's health."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from .alert import Alert, Sight
from .delivery import Attempt, State
from .message import Message, Priority, RecipientKind
from .query import Tally
from .record import Cursor
from .task import TaskState
from .values import Brief

if TYPE_CHECKING:
    from .alert import Audit
    from .delivery import Delivery


class Rate(Brief, frozen=True, kw_only=True):
    """The success of one alert channel or host, over the letters of its latest alerts."""

    name: str  # `claude`, `exec`, `webhook:1`
    letters: int
    rung: int  # letters with an alert that is not known to have failed
    shown: int  # letters that were shown, by any host
    acknowledged: int
    median_to_shown: float | None  # seconds from the first alert until the letter was shown
    median_to_acknowledged: float | None  # seconds from the first time it was shown


class Stats(Brief, frozen=True, kw_only=True):
    """The statistics of a room."""

    letters: int
    deliveries: int
    states: dict[State, int]  # of the deliveries; unread ones are in the inbox, read or not
    unread: dict[Priority, int]  # not read yet
    oldest_unread_at: datetime | None
    agents: int  # registered
    quarantined: int
    mailboxes: tuple[Tally, ...]  # those with open or dead mail, by name
    rates: tuple[Rate, ...] = ()  # by name


class AgentFlow(Brief, frozen=True, kw_only=True):
    """The traffic of one mailbox since the previous sample, as a live view shows it."""

    mailbox: str
    unread: int
    backlog: int  # unread, read but not settled, or claimed
    claimed: int
    dead: int
    settled: int  # since the previous sample
    oldest_unread: float | None  # seconds since its delivery
    oldest_seen: float | None  # seconds since its delivery
    oldest_claimed: float | None  # seconds since its delivery
    median_to_done: float | None  # seconds from delivery to done, of the letters settled since the previous sample


class Flow(Brief, frozen=True, kw_only=True):
    """The traffic of a room since the previous sample.

    In the first sample `seconds` is 0, and there are no rates.
    """

    cursor: Cursor
    at: datetime
    uptime: float  # of the machine, at this sample
    boot: str
    seconds: float  # since the previous sample
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


# The trace of one letter


class Stop(Brief, frozen=True, kw_only=True, omit_defaults=True):
    """A letter at one mailbox, without the lease token, which would allow anyone to settle it."""

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
    holder: str | None = None  # the agent that holds it, or that acknowledged it
    reason: str | None = None
    history: tuple[Attempt, ...] = ()
    rings: tuple[Alert, ...] = ()  # alerts to its recipient
    sights: tuple[Sight, ...] = ()  # the times it was shown
    task: TaskState | None = None  # of the task that it opened here
    done_at: datetime | None = None  # the time at which that task was finished


class Trace(Brief, frozen=True, kw_only=True):
    """The history of one letter: where it is, what happened to it, and the letters that followed from it."""

    message: Message
    number: int  # of its acceptance
    stops: tuple[Stop, ...]
    replies: tuple[Message, ...]
    relays: tuple[Message, ...]  # copies that were relayed
    bounces: tuple[Message, ...]  # the postmaster's notices about it


def stop_of(delivery: Delivery, *, with_holder: bool) -> Stop:
    """Return the stop of a delivery. Only the recipient and the operator may see the holders and their reasons."""
    same = {name: getattr(delivery, name) for name in _SAME}
    if not with_holder:
        return Stop(**same)
    holder = None if delivery.lease is None else delivery.lease.holder
    return Stop(**same, holder=holder, history=delivery.history)


def with_audit(stop: Stop, audit: Audit, *, whole: bool) -> Stop:
    """Return the stop with alerts and sights. The sender sees them too, but no occasions and failure reasons."""
    return replace(
        stop,
        rings=tuple(replace(ring, why=ring.why if whole else "", telling=0) for ring in audit.rings),
        sights=tuple(replace(sight, where=sight.where if whole else "") for sight in audit.sights),
    )


_ADDED = {"holder", "history", "rings", "sights", "task", "done_at"}
_SAME = tuple(name for name in Stop.__struct_fields__ if name not in _ADDED)


# Health

Progress: TypeAlias = Callable[[int, int], object]  # (done, total), called now and then; a total of 0 is unknown


class Level(IntEnum):
    """The severity of a finding."""

    OK = 0
    NOTE = 1  # worth knowing; nothing is wrong
    WARNING = 2  # something will go wrong, or is slower or less safe than it should be
    ERROR = 3  # something is wrong

    def __str__(self) -> str:
        return self.name.lower()


class Finding(Brief, frozen=True, kw_only=True, omit_defaults=True):
    """One result of a health check."""

    check: str  # the check's name, such as "integrity"
    level: Level
    what: str
    hint: str = ""  # what to do about it
    repaired: bool = False  # `what` says what was wrong; it is repaired now


class Diagnosis(Brief, frozen=True, kw_only=True):
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Level:
        """The highest level; repaired findings do not count."""
        return max((found.level for found in self.findings if not found.repaired), default=Level.OK)

    @property
    def is_healthy(self) -> bool:
        """Whether no warning or error is left."""
        return self.worst < Level.WARNING


def verdict(
    check: str, problem: str, fine: str, hint: str = "", judge: Callable[..., Finding] | None = None
) -> Finding:
    """Return the finding about a problem (by default an error), or that all is well where there is none."""
    return (judge or error)(check, problem, hint) if problem else ok(check, fine)


def ok(check: str, what: str) -> Finding:
    return Finding(check=check, level=Level.OK, what=what)


def note(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.NOTE, what=what, hint=hint, repaired=repaired)


def warning(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.WARNING, what=what, hint=hint, repaired=repaired)


def error(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.ERROR, what=what, hint=hint, repaired=repaired)


class BackupReport(Brief, frozen=True, kw_only=True):
    """The result of a backup, or of a restore."""

    path: str  # of the copy; of a restore: of the room
    letters: int
    bytes: int
    seconds: float
    kept: str | None = None  # of a restore: the path of the room that it replaced
