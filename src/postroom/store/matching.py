"""What a query means, in plain Python: for stores that look at values one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.delivery import State

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.query import Found, Moment, Query


def fits(delivery: Delivery, query: Query) -> bool:
    """Is the delivery one the query asks for?"""
    return (
        (query.mailbox is None or delivery.mailbox == query.mailbox)
        and (not query.states or delivery.state in query.states)
        and (not query.message_ids or delivery.message_id in query.message_ids)
        and not (query.unread_only and delivery.read_at is not None)
        and not (query.shown_only and delivery.is_hidden)
        and delivery.priority >= query.min_priority
        and (query.after is None or (delivery.arrived or delivery.number) > query.after)
        and (query.until is None or (delivery.arrived or delivery.number) <= query.until)
        and _fits_time(delivery, query)
    )


def tells(message: Message, query: Query, sender: str) -> bool:
    """Is its letter? `sender` is what its sender is called now."""
    return (
        (not query.kinds or message.kind in query.kinds)
        and (query.sender is None or sender == query.sender)
        and (query.thread is None or message.thread == query.thread)
        and (query.thread_tag is None or message.thread_tag == query.thread_tag)
        and (query.tag is None or query.tag in message.tags)
        and (query.scope is None or message.scope == query.scope)
        and (query.since is None or message.created_at >= query.since)
        and (query.sent_before is None or message.created_at < query.sent_before)
    )


def _fits_time(delivery: Delivery, query: Query) -> bool:
    offered, due, archived = query.offered_at, query.due_at, query.unarchived_before
    at, most = delivery.due_at, query.due_most if delivery.attempts else None
    return (
        (offered is None or delivery.expires_at is None or delivery.expires_at > offered)
        and (due is None or at is None or at <= due or (most is not None and at > most))
        and (
            archived is None
            or (delivery.archived_at is None and delivery.acked_at is not None and delivery.acked_at < archived)
        )
    )


def seconds_left(delivery: Delivery, moment: Moment) -> float:
    """Until time changes this delivery; infinite when it never does."""
    left = float("inf")
    if delivery.state is State.CLAIMED and delivery.lease:
        lease = delivery.lease
        return lease.until - moment.steady if lease.boot == moment.boot else 0
    if delivery.state in {State.QUEUED, State.UNREAD} and delivery.expires_at is not None:
        left = (delivery.expires_at - moment.wall).total_seconds()
    if delivery.state is State.QUEUED and delivery.due_at is not None:
        left = min(left, (delivery.due_at - moment.wall).total_seconds())
    return left


def by_arrival(found: Found) -> int:
    return found.delivery.arrived or found.delivery.number


SORT: dict[str, Callable[[Found], Any]] = {
    "inbox": lambda f: (f.delivery.read_at is not None, -f.delivery.priority, f.delivery.number),
    "priority": lambda f: (-f.delivery.priority, f.delivery.number),
    "age": lambda f: f.delivery.number,
    "newest": lambda f: -f.delivery.number,
}
