"""Alerts: the records that an agent was notified of mail, and that a letter was shown to a model or a person.

An alert (stored as a "ring") is a hint. It never changes a delivery, which alone says what happened to a letter. A
`way` is the channel of an alert: a host, a command, the desktop or a webhook. One recipient alert (stored as a
"telling") may go out by several channels: the first channel starts it and the others join it, for the letters
that had arrived by then. Times are the machine's uptime where pauses depend on them, so that a change of the
wall clock cannot silence an alert.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from .message import Priority
from .values import Brief

Outcome = Literal["rung", "failed", "dead"]  # sent; failed, to be tried again; failed for good
MOST_KEPT = 20  # newest alerts, and newest sights, that are kept of one letter at one mailbox
MOST_WAYS = 200  # channels of which the last alert is kept, however old: more than a room has webhooks


class Alert(Brief, frozen=True, kw_only=True, omit_defaults=True):
    """An alert about one letter, sent by one channel."""

    at: datetime
    way: str  # the channel: `claude`, `exec`, `desktop`, `webhook:<id>`
    outcome: Outcome = "rung"
    why: str = ""  # the reason of a failure
    telling: int = 0  # the number of the recipient alert that it was part of; 0 in rooms of early versions


class Sight(Brief, frozen=True, kw_only=True):
    """The fact that a letter was shown to a model or a person."""

    at: datetime
    host: str  # the program: `claude`, `codex`, `terminal`
    where: str = ""  # the occasion: `SessionStart`, `inbox`


class Audit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The alerts and sights of one letter at one mailbox, the oldest first."""

    rings: tuple[Alert, ...] = ()
    sights: tuple[Sight, ...] = ()

    def with_ring(self, ring: Alert) -> Audit:
        """Return the audit with one more alert. The newest alerts stay, and the last one of each channel."""
        older, newest = (*self.rings, ring)[:-MOST_KEPT], (*self.rings, ring)[-MOST_KEPT:]
        seen = {one.way for one in newest}
        kept: list[Alert] = []
        for one in reversed(older):
            if one.way not in seen:
                seen.add(one.way)
                kept.append(one)
        return replace(self, rings=(*reversed(kept), *newest)[-MOST_WAYS:])

    def with_sight(self, sight: Sight) -> Audit:
        return replace(self, sights=(*self.sights, sight)[-MOST_KEPT:])

    def last(self, way: str) -> Alert | None:
        """Return the last alert of a channel."""
        return next((ring for ring in reversed(self.rings) if ring.way == way), None)

    def with_last(self, changed: Alert) -> Audit:
        """Return the audit with the last alert of its channel replaced by `changed`, once its outcome is known."""
        last = self.last(changed.way)
        return replace(self, rings=tuple(changed if ring is last else ring for ring in self.rings))


class AlertNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A letter for which another alert may follow: an urgent one, or one whose alert failed."""

    last: float  # uptime of the last alert
    rung: int = 0  # alerts that are not known to have failed
    tries: int = 0  # failures since the last success
    due: float | None = None  # uptime of the next attempt, if the last one failed


class DeadAlert(Struct, frozen=True, kw_only=True):
    """An alert that failed too often."""

    at: datetime
    tries: int
    why: str


class AlertLog(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory of one channel about one mailbox."""

    up_to: int  # letters that arrived up to this number are not new
    boot: str = ""  # of the machine; uptimes of an earlier boot mean nothing
    recent: tuple[float, ...] = ()  # uptimes of the alerts in the last hour
    telling: int = 0  # the number of the last recipient alert in which the channel took part; it takes part once
    notes: dict[str, AlertNote] = {}
    # Letters whose alert must be confirmed, and the uptime at which it counts as failed.
    open: dict[str, float] = {}
    dead: dict[str, DeadAlert] = {}  # by letter, the newest last


class AlertLetter(Brief, frozen=True, kw_only=True):
    """The parts of a letter that an alert may show. Sender and subject are the writer's own words."""

    id: str
    sender: str
    subject: str
    thread: str
    priority: Priority
    proven: bool = False  # the sender showed a token
    signed: bool = False  # the sender is a person, who signed it
    unproven: bool = False  # it is in a person's name, without proof


class Rung(Brief, frozen=True, kw_only=True):
    """An alert to give now. No later call returns the same one."""

    mailbox: str
    way: str
    letters: tuple[AlertLetter, ...]  # the most urgent first, then the oldest
    unread: int  # all unread letters of the mailbox

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(letter.id for letter in self.letters)


class Later(Brief, frozen=True):
    """The answer that there is no alert to give now."""

    seconds: float | None = None  # ask again after so many seconds; None: when new mail arrives

    def __bool__(self) -> Literal[False]:
        """Return False, so that `if rung := box.next_alert(way)` works."""
        return False


class DeadAlertRow(Brief, frozen=True, kw_only=True):
    """A dead alert, as `dead_alerts` lists it."""

    mailbox: str
    way: str
    letter: AlertLetter
    at: datetime
    tries: int
    why: str


class RecipientAlert(Struct, frozen=True, kw_only=True):
    """One alert of a recipient, by one or more channels."""

    number: int  # unique for this recipient
    at: float  # uptime of its start
    up_to: int  # it is about letters that arrived up to this number
    rung: int  # letters alerted, counted once per channel, without those whose alert failed


class RecipientAlerts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The memory that all channels of one recipient share."""

    boot: str = ""  # of the machine; uptimes of an earlier boot mean nothing
    number: int = 0  # of the last recipient alert that started, even if it failed
    tellings: tuple[RecipientAlert, ...] = ()  # of the last hour, without those that failed on every channel

    @property
    def last(self) -> RecipientAlert | None:
        return self.tellings[-1] if self.tellings else None

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(one.at for one in self.tellings)
