"""Taking mail while some of it stays where it is, untouched: that of a peer that has as much in hand as it may,
and what is for another gateway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .. import service
from ..aio_letter import AsyncWork
from ..errors import LeaseLost
from ..letter import Work
from ..model.delivery import State
from ..model.names import fold
from ..model.query import Query
from ..policy.retry import latest_retry

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ..aio import AsyncMailbox
    from ..mailbox import Mailbox

SLICE = 200  # letters looked at in one go


async def claim_but(
    box: AsyncMailbox,
    count: int,
    *,
    busy: Collection[str],
    left: Collection[str],
    lease: float,
    holder: str,
    timeout: float,
) -> list[AsyncWork]:
    """Up to `count` letters, but none of these senders, and not these. What is claimed for a cancelled task is
    given back.
    """
    taken: list[Work] = []

    def take() -> list[Work]:
        taken[:] = claim_of_others(box.mailbox, busy, left, count, lease=lease, holder=holder)
        return taken

    try:
        await box.room._wait_until([box.name], timeout, take)
    except asyncio.CancelledError:
        for work in taken:
            await box.room.run(work.release)
        raise
    return [AsyncWork(box.room, work) for work in taken]


def claim_of_others(
    mailbox: Mailbox, busy: Collection[str], left: Collection[str], count: int, *, lease: float, holder: str
) -> list[Work]:
    """Up to `count` letters, in the order they came, but none of these senders, and not these."""
    taken: list[Work] = []
    for letter in _letters_of_others(mailbox, busy, left):
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


def _letters_of_others(mailbox: Mailbox, busy: Collection[str], left: Collection[str]) -> Iterator[str]:
    office, moment = mailbox._office, mailbox._office.now()
    service.moving.let_time_pass(office, moment, (mailbox.name,))
    number = 0
    while True:
        query = Query(
            mailbox=mailbox.name,
            states=(State.UNREAD,),
            offered_at=moment.wall,
            due_at=moment.wall,
            due_most=latest_retry(moment.wall, office.limits),
            after=number,
            limit=SLICE,
        )
        found = office.store.find(query)
        others = (one.message for one in found if fold(one.message.sender) not in busy)
        yield from (message.id for message in others if message.id not in left)
        if len(found) < SLICE:
            return
        number = found[-1].delivery.number
