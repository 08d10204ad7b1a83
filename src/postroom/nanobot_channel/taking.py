"""Taking mail of others while one peer has as much in hand as it may: its mail stays where it is, untouched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import service
from ..errors import LeaseLost
from ..letter import Work
from ..model.delivery import State
from ..model.names import fold
from ..model.query import Query

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ..mailbox import Mailbox

SLICE = 200  # letters looked at in one go


def claim_of_others(
    mailbox: Mailbox, busy: Collection[str], count: int, *, lease: float, holder: str
) -> list[Work]:
    """Up to `count` letters, in the order they came, but none of these senders."""
    taken: list[Work] = []
    for letter in _letters_of_others(mailbox, busy):
        if len(taken) >= count:
            break
        try:
            found = service.holding.claim_one(
                mailbox._office, mailbox._caller, mailbox.name, letter, lease=lease, holder=holder
            )
        except LeaseLost:  # another gateway was quicker
            continue
        taken.append(Work(mailbox, found))
    return taken


def _letters_of_others(mailbox: Mailbox, busy: Collection[str]) -> Iterator[str]:
    office, moment = mailbox._office, mailbox._office.now()
    service.moving.let_time_pass(office, moment, (mailbox.name,))
    number = 0
    while True:
        query = Query(
            mailbox=mailbox.name,
            states=(State.UNREAD,),
            offered_at=moment.wall,
            due_at=moment.wall,
            after=number,
            limit=SLICE,
        )
        found = office.store.find(query)
        yield from (one.message.id for one in found if fold(one.message.sender) not in busy)
        if len(found) < SLICE:
            return
        number = found[-1].delivery.number
