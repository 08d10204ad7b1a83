"""Routing: the presence of an agent, the least busy of several agents, and the escalation ladder."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import Invalid
from ..model.agent import Presence, Status, Warmth
from ..model.message import Priority, same_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model.agent import Heartbeat
    from ..model.query import Moment
    from .limits import Limits


_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Candidate(Struct, frozen=True, kw_only=True):
    """An agent that could take a letter, and its load."""

    name: str
    tasks: int = 0  # active tasks
    most_tasks: int = 1  # the most that it takes
    letters: int = 0  # unread in its inbox
    active_at: datetime | None = None  # its last activity


def least_busy(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return the agents ordered: first those with capacity, then by tasks, by unread letters, by idle time."""

    def burden(candidate: Candidate) -> tuple[bool, int, int, datetime, str]:
        full = candidate.tasks >= candidate.most_tasks
        # The name comes last, so that equal agents are chosen in the same order everywhere.
        return full, candidate.tasks, candidate.letters, candidate.active_at or _LONG_AGO, candidate.name

    return sorted(candidates, key=burden)


# Presence


def presence(beat: Heartbeat | None, moment: Moment, limits: Limits, active: tuple[str, ...] = ()) -> Presence:
    """Return the presence of an agent from its last heartbeat.

    `active` holds the tasks that it took on, besides those that its heartbeat names.
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


def _warmth(beat: Heartbeat, moment: Moment, limits: Limits) -> Warmth:
    if beat.dormant:
        return Warmth.DORMANT
    if beat.boot != moment.boot:  # no agent survives a reboot; only the wall clock knows how long ago it was
        silent = max((moment.wall - beat.at).total_seconds(), limits.away_grace)
        return Warmth.EXPIRED if silent < limits.expired_kept else Warmth.GONE
    silent = moment.steady - beat.steady
    if not beat.left:
        # An agent may miss two heartbeats before it counts as silent.
        silent -= max(limits.offline_after, 3 * beat.poll_interval)
        if silent <= 0:
            return Warmth.ACTIVE
    if silent < limits.away_grace:
        return Warmth.AWAY
    return Warmth.EXPIRED if silent < limits.away_grace + limits.expired_kept else Warmth.GONE


# Escalation

# The usual reasons, and the priority of each unless the asker sets one. Any other word is a reason too.
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
    """Return the agents to ask, one after the other. An asker that is not on the ladder starts at its foot."""
    places = [place for place, name in enumerate(ladder) if same_name(name, asker)]
    above = tuple(ladder[places[-1] + 1 :] if places else ladder)
    if not above:
        raise Invalid(f"no agent stands above {asker!r}", field="ladder", hint=" → ".join(ladder) or "it is empty")
    return above


def urgency(reason: str) -> Priority:
    return REASONS.get(reason, Priority.HIGH)


def after_climb(priority: Priority) -> Priority:
    """Return the priority for the next rung: at least high."""
    return max(priority, Priority.HIGH)


def time_to_climb(now: datetime, limits: Limits) -> datetime | None:
    """Return the time at which an unanswered question goes to the next rung; None if it never does."""
    return None if limits.escalation_after == 0 else now + timedelta(seconds=limits.escalation_after)
