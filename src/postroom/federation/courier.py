"""What waits for a peer is sent: many letters at once, each pair's in order, and what became of each is written
down in batches.

After a cut nobody knows which letter was its cause, if any. So the next connection begins with one letter at a
time, and one during which it is cut again and again waits as if it had been refused.
"""

from __future__ import annotations

import asyncio
import logging
import random
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import PostroomError, TooLarge
from ..lines.line import LineLost, MapRefusal
from ..model.delivery import GIVEN
from ..model.message import same_name
from ..policy.outgoing import is_spent, next_try
from ..policy.trust import check_outgoing
from ..wire.federation import way_of
from ..wire.federation_problems import Refusal, read_refusal, refusals
from ..wire.map_names import ROUTE
from .parcels import FEW, Way, next_parcels
from .trip import Trip
from .trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..desk import Desk
    from ..model.delivery import Delivery
    from ..model.query import Found
    from .link import End, Link
    from .parcels import Parcel

log = logging.getLogger("postroom")
WINDOW = 64  # letters that are on their way at once
IN_A_ROUND = 8  # times as many are looked up at once
PATIENT = 3  # cuts during one letter, after which it waits
AROUND = 1024  # bytes that stand around an envelope
LATER = 1.0  # seconds, where our own room is busy
_CUTS = Refusal(None, "the connection is cut whenever the letter is sent", is_temporary=True)
_CAME_FROM_THERE = Refusal(None, "it came from there, and waits for another way", is_temporary=True)
_UNTOLD = Refusal(None, "it does not say that it keeps the letter", is_temporary=True)
_NOBODY_KNOWS = (_CUTS, _UNTOLD)  # whether it has the letter


class Courier:
    """Of one link."""

    def __init__(self, desk: Desk, link: Link, here: str, later: Callable[[float], object]) -> None:
        self._desk = desk
        self._office = desk.room._office
        self._link = link
        self._here = here
        self._later = later  # look again after so many seconds
        self._rang = asyncio.Event()
        self._window = WINDOW
        self._has_many = False  # was there more than a few the last time?
        self._cuts: tuple[str, int] = ("", 0)  # the letter during which the line was cut, and how often
        self._new: set[tuple[str, str]] = set()  # given to it in this round: before that it cannot have had them
        self._safe: list[Delivery] = []  # what the peer keeps, and we have not written down
        self._writing: asyncio.Future[None] | None = None
        self._trouble = Trouble(f"mail for the system {link.system}")

    def ring(self) -> None:
        """There is something for it, or somebody to give it to."""
        self._rang.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._rang.wait()
            self._rang.clear()
            try:
                while (end := self._link.end) is not None and self._link.waiting and await self._round(end):
                    pass
                self._trouble.over()
            except PostroomError as wrong:
                self._trouble.met(wrong)
                await asyncio.sleep(LATER)
                self._rang.set()
            except BaseException as fault:
                if not isinstance(fault, Exception):
                    raise
                log.exception("mail for the system %s waits, by a fault of ours", self._link.system)
                await asyncio.sleep(LATER)

    async def _round(self, end: End) -> bool:
        """Some of what waits; False: nothing more can go now."""
        waiting = dict(self._link.waiting)
        way = Way(system=self._link.system, bars=self._link.bars, is_ours=end.in_order)
        parcels = await self._next(waiting, way)
        self._new.clear()
        if any(parcel.is_free for parcel in parcels):
            parcels = await self._given(waiting, way, parcels)
        if not parcels:
            for mailbox in waiting:
                self._link.waiting.pop(mailbox, None)
            return False
        trip = Trip(end)
        try:
            await self._send_all(trip, parcels)
        finally:
            await self._finish()
        if trip.is_over:
            await self._after_cut(trip.unanswered)
            return False
        self._window = min(WINDOW, self._window * 2)
        return trip.moved > 0

    async def _given(self, waiting: dict[str, str], way: Way, parcels: list[Parcel]) -> list[Parcel]:
        """What could go by another link, too, goes by ours alone, whatever becomes of the line and of us."""
        free = [found for parcel in parcels if parcel.is_free for found in parcel.found]
        await self._desk.submit(partial(service.outbox.give, self._office, free, self._link.system), self)
        self._new.update(_mark(found) for found in free if not found.delivery.given_to)
        return [parcel for parcel in await self._next(waiting, way) if not parcel.is_free]

    async def _next(self, waiting: dict[str, str], way: Way) -> list[Parcel]:
        """A few are looked up at once: a thread that works keeps the loop waiting for longer than they take."""
        if len(waiting) <= FEW and not self._has_many:
            run = partial(next_parcels, self._office, self._here, waiting, FEW, way)
            parcels: list[Parcel] = await self._desk.submit(run, self)
            self._has_many = sum(len(parcel.found) for parcel in parcels) == FEW
        else:
            most = self._window * IN_A_ROUND  # few after a cut, or it is long until there are more at once
            parcels = await self._desk.run_slow(
                partial(next_parcels, self._office, self._here, waiting, most, way)
            )
            self._has_many = len(parcels) > FEW
        return parcels

    async def _send_all(self, trip: Trip, parcels: list[Parcel]) -> None:
        turns = asyncio.Semaphore(self._window)
        for parcel in parcels:
            await turns.acquire()
            if trip.is_over:
                break
            if not await trip.may_go(parcel):
                turns.release()
                continue
            task = asyncio.ensure_future(self._one(trip, parcel, trip.behind(parcel)))
            task.add_done_callback(lambda _: turns.release())
            trip.begin(parcel, task)
        await trip.finish()

    async def _one(self, trip: Trip, parcel: Parcel, after: dict[str, str]) -> None:
        refused = await self._asked(trip, parcel, after)
        if refused is not None:
            trip.answered(parcel)
            await self._settle(trip, parcel, refused)

    async def _asked(self, trip: Trip, parcel: Parcel, after: dict[str, str]) -> dict[str, Refusal] | None:
        """Who did not get it, and why; None: nobody knows, for the connection is gone."""
        if any(same_name(self._link.system, passed) for passed in way_of(parcel.letter).get("path", ())):
            return parcel.all_refused(_CAME_FROM_THERE)
        try:
            for target in parcel.targets:
                check_outgoing(self._link.peer, parcel.letter, target)
            if trip.end.largest is not None and parcel.size + AROUND > trip.end.largest:
                raise TooLarge(
                    f"the letter is {parcel.size} bytes as it is sent, and is not read there", field="body"
                )
            more: dict[str, Any] = {"after": after} if after else {}
            told = await trip.end.line.ask(ROUTE, systemId=parcel.system, envelope=parcel.envelope, **more)
        except PostroomError as changed:  # what was agreed, since the letter was written; or it is too large there
            return parcel.all_refused(Refusal(None, str(changed), is_ours=True))
        except LineLost as lost:
            log.debug("a letter to %s was not answered: %s", self._link.system, lost)
        except MapRefusal as refused:
            refusal = read_refusal(refused.error)
            if not refusal.is_of_trust:
                return parcel.all_refused(refusal)
            self._link.complain(refusal.message)
        else:
            return refusals(told) if told.get("routed") is True else parcel.all_refused(_UNTOLD)
        self._link.give_up(trip.end)
        return None

    async def _settle(self, trip: Trip, parcel: Parcel, refused: dict[str, Refusal]) -> None:
        for found, target in zip(parcel.found, parcel.targets, strict=True):
            refusal = refused.get(target.agent)
            if refusal is None:
                self._link.sent += 1
                trip.moved += 1
                self._keep(found.delivery)
                continue
            trip.held.update(parcel.pairs)
            if refusal.is_behind:  # it waits for another, and is none the worse for it
                continue
            trip.moved += 1
            await self._not_taken(found, refusal)

    async def _not_taken(self, found: Found, refusal: Refusal) -> None:
        reason = f"{self._link.system}: {refusal.message}"
        delivery, limits = found.delivery, self._office.limits
        may_have_it = bool(delivery.given_to) and self._may_have(found, refusal)
        is_barred = (
            bool(delivery.given_to) and not may_have_it and (refusal is _CAME_FROM_THERE or not refusal.waits)
        )
        now = due = self._office.now().wall
        if is_barred:
            self._link.bar(found)  # the next that has somebody of the name gets it
        elif refusal.waits:
            due = next_try(delivery, now, limits, random.random())
        if (refusal.waits or is_barred) and not is_spent(delivery.attempts + 1, limits):
            reason = f"{GIVEN}{reason}" if may_have_it else reason  # then it stays with us
            await self._desk.submit(partial(service.outbox.delayed, self._office, found, reason, due))
            self._later((due - now).total_seconds())
        else:
            await self._desk.submit(partial(service.outbox.refused, self._office, found, reason))

    def _may_have(self, found: Found, refusal: Refusal) -> bool:
        """May the peer have it nonetheless, from before a line was cut? Then no other one gets it. A no for good
        is said of what it does not have; one for now, or one of ours, says nothing of what was before.
        """
        is_of_now = refusal is not _CAME_FROM_THERE and (refusal.waits or refusal.is_ours)
        return refusal in _NOBODY_KNOWS or (is_of_now and _mark(found) not in self._new)

    # -- what is safe there

    def _keep(self, delivery: Delivery) -> None:
        """Written down with all others that come until the last of them is."""
        self._safe.append(delivery)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        try:
            while self._safe:
                safe, self._safe = self._safe, []
                await self._desk.submit(partial(service.outbox.departed, self._office, safe, self._link.system))
        except PostroomError as busy:  # they are sent once more, and are known there
            log.warning("what the system %s keeps could not be written down: %s", self._link.system, busy)
        finally:
            self._writing = None

    async def _finish(self) -> None:
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _after_cut(self, parcels: list[Parcel]) -> None:
        self._window = 1
        if len(parcels) != 1:
            return
        (parcel,) = parcels
        id, times = self._cuts
        self._cuts = (parcel.id, times + 1 if id == parcel.id else 1)
        if self._cuts[1] >= PATIENT:
            self._cuts = ("", 0)
            for found in parcel.found:
                await self._not_taken(found, _CUTS)


def _mark(found: Found) -> tuple[str, str]:
    return found.message.id, found.delivery.mailbox
