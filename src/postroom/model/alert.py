"""Rings and sights: that somebody was told of mail, that a letter was put before somebody. Facts, never states.

A ring is a hint. Only a delivery says what became of a letter; nothing here moves one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from .message import Priority

Outcome = Literal["rung", "failed", "dead"]  # it did not get through, and: nobody tries any more
MOST_KEPT = 20  # rings, and sights, of one letter at one mailbox: the newest
MOST_WAYS = 200  # of which the last ring is kept, however long ago it was: more than a room has webhooks


class Ring(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody's bell was rung for a letter."""

    at: datetime
    way: str  # by what: `claude`, `exec`, `desktop`, `webhook:<id>`
    outcome: Outcome = "rung"
    why: str = ""  # it did not get through
    telling: int = 0  # the number of the telling that it was part of; 0: from when none were counted


class Sight(Struct, frozen=True, kw_only=True):
    """A letter was put before a model or a person."""

    at: datetime
    host: str  # in what: `claude`, `codex`, `terminal`
    where: str = ""  # at what occasion: `SessionStart`, `inbox`


class Audit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was told of one letter at one mailbox, the oldest first."""

    rings: tuple[Ring, ...] = ()
    sights: tuple[Sight, ...] = ()

    def with_ring(self, ring: Ring) -> Audit:
        """The newest stay, and the last of each way: by it is known that this way rang, and what came of it."""
        older, newest = (*self.rings, ring)[:-MOST_KEPT], (*self.rings, ring)[-MOST_KEPT:]
        again = {one.way for one in newest}
        kept: list[Ring] = []
        for one in reversed(older):
            if one.way not in again:
                again.add(one.way)
                kept.append(one)
        return replace(self, rings=(*reversed(kept), *newest)[-MOST_WAYS:])

    def with_sight(self, sight: Sight) -> Audit:
        return replace(self, sights=(*self.sights, sight)[-MOST_KEPT:])

    def last(self, way: str) -> Ring | None:
        """The last ring of this way."""
        return next((ring for ring in reversed(self.rings) if ring.way == way), None)

    def with_last(self, changed: Ring) -> Audit:
        """As it turned out: in the place of the last ring of its way."""
        last = self.last(changed.way)
        return replace(self, rings=tuple(changed if ring is last else ring for ring in self.rings))


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A letter that may be rung for again: an urgent one, or one whose ring failed. Times are the machine's
    uptime, so that no wall clock can silence a bell.
    """

    last: float  # when it was rung
    rung: int = 0  # how often a ring was not known to fail
    tries: int = 0  # how often it failed since one got through
    due: float | None = None  # the last one failed: when to try again


class DeadRing(Struct, frozen=True, kw_only=True):
    """A ring that failed too often."""

    at: datetime
    tries: int
    why: str


class Book(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a ringer must remember of one mailbox and one way."""

    up_to: int  # letters that came up to this number are not new
    boot: str = ""  # of the machine; times of an earlier one mean nothing
    recent: tuple[float, ...] = ()  # when it rang in the last hour, by uptime
    telling: int = 0  # the number of the one that it rang for last; each bell rings once for a telling
    notes: dict[str, Note] = {}
    open: dict[
        str, float
    ] = {}  # letters of rings that are to be said to be done: when, by uptime, they failed if not
    dead: dict[str, DeadRing] = {}  # by letter, the newest last


class RungLetter(Struct, frozen=True, kw_only=True):
    """What a ring may say of a letter. Sender and subject are its writer's words."""

    id: str
    sender: str
    subject: str
    thread: str
    priority: Priority
    proven: bool = False  # is it known that the sender wrote it, or only said?


class Rung(Struct, frozen=True, kw_only=True):
    """Ring now, for these; whoever asks next is not told the same."""

    mailbox: str
    way: str
    letters: tuple[RungLetter, ...]  # the most urgent first, then the oldest
    unread: int  # all that is unread there

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(letter.id for letter in self.letters)


class Later(Struct, frozen=True):
    """There is nothing to ring for now."""

    seconds: float | None = None  # look again after so long; None: when new mail comes

    def __bool__(self) -> Literal[False]:
        """So that `if rung := box.try_ring(way)` means what it says."""
        return False


class LostRing(Struct, frozen=True, kw_only=True):
    """A dead ring, as it is listed."""

    mailbox: str
    way: str
    letter: RungLetter
    at: datetime
    tries: int
    why: str


# Tellings: the moments in which a recipient was told of mail, by whatever bells it has. Facts, like rings.


class RecipientAlert(Struct, frozen=True, kw_only=True):
    """The first bell began it; others joined, for what had come by then."""

    number: int  # no other telling of this recipient has it
    at: float  # when it began, by uptime
    up_to: int  # it is for letters that came up to this number
    rung: int  # letters rung for, counted at each bell, less those of which that failed


class RecipientAlerts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the bells of one recipient must remember together."""

    boot: str = ""  # of the machine; times of an earlier one mean nothing
    number: int = 0  # of the last telling that began, whatever came of it
    tellings: tuple[RecipientAlert, ...] = ()  # of the last hour; not those of which no bell got through

    @property
    def last(self) -> RecipientAlert | None:
        return self.tellings[-1] if self.tellings else None

    @property
    def times(self) -> tuple[float, ...]:
        return tuple(one.at for one in self.tellings)
