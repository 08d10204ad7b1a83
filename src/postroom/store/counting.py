"""How mail is counted, in plain Python: for stores that look at deliveries one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.delivery import State
from ..model.message import Priority
from ..model.stats import Settled, Tally

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from ..model.delivery import Delivery


def tallies(deliveries: Iterable[Delivery]) -> list[Tally]:
    """One for each mailbox that has open or dead mail, by name."""
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
    """Those done at or after a time. Archiving moves what is done already: that does not count."""
    for delivery in deliveries:
        acked = delivery.acked_at
        if acked is not None and acked >= after:
            waited = (acked - (delivery.delivered_at or acked)).total_seconds()
            yield Settled(delivery.mailbox, max(0.0, waited))
