"""Moving deliveries: find, step, commit. Nobody is ever told that they lost a race they need not know of."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .. import policy, service
from ..errors import StaleRevision, UnknownMessage
from ..model.delivery import Delivery
from ..model.query import Found
from ..store.base import Move

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.query import Moment, Query
    from ..store.base import Write
    from .office import Office

Step = Callable[[Delivery], Delivery]
SLICE = 200  # deliveries moved in one commit when time has caught up with many


def offered(office: Office, query: Query, moment: Moment, mailbox: str) -> list[Found]:
    """What can be had at this mailbox now, after what time did to it."""
    found = office.store.offered(query, moment)
    if found is None:
        let_time_pass(office, moment, (mailbox,))
        found = office.store.find(query)
    return found


def move_found(
    office: Office, query: Query, action: str, step: Step, first: Sequence[Found] | None = None
) -> list[Found]:
    """Find deliveries and move each by `step`, in one commit. Returns them as they are afterwards. `first`: what
    was found just now.
    """
    after: list[Found] = []

    def steps(all_found: Sequence[Found]) -> Sequence[Write]:
        after.clear()
        writes: list[Write] = []
        for found in all_found:
            moved = step(found.delivery)
            after.append(Found(found.message, moved))
            writes.append(Move(found.delivery, moved, action))
        return writes

    def plan() -> Sequence[Write]:
        return steps(office.store.find(query))

    moves = plan() if first is None else steps(first)
    if not moves:
        return []
    try:
        office.store.commit(moves)
    except (StaleRevision, UnknownMessage):  # somebody was quicker: look again, with the door closed
        office.store.commit(plan)
    return after


def let_time_pass(office: Office, moment: Moment, mailboxes: Sequence[str] | None) -> dict[str, int]:
    """Do to these mailboxes what time did: leases run out, queued mail comes due, mail expires.

    Counts what was done, by action. What dies of too many tries bounces in the same commit.
    """
    done: dict[str, int] = {}

    def plan() -> Sequence[Write]:
        writes: list[Write] = []
        for found in office.store.overdue(moment, mailboxes, SLICE):
            after = policy.timers.catch_up(found.delivery, moment, office.limits)
            if after is not None:
                delivery, action = after
                done[action] = done.get(action, 0) + 1
                writes.append(Move(found.delivery, delivery, action))
                if action == "bury":
                    writes += service.bouncing.bounce(office, found.message, delivery, moment.wall)
        return writes

    while office.store.overdue(moment, mailboxes, 1):
        moved = sum(done.values())
        office.store.commit(plan)
        if moved == sum(done.values()):
            break
    return done
