"""One round of letters on one connection: which are on their way, and behind which others."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from ..errors import PostroomError

if TYPE_CHECKING:
    from .link import End
    from .parcels import Parcel

log = logging.getLogger("postroom")


class Trip:
    def __init__(self, end: End) -> None:
        self.end = end
        self.held: set[tuple[str, str]] = set()  # pairs, one of whose letters was not taken
        self.moved = 0  # deliveries that are no longer what they were
        self._last: dict[tuple[str, str], Parcel] = {}  # of each pair, what went last and is not answered
        self._under_way: dict[tuple[str, str], Parcel] = {}
        self._tasks: dict[tuple[str, str], asyncio.Future[None]] = {}

    @property
    def is_over(self) -> bool:
        return self.end.line.lost.is_set()

    @property
    def unanswered(self) -> list[Parcel]:
        return list(self._under_way.values())

    async def may_go(self, parcel: Parcel) -> bool:
        """Not past one of the same pair that waits. Where the peer does not know our word for that, each pair's
        letters go one after the other.
        """
        while not self.end.in_order and (ahead := self._ahead(parcel)) and not self.is_over:
            await asyncio.wait([self._tasks[one.key] for one in ahead.values()])
        if self.held.isdisjoint(parcel.pairs):
            return True
        self.held.update(parcel.pairs)  # it waits, for all that it is for
        return False

    def begin(self, parcel: Parcel) -> dict[str, str]:
        """It goes next; behind which others."""
        behind = self._behind(parcel)
        self._under_way[parcel.key] = parcel
        self._last |= dict.fromkeys(parcel.pairs, parcel)
        return behind

    def carried(self, parcels: list[Parcel], task: asyncio.Future[None]) -> None:
        """What was begun is asked and settled by this task."""
        self._tasks |= dict.fromkeys([parcel.key for parcel in parcels], task)
        task.add_done_callback(partial(self._over, parcels))

    def answered(self, parcel: Parcel) -> None:
        del self._under_way[parcel.key]
        for pair in parcel.pairs:
            if self._last.get(pair) is parcel:
                del self._last[pair]

    def _over(self, parcels: list[Parcel], task: asyncio.Future[None]) -> None:
        """What could not be written down is sent once more, and is known there."""
        for parcel in parcels:
            del self._tasks[parcel.key]
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, PostroomError):
            log.warning("what became of a letter could not be written down: %s", fault)
        elif fault is not None:
            log.error("a letter was not sent by a fault of ours", exc_info=fault)

    async def finish(self) -> None:
        """Until all are answered, or can be no more, and what they answered is written down."""
        while self._tasks:
            await asyncio.wait({*self._tasks.values()})

    def _behind(self, parcel: Parcel) -> dict[str, str]:
        """The letters that went before it and are not answered, by their recipients."""
        ahead = self._ahead(parcel)
        found = zip(parcel.pairs, parcel.targets, strict=True)
        return {target.agent: ahead[pair].id for pair, target in found if pair in ahead}

    def _ahead(self, parcel: Parcel) -> dict[tuple[str, str], Parcel]:
        return {pair: self._last[pair] for pair in parcel.pairs if pair in self._last}
