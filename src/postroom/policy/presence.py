"""How an agent is doing, from its last sign of life."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.card import Presence, Status, Warmth

if TYPE_CHECKING:
    from ..model.card import Beat
    from ..model.query import Moment
    from .limits import Limits


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
