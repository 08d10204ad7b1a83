"""The ladder of escalation: who stands above whom, how urgent a reason is, when a question climbs."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ..errors import Invalid
from ..model.message import Priority, same_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from .limits import Limits

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
