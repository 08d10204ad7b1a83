"""Telling somebody of mail: stored first, then rung, and each letter once for each way. A ring is a hint.

A ringer keeps one book for a mailbox and a way (`claude`, `exec`, `webhook:<id>`); how often the recipient was
told, by whatever way, is one record for all of them. What is rung for is decided by `policy.ringing` and written
in the commit that looked, so two ringers of one way never ring for the same letter, and two ways at once are one
telling. No delivery moves, and a ring that is lost loses no mail; `lost_rings` is for those.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import policy, service
from ..errors import Invalid
from ..model.delivery import State
from ..model.message import Priority
from ..model.names import check_kind
from ..model.query import Query
from ..model.ring import Book, Later, Ring, Rung
from .auditing import audit_writes
from .authorize import authorize
from .given import check_seconds
from .reading import check_spelling
from .ringbook import find_book, find_told, look, not_new, put_book, put_told, told

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..model.query import Moment
    from ..model.ring import RungLetter
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

    MayRing = Callable[[], bool]
    Also = Callable[[Collection[str]], Sequence[Write]]

LOOK_EVERY = 10.0  # seconds; a dead ring that is tried again rings no bell
CUT_OFF = "whoever rang ended before it was done"
NOT_NOW = 1.0  # seconds until one who may not be told now is asked again


def begin(office: Office, caller: Principal, mailbox: str, way: str, *, backlog: bool = False) -> int:
    """Open the book, if there is none: what is unread already counts as told; gives how many letters that is. With
    `backlog`, only what this way rang for counts as told.
    """
    authorize(caller, "ring", mailbox)
    way = check_kind(way, "way")
    check_spelling(office, mailbox)
    seen = 0

    def plan() -> Sequence[Write]:
        nonlocal seen
        found = find_book(office, mailbox, way)
        if found is not None:
            return [put_book(mailbox, way, replace(found[0], up_to=0), found[1])] if backlog else []
        seen = 0 if backlog else _unread(office, mailbox, office.now())
        return [put_book(mailbox, way, Book(up_to=0 if backlog else office.store.cursor().number), None)]

    if backlog or find_book(office, mailbox, way) is None:
        office.store.commit(plan)
    return seen


def try_ring(
    office: Office,
    caller: Principal,
    mailbox: str,
    way: str,
    may_ring: MayRing | None = None,
    *,
    within: float | None = None,
    least: Priority = Priority.NORMAL,
    also: Also | None = None,
) -> Rung | Later:
    """Is it time to ring? Then that is written down, and whoever gets a `Rung` rings, once. `may_ring` is asked
    when there is something to ring for; if it says no, nothing is written. Where there is no book, it is begun.
    Whoever promises to say that the ring is done (`lost_rings.ring_done`) `within` so many seconds, and does not,
    has failed. Mail below `least` is not rung for. What `also` says of the letters is written in the same commit.
    """
    authorize(caller, "ring", mailbox)
    way = check_kind(way, "way")
    if may_ring is not None and not callable(may_ring):
        raise Invalid(f"must be a function, not {type(may_ring).__name__}", field="may_ring")
    promised = None if within is None else check_seconds(within, "within", above=0)
    moment = office.now()
    service.moving.let_time_pass(office, moment, (mailbox,))
    book = _book_now(office, caller, mailbox, way, moment)
    if book is None:
        begin(office, caller, mailbox, way)
        return Later()
    more = policy.ringing.unheard_of(book, moment)[1]
    until = office.store.cursor().number
    seen = look(office, mailbox, way, book, moment, until, least)
    if not seen.waiting:
        check_spelling(office, mailbox)
        return Later(more)
    before, _ = find_told(office, mailbox, moment)
    verdict = policy.ringing.decide(seen.waiting, book, before, moment, office.limits)
    if not verdict.ring:
        return Later(min((s for s in (verdict.look_again, more) if s is not None), default=None))
    if may_ring is not None and not may_ring():
        return Later(NOT_NOW)
    office.store.sync()  # whoever is told finds it, whatever happens next
    letters = _ring(office, mailbox, way, moment, until, least, also, promised)
    if not letters:
        return Later(0.0)  # somebody was quicker
    return Rung(mailbox=mailbox, way=way, letters=letters, unread=_unread(office, mailbox, moment))


def _book_now(office: Office, caller: Principal, mailbox: str, way: str, moment: Moment) -> Book | None:
    """Rings that nobody said to be done in time have failed in it."""
    found = find_book(office, mailbox, way)
    if found is not None and (lost := policy.ringing.unheard_of(found[0], moment)[0]):
        service.lost_rings.ring_failed(office, caller, mailbox, way, lost, CUT_OFF)
        found = find_book(office, mailbox, way)
    return None if found is None else found[0]


def _ring(
    office: Office,
    mailbox: str,
    way: str,
    moment: Moment,
    until: int,
    least: Priority,
    also: Also | None,
    within: float | None,
) -> tuple[RungLetter, ...]:
    """Look again with the door closed, and write down what is rung for. Nothing that came after the first look: it
    may not be safe yet.
    """
    letters: tuple[RungLetter, ...] = ()

    def plan() -> Sequence[Write]:
        nonlocal letters
        letters = ()
        found = find_book(office, mailbox, way)
        if found is None:
            return []
        book, held = found
        seen = look(office, mailbox, way, book, moment, until, least)
        before, shared = find_told(office, mailbox, moment)
        verdict = policy.ringing.decide(seen.waiting, book, before, moment, office.limits)
        ids = verdict.ring
        if not ids:
            return []
        after = policy.telling.rang(before, len(ids), until, moment, office.limits, joins=verdict.joins)
        telling = after.tellings[-1]
        rung = [waiting for waiting in seen.waiting if waiting.id in ids]
        up_to = min(telling.up_to, not_new(office, mailbox, book, until))
        book = policy.ringing.rang(book, rung, up_to, telling.number, moment, office.limits, within=within)
        ring = Ring(at=moment.wall, way=way, telling=telling.number)
        letters = told(seen.found[id] for id in ids)
        return [
            put_book(mailbox, way, policy.ringing.without(book, seen.settled), held),
            put_told(mailbox, after, shared),
            *audit_writes(office, mailbox, ids, lambda _, audit: audit.with_ring(ring)),
            *(also([letter.id for letter in letters]) if also is not None else ()),
        ]

    office.store.commit(plan)
    return letters


def wait_to_ring(
    office: Office,
    caller: Principal,
    mailbox: str,
    way: str,
    timeout: float,
    may_ring: MayRing | None = None,
    *,
    within: float | None = None,
) -> Rung | None:
    """Block until it is time to ring, at most `timeout` seconds: woken by new mail, and by the rules' timers."""
    service.waiting.check_timeout(timeout)
    begin(office, caller, mailbox, way)
    patience = Patience(office, caller, mailbox, way, may_ring, within=within)
    return service.waiting.wait_until(office, (mailbox,), timeout, patience.look, patience.nap)


class Patience:
    """One look after the other, and how long to sleep between them."""

    def __init__(
        self,
        office: Office,
        caller: Principal,
        mailbox: str,
        way: str,
        may_ring: MayRing | None = None,
        *,
        within: float | None = None,
    ) -> None:
        self._ask = partial(try_ring, office, caller, mailbox, way, may_ring, within=within)
        self._seconds: float | None = None

    def look(self) -> Rung | None:
        outcome = self._ask()
        if isinstance(outcome, Rung):
            return outcome
        self._seconds = outcome.seconds
        return None

    def nap(self) -> float:
        return LOOK_EVERY if self._seconds is None else min(self._seconds + 0.001, LOOK_EVERY)


def _unread(office: Office, mailbox: str, moment: Moment) -> int:
    query = Query(mailbox=mailbox, states=(State.UNREAD,), unread_only=True, offered_at=moment.wall)
    return sum(office.store.count(query).values())
