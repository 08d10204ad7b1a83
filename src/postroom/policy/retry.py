"""Retries: the state of a delivery after a failed attempt, and after time has passed.

Leases run out, queued mail comes due, and mail expires. Mail that another system did not take yet has its own
pauses. What a store reports as overdue must agree with `catch_up`.
"""

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
    """Return the pause after this many failed attempts: doubling, from `backoff_first` to `backoff_most`."""
    # At most 2**30: the power of a large count would overflow a float.
    seconds = limits.backoff_first * 2 ** min(attempts - 1, 30)
    return timedelta(seconds=min(seconds, limits.backoff_most))


def latest_retry(now: datetime, limits: Limits) -> datetime:
    """Return the latest time that a retry may have. A wrong clock set any later one: that retry is due now."""
    return now + timedelta(seconds=limits.backoff_most)


def after_failure(delivery: Delivery, attempt: Attempt, limits: Limits) -> tuple[Delivery, str]:
    """Return the delivery after a failed attempt, and the action: `retry`, or `bury` after the last attempt."""
    # This failure is the last one allowed: a dead letter with its history, never an endless retry (G6).
    if delivery.attempts + 1 >= limits.max_attempts:
        return model_delivery.bury(delivery, attempt), "bury"
    due_at = attempt.at + backoff(delivery.attempts + 1, limits)
    return model_delivery.retry(delivery, attempt, due_at), "retry"


def after_lapse(delivery: Delivery, attempt: Attempt, limits: Limits) -> tuple[Delivery, str]:
    """Return the delivery after its lease ran out, and the action: `lapse` back into the inbox, or `bury`."""
    if delivery.attempts + 1 >= limits.max_attempts:
        return model_delivery.bury(delivery, attempt), "bury"
    # Without a pause: the holder died, and nothing says that the letter is at fault.
    return model_delivery.lapse(delivery, attempt), "lapse"


# The passing of time


def has_lapsed(lease: Lease, moment: Moment) -> bool:
    """Return whether a lease has run out, by uptime and never by the wall clock. No lease outlives a reboot."""
    return lease.boot != moment.boot or lease.until <= moment.steady


def catch_up(delivery: Delivery, moment: Moment, limits: Limits) -> tuple[Delivery, str] | None:
    """Return the delivery after an overdue action, and the action; None if nothing is overdue."""
    expired = delivery.expires_at is not None and delivery.expires_at <= moment.wall
    # Not while it is claimed: its holder may finish what it began.
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


# Mail for other systems


def pause(attempts: int, limits: Limits, chance: float) -> timedelta:
    """Return the pause after this many failed attempts: constant, or doubling up to the cap.

    `chance`, from 0 to 1, shortens a doubling pause by up to half, so that deliveries that failed together are not
    tried again together.
    """
    seconds = min(limits.outbox_retry_base, limits.outbox_retry_cap)
    if limits.outbox_retry == "exponential":
        seconds = min(limits.outbox_retry_base * 2 ** min(max(attempts - 1, 0), 30), limits.outbox_retry_cap)
        seconds *= 0.5 + chance / 2
    return timedelta(seconds=seconds)


def next_try(delivery: Delivery, now: datetime, limits: Limits, chance: float) -> datetime:
    """Return the time of the next attempt for a delivery that was refused for now, or not answered."""
    return now + pause(delivery.attempts + 1, limits, chance)


def latest_try(now: datetime, limits: Limits) -> datetime:
    """Return the latest time that a retry may have. A wrong clock set any later one: that retry is due now."""
    return now + timedelta(seconds=limits.outbox_retry_cap)


def is_too_old(waiting_since: datetime, now: datetime, limits: Limits) -> bool:
    """Return whether mail has waited `outbox_max_age`. Deferred mail counts from the time it was due."""
    return (now - waiting_since).total_seconds() >= limits.outbox_max_age


def is_spent(attempts: int, limits: Limits) -> bool:
    """Return whether no attempt is left."""
    return 0 < limits.outbox_max_attempts <= attempts
