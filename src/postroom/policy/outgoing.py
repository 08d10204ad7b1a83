"""Mail that another system did not take yet: when it is tried again, and when that ends."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.delivery import Delivery
    from .limits import Limits


def pause(attempts: int, limits: Limits, chance: float) -> timedelta:
    """How long to wait after this many failed tries: all alike, or doubling up to the cap. Of a doubling pause,
    half is left to chance (from 0 to 1), so that those who failed together do not come back together.
    """
    seconds = min(limits.outbox_retry_base, limits.outbox_retry_cap)
    if limits.outbox_retry == "exponential":
        seconds = min(limits.outbox_retry_base * 2 ** min(max(attempts - 1, 0), 30), limits.outbox_retry_cap)
        seconds *= 0.5 + chance / 2
    return timedelta(seconds=seconds)


def next_try(delivery: Delivery, now: datetime, limits: Limits, chance: float) -> datetime:
    """When a delivery that was refused for now, or not answered, is due again."""
    return now + pause(delivery.attempts + 1, limits, chance)


def latest_try(now: datetime, limits: Limits) -> datetime:
    """Return the latest time that a retry may have. A wrong clock set any later one: that retry is due now."""
    return now + timedelta(seconds=limits.outbox_retry_cap)


def is_too_old(waiting_since: datetime, now: datetime, limits: Limits) -> bool:
    """Did it wait for as long as anything does? Mail for later counts from the time it was due."""
    return (now - waiting_since).total_seconds() >= limits.outbox_max_age


def is_spent(attempts: int, limits: Limits) -> bool:
    """Was it tried as often as anything is?"""
    return 0 < limits.outbox_max_attempts <= attempts
