"""The meaning of queries, searches and counts, in plain Python.

For stores that look at values one by one; and every result of a text index is checked against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..model.delivery import State
from ..model.message import Priority
from ..model.names import fold
from ..model.query import Settled, Tally
from ..model.search import Marks, search_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.query import Found, Moment, Query
    from ..model.search import SearchQuery, Term


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


# -- searches


def matches_search(message: Message, query: SearchQuery, reader: str | None) -> bool:
    """Return whether this letter, as `reader` sees it, meets the query.

    Whether the reader may see the letter at all is decided elsewhere.
    """
    return (
        (query.after is None or message.created_at >= query.after)
        and (query.before is None or message.created_at < query.before)
        and _matches_marks(message, query, reader)
        and _matches_terms(message, query)
    )


def marks_of(message: Message) -> Marks:
    """Return sender, recipients, tags, kind and thread of a letter, as a query compares them."""
    return Marks(
        senders=(fold(message.sender),),
        recipients=tuple(fold(recipient.address) for recipient in message.recipients),
        tags=tuple(tag.casefold() for tag in message.tags),
        kinds=(message.kind.casefold(),),
        threads=(message.thread,),
    )


def _matches_marks(message: Message, query: SearchQuery, reader: str | None) -> bool:
    wanted, unwanted = query.wanted, query.unwanted
    if wanted == unwanted == Marks():
        return True
    marks = marks_of(_shown(message, query, reader))  # a search for a hidden recipient must not reveal it
    return (
        (not wanted.senders or _overlap(any_name(query, wanted.senders), marks.senders))
        and (not wanted.kinds or _overlap(wanted.kinds, marks.kinds))
        and (not wanted.threads or _overlap(wanted.threads, marks.threads))
        and all(_overlap(query.names_of(name), marks.recipients) for name in wanted.recipients)
        and set(marks.tags).issuperset(wanted.tags)
        and not _overlap(any_name(query, unwanted.senders), marks.senders)
        and not _overlap(any_name(query, unwanted.recipients), marks.recipients)
        and not any(
            _overlap(getattr(unwanted, name), getattr(marks, name)) for name in ("tags", "kinds", "threads")
        )
    )


def any_name(query: SearchQuery, names: Iterable[str]) -> list[str]:
    """Return every present and former name of these agents."""
    return [one for name in names for one in query.names_of(name)]


def _shown(message: Message, query: SearchQuery, reader: str | None) -> Message:
    """Return the letter as the reader may see it, under any of the reader's present and former names."""
    shown = message.seen_by(reader)
    if shown is message or reader is None:
        return shown
    own = query.names_of(fold(reader))
    if fold(message.sender) in own:
        return message
    named = tuple(r for r in message.recipients if r.kind != "bcc" or fold(r.address) in own)
    return replace(message, recipients=named)


def _matches_terms(message: Message, query: SearchQuery) -> bool:
    if not query.terms and not query.without:
        return True
    text = search_text(message)
    return all(_holds(text, term) for term in query.terms) and not any(
        _holds(text, term) for term in query.without
    )


def _holds(text: str, term: Term) -> bool:
    return f" {' '.join(term.words)}{'' if term.begins else ' '}" in text


def _overlap(some: Iterable[str], others: Iterable[str]) -> bool:
    return not set(some).isdisjoint(others)


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


def settled_since(deliveries: Iterable[Delivery], after: datetime) -> Iterator[Settled]:
    """Yield the deliveries acknowledged at or after a time; archiving them later does not count again."""
    for delivery in deliveries:
        acked = delivery.acked_at
        if acked is not None and acked >= after:
            waited = (acked - (delivery.delivered_at or acked)).total_seconds()
            yield Settled(delivery.mailbox, max(0.0, waited))
