"""What is being moved out of a room is claimed meanwhile: no worker there takes it. Then it is put away."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from .. import policy
from ..errors import StaleRevision, UnknownMessage
from ..model import delivery as moves
from ..model.delivery import COPIED, OPEN, Delivery, Lease, State
from ..model.query import Query
from ..store.base import Move
from .holders import is_gone

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..store.base import Letter, Store
    from .office import Office

HOLDER = "postroom copy"  # who claims what is being moved
TIME = 120.0  # seconds for one slice; a copy that dies leaves its letters claimed for so long at most

Held: TypeAlias = dict[str, list[Delivery]]  # by letter
Fenced: TypeAlias = dict[tuple[str, str], Delivery]  # (letter, mailbox) -> as it is now, claimed by us


class Fence:
    """Around some deliveries of one room, slice by slice."""

    def __init__(self, office: Office) -> None:
        self._office, self._store = office, office.store
        self._lost: set[tuple[str, str]] = set()  # what others took when we wanted it
        self.held = 0  # what is left to those who work on it

    def take(self, held: Held) -> Fenced:
        """Claim what is to be moved; what somebody else holds, or takes at this moment, stays. Mail for later
        needs no claim: nobody is offered it.
        """
        lease, fenced, claims = self._lease(), Fenced(), []
        for delivery in (each for found in held.values() for each in found if each.state in OPEN):
            if self._is_held(delivery):
                self.held += 1
            elif delivery.state is State.QUEUED:
                fenced[_at(delivery)] = delivery
            else:
                claimed = replace(delivery, state=State.CLAIMED, lease=lease, revision=delivery.revision + 1)
                fenced[_at(delivery)] = claimed
                claims.append(Move(delivery, claimed, "claim"))
        self._lost = {_at(each) for each in self._commit(claims)}
        self.held += len(self._lost)
        for at in self._lost:
            del fenced[at]
        return fenced

    def as_taken(self, held: Held) -> Held:
        """With the claims of those who were quicker: else the letter would be offered elsewhere meanwhile."""
        if not self._lost:
            return held
        ids = tuple({id for id, _ in self._lost})
        now = {_at(found.delivery): found.delivery for found in self._store.find(Query(message_ids=ids))}
        return {
            id: [now.get(_at(each), each) if _at(each) in self._lost else each for each in found]
            for id, found in held.items()
        }

    def leave(self, fenced: Sequence[Delivery], room: str) -> list[Delivery]:
        """Put them away: they go on in that room. Those that were not ours any more: a stranger heeds no claim."""
        now = self._office.now().wall
        lost = self._commit([Move(each, moves.move_away(each, now, room), COPIED) for each in fenced])
        self.held += len(lost)
        return lost

    def release(self, fenced: Iterable[Delivery]) -> None:
        claimed = [each for each in fenced if each.state is State.CLAIMED]
        self._commit([Move(each, moves.release(each), "release") for each in claimed])

    def _lease(self) -> Lease:
        now = self._office.now()
        holder = f"{HOLDER} (process {os.getpid()})"
        return Lease(token=self._office.ids.token(), holder=holder, until=now.steady + TIME, boot=now.boot)

    def _is_held(self, delivery: Delivery) -> bool:
        lease = delivery.lease
        if delivery.state is not State.CLAIMED or lease is None:
            return False
        if policy.timers.has_lapsed(lease, self._office.now()):
            return False
        return not (lease.holder.startswith(HOLDER) and is_gone(lease.holder))

    def _commit(self, steps: Sequence[Move]) -> list[Delivery]:
        """All at once, else one by one; those that somebody else moved first."""
        try:
            self._store.commit(steps)
        except (StaleRevision, UnknownMessage):
            if len(steps) == 1:
                return [steps[0].before]
            return [lost for step in steps for lost in self._commit([step])]
        return []


def deliveries_of(store: Store, letters: Sequence[Letter]) -> Held:
    held: Held = {letter.message.id: [] for letter in letters}
    for found in store.find(Query(message_ids=tuple(held), order="age")):
        held[found.message.id].append(found.delivery)
    return held


def _at(delivery: Delivery) -> tuple[str, str]:
    return delivery.message_id, delivery.mailbox
