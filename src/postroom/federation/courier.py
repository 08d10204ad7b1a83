"""Trouble with our own room, while mail for others waits: what passes by itself is no news, what lasts is."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from ..core import outbox
from ..errors import PostroomError, StoreBusy, TooLarge
from ..formats.federation import Refusal, each_of, envelope_of, read_refusal, refusals, way_of
from ..formats.map import ROUTE
from ..model.codec import encode
from ..model.delivery import GIVEN
from ..model.message import Message, same_name
from ..model.names import ANYWHERE, Address, agent_of, at_system, parse_address, system_of
from ..model.query import Found
from ..policy.retry import is_spent, next_try
from ..policy.trust import check_outgoing
from .connection import LineLost, MapRefusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from ..core.core import Core
    from ..model.delivery import Delivery
    from ..server.executor import Executor
    from .link import End, Link


log = logging.getLogger("postroom")
LASTS = 30.0  # seconds for which somebody else may be in the room


class Trouble:
    """Of one who tries again."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._since: float | None = None
        self._is_told = False

    def met(self, wrong: PostroomError) -> None:
        """Once more. The log says it once, until it is over."""
        now = monotonic()
        self._since = now if self._since is None else self._since
        is_news = not isinstance(wrong, StoreBusy) or now - self._since >= LASTS
        if is_news and not self._is_told:
            self._is_told = True
            log.warning("%s waits a moment: %s", self._whose, wrong)
        else:
            log.debug("%s waits a moment: %s", self._whose, wrong)

    def over(self) -> None:
        self._since, self._is_told = None, False


# One letter to all that it is for at one system, as it is put on a line. On the desk's threads.

FEW = 16  # letters looked up in a moment
MOST = 512  # letters looked up at once
AROUND = 1024  # bytes that stand around an envelope, and those that say behind which letter each goes
LARGEST = 8 * 1024 * 1024  # bytes of letters that wait to be put on a line, and one letter more


class Way(Struct, frozen=True, kw_only=True):
    """By whom letters go."""

    system: str
    bars: Callable[[Found], bool]  # did it refuse this one, which may go elsewhere?
    is_ours: bool  # is it a post room, too?

    def takes(self, found: Found) -> bool:
        """Not what another one may have by now, and not what it refused."""
        holder = found.delivery.given_to
        return (not holder or same_name(holder, self.system)) and not self.bars(found)


class Parcel(Struct, frozen=True, kw_only=True):
    """A letter, and its deliveries that go there together."""

    id: str  # of the letter, as it is known where it was written
    letter: Message
    system: str
    found: tuple[Found, ...]
    targets: tuple[Address, ...]  # of each delivery: who it is for
    envelope: Raw

    @property
    def key(self) -> tuple[str, str]:
        """No other parcel is for the first of them, too."""
        return self.letter.id, self.found[0].delivery.mailbox

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Between whom the order is kept."""
        return [(self.letter.sender, found.delivery.mailbox) for found in self.found]

    @property
    def size(self) -> int:
        return memoryview(self.envelope).nbytes

    @property
    def is_free(self) -> bool:
        """Could it as well go to another system, and was not given to any?"""
        return any(_is_sought(one) and not one.delivery.given_to for one in self.found)

    def all_refused(self, refusal: Refusal) -> dict[str, Refusal]:
        return {target.agent: refusal for target in self.targets}


def next_parcels(core: Core, here: str, waiting: Mapping[str, str], most: int, way: Way) -> list[Parcel]:
    """What goes next to these mailboxes, each at a system, in order of acceptance; so many letters at most."""
    together: dict[tuple[str, str, tuple[bool, str]], list[Found]] = {}
    for found in outbox.next_letters(core, list(waiting), most, way.takes):
        system = waiting[found.delivery.mailbox]
        together.setdefault((found.message.id, system, _company(found)), []).append(found)
    parcels: list[Parcel] = []
    size, now = 0, core.now().wall
    for (_, system, _), some in together.items():
        parcels.append(_parcel(core, here, system, some, way, now))
        size += parcels[-1].size
        if size > LARGEST:
            break
    return parcels


def bundled(parcels: Iterable[Parcel], most: int, largest: int) -> Iterator[list[Parcel]]:
    """In their order, those that go in one call: so many, of so many bytes, but one at least."""
    bundle: list[Parcel] = []
    size = 0
    for parcel in parcels:
        own = parcel.size + AROUND * len(parcel.targets)
        size += own
        if bundle and (len(bundle) == most or size > largest):
            yield bundle
            bundle, size = [], own
        bundle.append(parcel)
    if bundle:
        yield bundle


def _company(found: Found) -> tuple[bool, str]:
    """Who travels together: everybody at a system with nobody else, and nobody with itself in another scope, for
    what becomes of it is told by name.
    """
    address = parse_address(found.delivery.mailbox, "to")
    return bool(address.agent), address.scope


def _parcel(core: Core, here: str, system: str, found: list[Found], way: Way, now: datetime) -> Parcel:
    letter, most = found[0].message, core.limits.federation_hops
    targets = [_target(one.delivery.mailbox, system) for one in found]
    envelope = envelope_of(letter, system, targets, here=here, most_hops=most, now=now, is_ours=way.is_ours)
    return Parcel(
        id=envelope["payload"]["id"],
        letter=letter,
        system=system,
        found=tuple(found),
        targets=tuple(targets),
        envelope=Raw(encode(envelope)),
    )


def _is_sought(found: Found) -> bool:
    return system_of(found.delivery.mailbox) == ANYWHERE


def _target(mailbox: str, system: str) -> Address:
    """Who was to be found has been: at that system."""
    address = parse_address(mailbox, "to")
    return Address(agent=address.agent, system=system) if address.system == ANYWHERE else address


# One round of letters on one connection: which are on their way, and behind which others.


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


# What waits for a peer is sent: many letters at once, each pair's in order, and what became of each is written
# down in batches.
#
# After a cut nobody knows which letter was its cause, if any. So the next connection begins with one letter at a
# time, and one during which it is cut again and again waits as if it had been refused.

if TYPE_CHECKING:
    Letter = tuple[Parcel, dict[str, str]]  # and, by recipient, behind which one it goes

WINDOW = 64  # letters that are on their way at once
CALLS = 2  # at least so many calls, where a peer takes several letters in one: it answers one and has the next
MOST_BYTES = 256 * 1024  # of letters in one call
IN_A_ROUND = 8  # times as many are looked up at once
PATIENT = 3  # cuts during one letter, after which it waits
LATER = 1.0  # seconds, where our own room is busy
_CUTS = Refusal(None, "the connection is cut whenever the letter is sent", is_temporary=True)
_CAME_FROM_THERE = Refusal(None, "it came from there, and waits for another way", is_temporary=True)
_UNTOLD = Refusal(None, "it does not say that it keeps the letter", is_temporary=True)
_NOBODY_KNOWS = (_CUTS, _UNTOLD)  # whether it has the letter


class Courier:
    """Of one link."""

    def __init__(self, executor: Executor, link: Link, here: str, later: Callable[[float], object]) -> None:
        self._executor = executor
        self._core = executor.room._core
        self._link = link
        self._here = here
        self._later = later  # look again after so many seconds
        self._rang = asyncio.Event()
        self.rests = asyncio.Event()  # has it carried all that it knew of?
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
            if not self._rang.is_set():
                self.rests.set()
                await self._rang.wait()
                self.rests.clear()
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
        await self._executor.submit(partial(outbox.give, self._core, free, self._link.system), self)
        self._new.update(_mark(found) for found in free if not found.delivery.given_to)
        return [parcel for parcel in await self._next(waiting, way) if not parcel.is_free]

    async def _next(self, waiting: dict[str, str], way: Way) -> list[Parcel]:
        """A few are looked up at once: a thread that works keeps the loop waiting for longer than they take."""
        if len(waiting) <= FEW and not self._has_many:
            run = partial(next_parcels, self._core, self._here, waiting, FEW, way)
            parcels: list[Parcel] = await self._executor.submit(run, self)
            self._has_many = sum(len(parcel.found) for parcel in parcels) == FEW
        else:
            most = self._window * IN_A_ROUND  # few after a cut, or it is long until there are more at once
            parcels = await self._executor.run_slow(
                partial(next_parcels, self._core, self._here, waiting, most, way)
            )
            self._has_many = len(parcels) > FEW
        return parcels

    async def _send_all(self, trip: Trip, parcels: list[Parcel]) -> None:
        most = min(trip.end.together, max(1, self._window // CALLS))
        turns = asyncio.Semaphore(self._window // most)
        largest = MOST_BYTES if trip.end.largest is None else min(MOST_BYTES, trip.end.largest)
        for bundle in bundled(parcels, most, largest):
            await turns.acquire()
            if trip.is_over:
                break
            letters = [(parcel, trip.begin(parcel)) for parcel in bundle if await trip.may_go(parcel)]
            if not letters:
                turns.release()
                continue
            task = asyncio.ensure_future(self._carry(trip, letters))
            task.add_done_callback(lambda _: turns.release())
            trip.carried([parcel for parcel, _ in letters], task)
        await trip.finish()

    def _against(self, end: End, parcel: Parcel) -> Refusal | None:
        """Which rule of ours is against it."""
        if any(same_name(self._link.system, passed) for passed in way_of(parcel.letter).get("path", ())):
            return _CAME_FROM_THERE
        try:
            for target in parcel.targets:
                check_outgoing(self._link.peer, parcel.letter, target)
            if end.largest is not None and parcel.size + AROUND > end.largest:
                raise TooLarge(
                    f"the letter is {parcel.size} bytes as it is sent, and is not read there", field="body"
                )
        except PostroomError as changed:  # what was agreed, since the letter was written; or it is too large there
            return Refusal(None, str(changed), is_ours=True)
        return None

    async def _carry(self, trip: Trip, letters: list[Letter]) -> None:
        """In one call, if it can be, all that no rule of ours is against."""
        ready: list[Letter] = []
        for parcel, after in letters:
            refusal = self._against(trip.end, parcel)
            if refusal is None:
                ready.append((parcel, after))
            else:
                await self._settled(trip, parcel, parcel.all_refused(refusal))
        if len(ready) < 2 or not await self._together(trip, ready):
            await self._one_by_one(trip, ready)

    async def _together(self, trip: Trip, letters: list[Letter]) -> bool:
        """False: the call as such is refused. What is wrong with one of them says nothing of the others."""
        envelopes, afters = [parcel.envelope for parcel, _ in letters], [after for _, after in letters]
        result = await self._asked(trip, envelopes=envelopes, afters=afters)
        if isinstance(result, MapRefusal):
            return False
        rows = [None] * len(letters) if result is None else each_of(result, len(letters))
        for (parcel, _), row in zip(letters, rows, strict=True):
            error = None if row is None else row.get("error")
            await self._answered(trip, parcel, row if error is None else MapRefusal(error))
        return True

    async def _one_by_one(self, trip: Trip, letters: list[Letter]) -> None:
        for parcel, after in letters:
            more: dict[str, Any] = {"after": after} if after else {}
            result = await self._asked(trip, systemId=parcel.system, envelope=parcel.envelope, **more)
            await self._answered(trip, parcel, result)

    async def _asked(self, trip: Trip, **params: Any) -> dict[str, Any] | MapRefusal | None:
        """What is told of letters; None: nobody knows, for the connection is gone."""
        try:
            return await trip.end.line.ask(ROUTE, **params)
        except MapRefusal as refused:
            return refused
        except LineLost as lost:
            log.debug("what went to %s was not answered: %s", self._link.system, lost)
            self._link.give_up(trip.end)
            return None

    async def _answered(self, trip: Trip, parcel: Parcel, result: dict[str, Any] | MapRefusal | None) -> None:
        if result is None:
            return
        if isinstance(result, MapRefusal):
            refusal = read_refusal(result.error)
            if refusal.is_of_trust:  # of the connection, and not of the letter
                self._link.complain(refusal.message)
                self._link.give_up(trip.end)
                return
            refused = parcel.all_refused(refusal)
        else:
            refused = refusals(result) if result.get("routed") is True else parcel.all_refused(_UNTOLD)
        await self._settled(trip, parcel, refused)

    async def _settled(self, trip: Trip, parcel: Parcel, refused: dict[str, Refusal]) -> None:
        trip.answered(parcel)
        await self._settle(trip, parcel, refused)

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
        delivery, limits = found.delivery, self._core.limits
        may_have_it = bool(delivery.given_to) and self._may_have(found, refusal)
        is_barred = (
            bool(delivery.given_to) and not may_have_it and (refusal is _CAME_FROM_THERE or not refusal.waits)
        )
        now = due = self._core.now().wall
        if is_barred:
            self._link.bar(found)  # the next that has somebody of the name gets it
        elif refusal.waits:
            due = next_try(delivery, now, limits, random.random())
        if (refusal.waits or is_barred) and not is_spent(delivery.attempts + 1, limits):
            reason = f"{GIVEN}{reason}" if may_have_it else reason  # then it stays with us
            await self._executor.submit(partial(outbox.delayed, self._core, found, reason, due))
            self._later((due - now).total_seconds())
        elif refusal.waits or refusal.is_ours or not await self._left_to_others(found, reason):
            await self._executor.submit(partial(outbox.refused, self._core, found, reason))

    async def _left_to_others(self, found: Found, reason: str) -> bool:
        """May another have it, as peers were asked for the name? Then it is sought anew, but not here."""
        sought = replace(found.delivery, mailbox=at_system(agent_of(found.delivery.mailbox), ANYWHERE))
        self._link.bar(replace(found, delivery=sought))
        is_left: bool = await self._executor.submit(partial(outbox.seek_anew, self._core, found, reason))
        if is_left:
            self._later(0)
        return is_left

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
                await self._executor.submit(partial(outbox.departed, self._core, safe, self._link.system))
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
