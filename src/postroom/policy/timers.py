"""What the passing of time does to a delivery: leases run out, queued mail comes due, mail expires."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import delivery as moves
from ..model.delivery import Attempt, State
from ..model.names import AT
from .retry import after_lapse

if TYPE_CHECKING:
    from ..model.delivery import Delivery, Lease
    from ..model.query import Moment
    from .limits import Limits


def has_lapsed(lease: Lease, moment: Moment) -> bool:
    """Only uptime decides, never the wall clock; no lease outlives a reboot."""
    return lease.boot != moment.boot or lease.until <= moment.steady


def catch_up(delivery: Delivery, moment: Moment, limits: Limits) -> tuple[Delivery, str] | None:
    """The delivery after what time did to it, and the action; None when nothing is overdue."""
    expired = delivery.expires_at is not None and delivery.expires_at <= moment.wall
    if delivery.state in {State.QUEUED, State.UNREAD} and expired:
        return moves.expire(delivery, moment.wall), "expire"
    if delivery.state is State.QUEUED and delivery.due_at is not None and delivery.due_at <= moment.wall:
        if AT in delivery.mailbox:
            return moves.come_due(delivery, moment.wall), "due"
        return moves.deliver(delivery, moment.wall), "deliver"
    if delivery.state is State.CLAIMED and delivery.lease and has_lapsed(delivery.lease, moment):
        attempt = Attempt(at=moment.wall, holder=delivery.lease.holder, reason="the lease ran out")
        return after_lapse(delivery, attempt, limits)
    return None
