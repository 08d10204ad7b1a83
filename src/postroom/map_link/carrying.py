"""What waits for agents of the server is sent there: claimed, sent, acknowledged once the server has it.

A letter stays in its mailbox until then, so nothing is lost while the link is down or its agent is not there.
After a cut in the middle it is sent again, under the same id. What the server refuses is tried again later, as any
failed work; after the last try the sender is told.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import LeaseLost, Resync
from ..lines.line import LineLost, MapRefusal
from ..model.delivery import State
from ..model.message import Message
from ..model.query import Query
from ..model.record import CARD
from ..wire.map_problems import NO_ADDRESS, NO_AGENT, TERMINATED
from .directory import LINK
from .neighbours import Neighbour

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..desk import Desk
    from ..letter import Batch, Work
    from ..room import Room

log = logging.getLogger("postroom")
Send = Callable[[Message, Neighbour], Awaitable[None]]
AT_ONCE = 32  # letters claimed in one go
NOT_THERE = (NO_ADDRESS, NO_AGENT, TERMINATED)
SLICE = 1000  # changes looked at in one go
LEASE = 120.0  # seconds: longer than we wait for all the answers that may fail to come


class _Left(Exception):
    """The agent is not there any more: what is left for it goes on waiting."""


class Carrier:
    """Knows which mailboxes may hold something for the server."""

    def __init__(self, desk: Desk, room: Room) -> None:
        self._desk = desk
        self._room = room
        self._store = room._office.store
        self._cursor = self._store.cursor()
        self._number = self._cursor.number
        self._waiting: set[str] = set()

    async def look_everywhere(self, system: str) -> None:
        """At every mailbox of theirs: at the beginning, and now and then for what comes due again."""
        self._waiting = await self._desk.run_slow(lambda: self._all(system))

    async def look_at_news(self, system: str) -> bool:
        """At the mailboxes that got a letter since the last look; were cards written, too?"""
        names, cards = await self._desk.run_slow(lambda: (self._news(system), self._new_cards()))
        self._waiting |= names
        return bool(cards)

    def _all(self, system: str) -> set[str]:
        return {
            name for name in self._store.mailboxes() if self._is_ours_to_empty(name, system) and self._holds(name)
        }

    def _news(self, system: str) -> set[str]:
        now = self._store.cursor().number
        query = Query(states=(State.UNREAD,), unread_only=True, after=self._number, until=now, order="age")
        found = self._store.find(query) if now > self._number else []
        self._number = now
        names = {one.delivery.mailbox for one in found}
        return {name for name in names if self._is_ours_to_empty(name, system)}

    def _new_cards(self) -> bool:
        try:
            changes, self._cursor = self._store.changes(self._cursor, SLICE)
        except Resync:
            self._cursor = self._store.cursor()
            return True
        return any(change.kind == CARD for change in changes) or len(changes) == SLICE

    def _is_ours_to_empty(self, name: str, system: str) -> bool:
        """Is it of an agent of theirs, or of nobody yet? One of ours may be called the same."""
        if not name.startswith(f"{system}/"):
            return False
        card = self._store.records(CARD, name)
        return not card or card[0].value.get("principal") == LINK.name

    def _holds(self, mailbox: str) -> bool:
        return bool(self._store.find(Query(mailbox=mailbox, states=(State.UNREAD,), limit=1)))

    @property
    def waits_for_strangers(self) -> bool:
        """Is there mail for somebody the server has not told of?"""
        return bool(self._waiting)

    async def carry(self, there: Mapping[str, Neighbour], send: Send) -> set[str]:
        """Send what waits for those who are there. What waits for others goes on waiting, also for those who
        turned out to have left: they are given back.
        """
        left: set[str] = set()
        for mailbox in sorted(self._waiting & there.keys()):
            try:
                while await self._some(there[mailbox], send):
                    pass
            except _Left:
                left.add(mailbox)
            else:
                self._waiting.discard(mailbox)
        return left

    async def _some(self, one: Neighbour, send: Send) -> bool:
        """A few of them; False: that was all."""
        box = self._room.mailbox(one.mailbox)
        works = await self._desk.run_slow(lambda: box.claim(AT_ONCE, lease=LEASE, holder="map link"))
        done: list[Work] = []
        try:
            for work in works:
                await self._one(work, one, send)
                done.append(work)
        finally:
            await self._desk.run_slow(lambda: _settle(works, done))
        return len(works) == AT_ONCE

    async def _one(self, work: Work, one: Neighbour, send: Send) -> None:
        """A letter during which the line is cut has failed a try: it may be what cuts it, and must not do so for
        ever.
        """
        try:
            await send(work.message, one)
        except LineLost as cut:
            await self._failed(work, f"the line was cut: {cut}")
            raise
        except MapRefusal as refused:
            if refused.code in NOT_THERE:
                raise _Left from None
            log.warning("the MAP server did not take a letter for %s: %s", one.mailbox, refused)
            await self._failed(work, f"the MAP server: {refused}")

    async def _failed(self, work: Work, reason: str) -> None:
        with suppress(LeaseLost):
            await self._desk.run_slow(lambda: work.fail(reason))


def _settle(works: Batch, done: list[Work]) -> None:
    """What was sent is done; the rest goes back. A lease that ran out was sent too late: it is sent again."""
    with suppress(LeaseLost):
        works._mailbox.ack([work for work in done if not work.is_settled])
    with suppress(LeaseLost):
        works.release()
