"""Which of several who can do it gets a letter: the least busy first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import Invalid
from ..model.agent import Presence, Status, Warmth
from ..model.message import Priority, same_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model.agent import Beat
    from ..model.query import Moment
    from .limits import Limits


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Candidate(Struct, frozen=True, kw_only=True):
    """An agent that could take a letter, and how much it has to do."""

    name: str
    tasks: int = 0  # it works on now
    most_tasks: int = 1  # it wants at most
    letters: int = 0  # in its inbox, not looked at yet
    active_at: datetime | None = None  # its last sign of doing something


def least_busy(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Who has a place free first; then by open tasks, by unread letters, by who has been idle the longest."""

    def burden(candidate: Candidate) -> tuple[bool, int, int, datetime, str]:
        full = candidate.tasks >= candidate.most_tasks
        return full, candidate.tasks, candidate.letters, candidate.active_at or _LONG_AGO, candidate.name

    return sorted(candidates, key=burden)


# How an agent is doing, from its last sign of life.


def presence(beat: Beat | None, moment: Moment, limits: Limits, active: tuple[str, ...] = ()) -> Presence:
    """idle, busy or offline; active, away, expired, gone or dormant. `active`: the tasks it took on, besides those
    it says it is busy with.
    """
    if beat is None:
        return Presence(
            status=Status.OFFLINE,
            warmth=Warmth.GONE,
            current_tasks=active,
            last_heartbeat=None,
            last_active_at=None,
        )
    warmth = _warmth(beat, moment, limits)
    tasks = tuple(dict.fromkeys((*active, *beat.current_tasks)))
    status = Status.OFFLINE
    if warmth is Warmth.ACTIVE:
        status = Status.BUSY if tasks or beat.says == Status.BUSY else Status.IDLE
    return Presence(
        status=status,
        warmth=warmth,
        current_tasks=tasks,
        last_heartbeat=beat.at,
        last_active_at=beat.active_at,
        left=beat.left,
    )


def is_routable(presence: Presence) -> bool:
    return presence.warmth in {Warmth.ACTIVE, Warmth.AWAY}


def _warmth(beat: Beat, moment: Moment, limits: Limits) -> Warmth:
    if beat.dormant:
        return Warmth.DORMANT
    if beat.boot != moment.boot:  # nobody survives a reboot; how long ago it was only the wall clock knows
        silent = max((moment.wall - beat.at).total_seconds(), limits.away_grace)
        return Warmth.EXPIRED if silent < limits.expired_kept else Warmth.GONE
    silent = moment.steady - beat.steady
    if not beat.left:
        silent -= max(limits.offline_after, 3 * beat.poll_interval)
        if silent <= 0:
            return Warmth.ACTIVE
    if silent < limits.away_grace:
        return Warmth.AWAY
    return Warmth.EXPIRED if silent < limits.away_grace + limits.expired_kept else Warmth.GONE


# The ladder of escalation: who stands above whom, how urgent a reason is, when a question climbs.

# Words for why somebody escalates, and how urgent each is unless the asker says otherwise. Any other word will do.
REASONS: dict[str, Priority] = {
    "question": Priority.NORMAL,
    "decision": Priority.NORMAL,
    "permission": Priority.HIGH,
    "resource": Priority.HIGH,
    "conflict": Priority.HIGH,
    "blocked": Priority.HIGH,
    "deadline": Priority.HIGH,
    "failure": Priority.HIGH,
    "stalled": Priority.HIGH,
    "risk": Priority.URGENT,
    "security": Priority.URGENT,
}


def rungs_above(ladder: Sequence[str], asker: str) -> tuple[str, ...]:
    """Who is asked, one after the other. Who is not on the ladder begins at its foot."""
    places = [place for place, name in enumerate(ladder) if same_name(name, asker)]
    above = tuple(ladder[places[-1] + 1 :] if places else ladder)
    if not above:
        raise Invalid(f"nobody stands above {asker!r}", field="ladder", hint=" → ".join(ladder) or "it is empty")
    return above


def urgency(reason: str) -> Priority:
    return REASONS.get(reason, Priority.HIGH)


def after_climb(priority: Priority) -> Priority:
    """What one rung left unanswered is at least high for the next."""
    return max(priority, Priority.HIGH)


def time_to_climb(now: datetime, limits: Limits) -> datetime | None:
    """When a question that came to a rung now climbs on; None if it never does."""
    return None if limits.escalation_after == 0 else now + timedelta(seconds=limits.escalation_after)
