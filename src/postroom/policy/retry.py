"""What follows a failed try: another one later, or the dead letters."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ..model import delivery as moves

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.delivery import Attempt, Delivery
    from .limits import Limits


def backoff(attempts: int, limits: Limits) -> timedelta:
    """How long to wait after this many failed tries: doubling, from the first to the most."""
    seconds = limits.backoff_first * 2 ** min(attempts - 1, 30)
    return timedelta(seconds=min(seconds, limits.backoff_most))


def latest_retry(now: datetime, limits: Limits) -> datetime:
    """Return the latest time that a retry may have. A wrong clock set any later one: that retry is due now."""
    return now + timedelta(seconds=limits.backoff_most)


def after_failure(delivery: Delivery, attempt: Attempt, limits: Limits) -> tuple[Delivery, str]:
    """The delivery after a holder gave up on it, and the action: `retry`, or `bury` when tries are spent."""
    if delivery.attempts + 1 >= limits.max_attempts:
        return moves.bury(delivery, attempt), "bury"
    due_at = attempt.at + backoff(delivery.attempts + 1, limits)
    return moves.retry(delivery, attempt, due_at), "retry"


def after_lapse(delivery: Delivery, attempt: Attempt, limits: Limits) -> tuple[Delivery, str]:
    """The delivery after its lease ran out: `lapse` back into the inbox at once, or `bury`."""
    if delivery.attempts + 1 >= limits.max_attempts:
        return moves.bury(delivery, attempt), "bury"
    return moves.lapse(delivery, attempt), "lapse"
