"""What follows a failed try: another one later, or the dead letters."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from ..model import delivery as model_delivery
from ..model.delivery import Attempt, State
from ..model.names import AT

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.delivery import Delivery, Lease
    from ..model.query import Moment
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
        return model_delivery.bury(delivery, attempt), "bury"
    due_at = attempt.at + backoff(delivery.attempts + 1, limits)
    return model_delivery.retry(delivery, attempt, due_at), "retry"


def after_lapse(delivery: Delivery, attempt: Attempt, limits: Limits) -> tuple[Delivery, str]:
    """The delivery after its lease ran out: `lapse` back into the inbox at once, or `bury`."""
    if delivery.attempts + 1 >= limits.max_attempts:
        return model_delivery.bury(delivery, attempt), "bury"
    return model_delivery.lapse(delivery, attempt), "lapse"


# What the passing of time does to a delivery: leases run out, queued mail comes due, mail expires.


def has_lapsed(lease: Lease, moment: Moment) -> bool:
    """Only uptime decides, never the wall clock; no lease outlives a reboot."""
    return lease.boot != moment.boot or lease.until <= moment.steady


def catch_up(delivery: Delivery, moment: Moment, limits: Limits) -> tuple[Delivery, str] | None:
    """The delivery after what time did to it, and the action; None when nothing is overdue."""
    expired = delivery.expires_at is not None and delivery.expires_at <= moment.wall
    if delivery.state in {State.QUEUED, State.UNREAD} and expired:
        return model_delivery.expire(delivery, moment.wall), "expire"
    if delivery.state is State.QUEUED and delivery.due_at is not None and delivery.due_at <= moment.wall:
        if AT in delivery.mailbox:
            return model_delivery.come_due(delivery, moment.wall), "due"
        return model_delivery.deliver(delivery, moment.wall), "deliver"
    if delivery.state is State.CLAIMED and delivery.lease and has_lapsed(delivery.lease, moment):
        attempt = Attempt(at=moment.wall, holder=delivery.lease.holder, reason="the lease ran out")
        return after_lapse(delivery, attempt, limits)
    return None


# Mail that another system did not take yet: when it is tried again, and when that ends.


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
