"""Alerts: when a recipient is notified of mail, by which channel, and for which letters.

A recipient is alerted once about several letters together, with a pause between two alerts and so many times in an
hour at most; about urgent mail again until it is acknowledged. The first channel starts a recipient alert, and
each other channel may join it once, for the letters that had arrived by then; it counts once. An alert that
failed on every channel does not count.

A decision depends on the channel's own log and on the alerts that all channels of the recipient share. The waiting
letters, the logs and the time are parameters. Pauses go by the machine's uptime, as leases do, so that a change
of the wall clock can neither silence an alert nor repeat it for ever; only gathering looks at the time of
arrival.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ..model.alert import AlertNote, DeadAlert, RecipientAlert, RecipientAlerts
from ..model.message import Priority
from .retry import backoff

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model.alert import AlertLog
    from ..model.query import Moment
    from .limits import Limits


HOUR = 3600.0
FEW = 10  # recipient alerts that are remembered where there is no hourly limit: for the pause after them
T = TypeVar("T")
GATHER_MOST = 2.0  # seconds that the first of several letters waits for the others
MOST_NOTES = 1000  # newest letters, and newest dead alerts, that a log holds


# The alerts of a recipient. `times` are the uptimes of earlier alerts; a result of 0.0 seconds means now.


def pause(times: Sequence[float], now: Moment, limits: Limits) -> float:
    """Return the seconds until the pause after the last alert is over."""
    return max(0.0, times[-1] + limits.ring_cooldown - now.steady) if times else 0.0


def cap(times: Sequence[float], now: Moment, limits: Limits) -> float:
    """Return the seconds until the hourly limit allows another alert."""
    lately = last_hour(times, now)
    if not limits.ring_hourly or len(lately) < limits.ring_hourly:
        return 0.0
    return lately[-limits.ring_hourly] + HOUR - now.steady


def last_hour(times: Sequence[float], now: Moment) -> tuple[float, ...]:
    return tuple(at for at in times if at + HOUR > now.steady)


def recipient_notified(
    recipient: RecipientAlerts, letters: int, up_to: int, now: Moment, limits: Limits, *, joins: bool
) -> RecipientAlerts:
    """Return the alerts after a channel alerts about so many letters.

    It joins the last alert, or starts one about the letters that arrived up to the number `up_to`.
    """
    if joins:
        *before, last = recipient.tellings
        return replace(recipient, tellings=(*before, replace(last, rung=last.rung + letters)))
    recipient = recipient_of_this_boot(recipient, now)
    fresh = RecipientAlert(number=recipient.number + 1, at=now.steady, up_to=up_to, rung=letters)
    lately = (*(one for one in recipient.tellings if one.at + HOUR > now.steady), fresh)
    return replace(recipient, number=fresh.number, tellings=lately[-(limits.ring_hourly or FEW) :])


def recipient_failed(recipient: RecipientAlerts, numbers: Sequence[int]) -> RecipientAlerts:
    """Return the alerts after failures: one letter for each number of a recipient alert in `numbers`."""
    left = [replace(one, rung=one.rung - numbers.count(one.number)) for one in recipient.tellings]
    return replace(recipient, tellings=tuple(one for one in left if one.rung > 0))


def recipient_of_this_boot(recipient: RecipientAlerts, now: Moment) -> RecipientAlerts:
    """Return the alerts without those of an earlier boot, whose uptimes mean nothing now."""
    return recipient if recipient.boot == now.boot else RecipientAlerts(boot=now.boot, number=recipient.number)


# The decision of one channel


class WaitingLetter(Struct, frozen=True, kw_only=True):
    """A letter that is offered to its recipient and not acknowledged."""

    id: str
    number: int = 0  # of its arrival
    priority: Priority = Priority.NORMAL
    came: datetime | None = None
    is_unread: bool = True
    is_new: bool = False  # it arrived after the log's number, and had no alert by this channel

    @property
    def is_urgent(self) -> bool:
        return self.priority is Priority.URGENT


class Verdict(Struct, frozen=True):
    """The decision: alert about these letters now, or decide again later."""

    ring: tuple[str, ...] = ()
    joins: bool = False  # it joins the last recipient alert; else it starts one
    look_again: float | None = None  # seconds; None: when new mail arrives


def decide(
    waiting: Sequence[WaitingLetter], log: AlertLog, recipient: RecipientAlerts, now: Moment, limits: Limits
) -> Verdict:
    """Decide whether the recipient of these letters is alerted now by this channel, and about which letters."""
    log, recipient = of_this_boot(log, now), recipient_of_this_boot(recipient, now)
    gathering = _gathering(waiting, now.wall, limits)
    own = {w.id: _own_time(w, log, now, gathering, limits) for w in waiting}
    joining = {w.id for w in waiting if _joins(w, log, recipient)}
    # Both hold: the channel's own pause, and that of the recipient, which all channels share (G11).
    here, there = _hold(log.recent, now, limits), _hold(recipient.times, now, limits)
    times = {
        w.id: max(seconds, here.seconds(w), 0.0 if w.id in joining else there.seconds(w))
        for w in waiting
        if (seconds := own[w.id]) is not None
    }
    # Nothing is due. `look_again` is the earliest moment at which that may change.
    if not times or min(times.values()) > 0:
        return Verdict(look_again=min(times.values(), default=None))
    others = [w for w in waiting if w.id not in joining]
    begins = any(times.get(w.id) == 0 for w in others) or (there.is_over and any(map(_is_fresh, others)))
    # An alert is about everything that is new, even if a new letter alone would still wait for others.
    ring = (w.id for w in waiting if own[w.id] == 0 or _is_fresh(w))
    return Verdict(ring=tuple(id for id in ring if begins or id in joining), joins=not begins)


def record_alert(
    log: AlertLog,
    rung: Sequence[WaitingLetter],
    up_to: int,
    number: int,
    now: Moment,
    limits: Limits,
    *,
    within: float | None = None,
) -> AlertLog:
    """Return the log after an alert about these letters, as part of the recipient alert with this number.

    Letters that arrived up to `up_to` are not new any more. The alert must be confirmed `within` so many seconds;
    None: it needs no confirmation.
    """
    log = done(of_this_boot(log, now), [w.id for w in rung])
    # An urgent letter is noted to be alerted again, and one that failed before until it succeeds.
    noted = [w.id for w in rung if w.is_urgent or w.id in log.notes]
    notes = log.notes | {id: _noted(log.notes.get(id), now) for id in noted}
    promised = {} if within is None else {w.id: now.steady + within for w in rung}
    recent = (*last_hour(log.recent, now), now.steady)
    return replace(
        log,
        up_to=max(up_to, log.up_to),
        recent=recent[-max(limits.ring_hourly, 1) :],
        telling=number,
        notes=_newest(notes),
        open=_newest(log.open | promised),
    )


def done(log: AlertLog, ids: Iterable[str]) -> AlertLog:
    """Return the log after the alerts about these letters were confirmed."""
    over = set(ids)
    return replace(log, open={id: until for id, until in log.open.items() if id not in over})


def unconfirmed(log: AlertLog, now: Moment) -> tuple[list[str], float | None]:
    """Return the letters whose alerts were not confirmed in time, and the seconds until there may be more."""
    left = {id: until - now.steady for id, until in of_this_boot(log, now).open.items()}
    return [id for id, seconds in left.items() if seconds <= 0], min(left.values(), default=None)


def failed(
    log: AlertLog,
    id: str,
    why: str,
    now: Moment,
    limits: Limits,
    *,
    delay: float = 0.0,
    chance: float = 1.0,
    was_tried: bool = True,
) -> AlertLog:
    """Return the log after the last alert about a letter failed: to be tried again later, or dead.

    `chance`, from 0 to 1, shortens the pause by up to half, so that alerts that failed together are not tried
    again together. It is never shorter than `delay` seconds. An alert that was not even tried does not count as
    a try.
    """
    log = done(of_this_boot(log, now), [id])
    note = log.notes.get(id) or AlertNote(last=now.steady, rung=1)
    tries = note.tries + was_tried
    if was_tried and tries >= limits.ring_tries:
        notes = {name: held for name, held in log.notes.items() if name != id}
        dead = log.dead | {id: DeadAlert(at=now.wall, tries=tries, why=why)}
        return replace(log, notes=notes, dead=_newest(dead))
    due = now.steady + max(backoff(max(tries, 1), limits).total_seconds() * (0.5 + chance / 2), delay)
    # A failed alert does not count towards `ring_most`: nobody noticed it.
    again = replace(note, rung=note.rung - 1, tries=tries, due=due)
    return replace(log, notes=_newest(log.notes | {id: again}))


def retry_dead(log: AlertLog, ids: Iterable[str], now: Moment) -> AlertLog:
    """Return the log after a request to try dead alerts again: at once, with all their tries left."""
    log = of_this_boot(log, now)
    delay = [id for id in ids if id in log.dead]
    notes = log.notes | {id: AlertNote(last=now.steady, due=now.steady) for id in delay}
    return replace(log, notes=_newest(notes), dead={id: d for id, d in log.dead.items() if id not in delay})


def forget(log: AlertLog, ids: Iterable[str]) -> AlertLog:
    """Return the log without letters that are settled or deleted."""
    gone = set(ids)
    return replace(
        done(log, gone),
        notes={id: note for id, note in log.notes.items() if id not in gone},
        dead={id: dead for id, dead in log.dead.items() if id not in gone},
    )


def of_this_boot(log: AlertLog, now: Moment) -> AlertLog:
    """Return the log with uptimes of an earlier boot replaced by 0, as if the machine had just started."""
    if log.boot == now.boot:
        return log
    notes = {id: replace(n, last=0.0, due=None if n.due is None else 0.0) for id, n in log.notes.items()}
    return replace(log, boot=now.boot, recent=(), notes=notes, open=dict.fromkeys(log.open, 0.0))


# Seconds until an alert about a letter is allowed: 0.0 is now, None is never


def _own_time(letter: WaitingLetter, log: AlertLog, now: Moment, gathering: float, limits: Limits) -> float | None:
    """Return the seconds by the letter itself, whatever alerts there were lately."""
    if _is_fresh(letter):
        return 0.0 if letter.is_urgent else gathering
    note = log.notes.get(letter.id)
    if note is None or not (letter.is_unread or letter.is_urgent):
        return None
    if note.due is not None:
        return max(0.0, note.due - now.steady)
    if letter.is_urgent and limits.ring_again and note.rung < limits.ring_most:
        return max(0.0, note.last + limits.ring_again - now.steady)
    return None


def _is_fresh(letter: WaitingLetter) -> bool:
    return letter.is_new and letter.is_unread and letter.priority > Priority.LOW


def _gathering(waiting: Sequence[WaitingLetter], now: datetime, limits: Limits) -> float:
    """Return the seconds to wait for letters that may arrive with the new ones; 0 if the clock was changed."""
    came = [w.came for w in waiting if w.came is not None and _is_fresh(w) and not w.is_urgent]
    if not came:
        return 0.0
    left = min(
        limits.ring_gather - (now - max(came)).total_seconds(), GATHER_MOST - (now - min(came)).total_seconds()
    )
    return left if 0 < left <= limits.ring_gather else 0.0


class _Hold(Struct, frozen=True):
    """The seconds until the next alert is allowed: by the pause, and by the hourly limit."""

    pause: float  # not for urgent letters
    cap: float

    def seconds(self, letter: WaitingLetter) -> float:
        return self.cap if letter.is_urgent else max(self.cap, self.pause)

    @property
    def is_over(self) -> bool:
        return self.cap == self.pause == 0


def _hold(times: Sequence[float], now: Moment, limits: Limits) -> _Hold:
    return _Hold(pause(times, now, limits), cap(times, now, limits))


def _joins(letter: WaitingLetter, log: AlertLog, recipient: RecipientAlerts) -> bool:
    """Return whether this channel may alert about a letter as part of the last recipient alert.

    The letter had arrived by then, and the channel took no part yet, or its alert failed.
    """
    if recipient.last is None or letter.number > recipient.last.up_to:
        return False
    note = log.notes.get(letter.id)
    return log.telling != recipient.last.number or (note is not None and note.due is not None)


# Notes


def _noted(held: AlertNote | None, now: Moment) -> AlertNote:
    """Return the note after one more alert. Earlier failures count until one succeeds."""
    if held is None:
        return AlertNote(last=now.steady, rung=1)
    tries = held.tries if held.due is not None else 0
    return replace(held, last=now.steady, rung=held.rung + 1, tries=tries, due=None)


def _newest(held: dict[str, T]) -> dict[str, T]:
    # Dictionaries keep the order in which entries came, so the last are the newest.
    return dict(list(held.items())[-MOST_NOTES:])
