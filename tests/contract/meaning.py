"""The meaning of a query and of a count, in plain Python; `test_store_meaning` compares every store with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from postroom.model.delivery import SETTLED, Delivery, State
from postroom.model.message import Message, Priority
from postroom.model.query import Found, LetterQuery, Moment, Query, Tally
from postroom.model.thread import conversation_of


def matches_delivery(delivery: Delivery, query: Query) -> bool:
    """Return whether the delivery meets the query's conditions on deliveries."""
    return (
        (query.mailbox is None or delivery.mailbox == query.mailbox)
        and (not query.states or delivery.state in query.states)
        and (not query.message_ids or delivery.message_id in query.message_ids)
        and not (query.unread_only and delivery.read_at is not None)
        and not (query.shown_only and delivery.is_hidden)
        and delivery.priority >= query.min_priority
        and (query.after is None or (delivery.arrived or delivery.number) > query.after)
        and (query.until is None or (delivery.arrived or delivery.number) <= query.until)
        and _matches_times(delivery, query)
    )


def matches_letter(message: Message, query: Query, sender: str) -> bool:
    """Return whether the letter meets the query's conditions on letters; `sender` is its sender's present name."""
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


def _matches_times(delivery: Delivery, query: Query) -> bool:
    offered, due, archived = query.offered_at, query.due_at, query.unarchived_before
    # Only a retry can be too far ahead; the time of scheduled mail is its sender's choice (G7).
    at, most = delivery.due_at, query.due_most if delivery.attempts else None
    return (
        (offered is None or delivery.expires_at is None or delivery.expires_at > offered)
        and (due is None or at is None or at <= due or (most is not None and at > most))
        and (query.reason is None or (delivery.reason or "") == query.reason)
        and (query.dead_by is None or (delivery.dead_at is not None and delivery.dead_at <= query.dead_by))
        and (
            archived is None
            or (delivery.archived_at is None and delivery.acked_at is not None and delivery.acked_at < archived)
        )
    )


def seconds_left(delivery: Delivery, moment: Moment) -> float:
    """Return the seconds until time changes this delivery; infinite if it never does."""
    left = float("inf")
    if delivery.state is State.CLAIMED and delivery.lease:
        lease = delivery.lease
        # A lease of an earlier boot is over: its holder did not survive.
        return lease.until - moment.steady if lease.boot == moment.boot else 0
    if delivery.state in {State.QUEUED, State.UNREAD} and delivery.expires_at is not None:
        left = (delivery.expires_at - moment.wall).total_seconds()
    if delivery.state is State.QUEUED and delivery.due_at is not None:
        left = min(left, (delivery.due_at - moment.wall).total_seconds())
    return left


def by_arrival(found: Found) -> int:
    return found.delivery.arrived or found.delivery.number


# By number, never by a clock: the order of acceptance (G7). `queries._ORDER` says the same in SQL.
SORT: dict[str, Callable[[Found], Any]] = {
    "inbox": lambda f: (f.delivery.read_at is not None, -f.delivery.priority, f.delivery.number),
    "priority": lambda f: (-f.delivery.priority, f.delivery.number),
    "age": lambda f: f.delivery.number,
    "newest": lambda f: -f.delivery.number,
}


# -- counts


def tallies(deliveries: Iterable[Delivery]) -> list[Tally]:
    """Return one Tally for each mailbox that has open or dead mail, by name."""
    held: dict[str, list[Delivery]] = {}
    for delivery in deliveries:
        if delivery.state is not State.DONE:
            held.setdefault(delivery.mailbox, []).append(delivery)
    return [_tally(mailbox, held[mailbox]) for mailbox in sorted(held)]


def _tally(mailbox: str, deliveries: list[Delivery]) -> Tally:
    by_state: dict[State, list[Delivery]] = {state: [] for state in State}
    for delivery in sorted(deliveries, key=lambda d: d.number):
        by_state[delivery.state].append(delivery)
    unread = [d for d in by_state[State.UNREAD] if d.is_unread]
    seen = [d for d in by_state[State.UNREAD] if not d.is_unread]
    claimed = by_state[State.CLAIMED]
    return Tally(
        mailbox=mailbox,
        unread={priority: sum(d.priority is priority for d in unread) for priority in Priority},
        seen=len(seen),
        claimed=len(claimed),
        queued=len(by_state[State.QUEUED]),
        dead=len(by_state[State.DEAD]),
        oldest_unread_at=unread[0].delivered_at if unread else None,
        oldest_seen_at=seen[0].delivered_at if seen else None,
        oldest_claimed_at=claimed[0].delivered_at if claimed else None,
    )


# -- letters, and time


def matches_letters(message: Message, deliveries: list[Delivery], query: LetterQuery) -> bool:
    """Return whether a letter with these deliveries meets a query for letters."""
    came = {d.mailbox for d in deliveries if d.state is not State.QUEUED and not d.is_hidden}
    settled = [d.acked_at or d.dead_at for d in deliveries if d.state in SETTLED]
    return (
        (query.conversation is None or conversation_of(message) == query.conversation)
        and (query.replies_in is None or query.replies_in == message.thread_id)
        and (query.sender is None or query.sender == message.sender)
        and (query.thread is None or message.thread == query.thread)
        and (query.thread_tag is None or message.thread_tag == query.thread_tag)
        and (query.scope is None or message.scope == query.scope)
        and (query.party is None or query.party in {message.sender, *came})
        and (query.received_by is None or query.received_by in came)
        and (not query.to_several or len(deliveries) > 1)
        and message.id not in query.spared
        and message.id.startswith(query.beginning)
        and (
            query.settled_before is None
            or (len(settled) == len(deliveries) and all(t and t < query.settled_before for t in settled))
        )
    )


def next_timer(deliveries: Iterable[Delivery], moment: Moment, mailbox: str) -> float | None:
    """Return the seconds until a delivery in this mailbox becomes overdue, or due for another try."""
    own = [d for d in deliveries if d.mailbox == mailbox]
    waits = [seconds_left(d, moment) for d in own]
    waits += [(d.due_at - moment.wall).total_seconds() for d in own if d.state is State.UNREAD and d.due_at]
    return min((seconds for seconds in waits if 0 < seconds < float("inf")), default=None)
