"""Who was told of a letter, by what bell, and where it was shown: an audit beside the mail, which moves nothing.

It belongs to its letter and is forgotten with it. It says something of this room alone, so it never travels.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, TooLarge
from ..model import delivery as model_delivery
from ..model.alert import Audit, Book, Later, LostRing, RecipientAlerts, Ring, Rung, RungLetter, Sight
from ..model.codec import convert, to_plain
from ..model.delivery import State
from ..model.message import Priority
from ..model.names import check_id, check_kind
from ..model.query import Found, Query
from ..model.record import AUDIT, AUDITED, BELL, TOLD, bell_key
from ..model.report import Rate
from ..model.values import check_line, check_text
from ..policy import alerts
from ..policy.alerts import Waiting
from ..store.protocol import Move
from . import deliveries, inbox
from .authorize import authorize
from .core import find_record, put_record
from .inbox import check_spelling
from .validation import check_seconds, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.query import Moment
    from ..model.record import Record
    from ..store.protocol import Put, Write
    from .authorize import Principal
    from .core import Core


MOST_RECENT = 100  # letters of a mailbox that are counted in rates
LONGEST_WORD = 200  # of where something was shown
MOST_AUDITED = 1000  # letters named in one call
_COME = (State.UNREAD, State.CLAIMED, State.DONE, State.DEAD)


def audit_of(core: Core, mailbox: str, letter: str) -> Audit:
    return _audit(find_record(core, AUDIT + mailbox, letter))


def _audit(held: Record | None) -> Audit:
    return Audit() if held is None else convert(held.value, Audit)


def audit_writes(
    core: Core, mailbox: str, ids: Collection[str], change: Callable[[str, Audit], Audit]
) -> list[Write]:
    """The audits of these letters, each changed. Part of a plan: it looks first."""
    writes: list[Write] = []
    for id in ids:
        held = find_record(core, AUDIT + mailbox, id)
        writes.append(put_record(AUDIT + mailbox, id, to_plain(change(id, _audit(held))), held, durable=False))
    return [*writes, *_recent(core, mailbox, ids)] if writes else []


def _recent(core: Core, mailbox: str, ids: Collection[str]) -> list[Write]:
    held = find_record(core, AUDITED, mailbox)
    before = [] if held is None else held.value
    after = [*(id for id in before if id not in set(ids)), *ids][-MOST_RECENT:]
    return [] if after == before else [put_record(AUDITED, mailbox, after, held, durable=False)]


def check_ids(ids: Any) -> tuple[str, ...]:
    """Letters as callers name them, each once."""
    named = tuple(dict.fromkeys(check_id(id, "ids") for id in listed(ids, "ids")))
    if len(named) > MOST_AUDITED:
        raise TooLarge(f"{len(named)} letters, the limit is {MOST_AUDITED}", field="ids")
    return named


def forgotten(core: Core, letters: Sequence[Message]) -> list[Write]:
    """What goes with these letters when they are deleted. Part of a plan: it looks first."""
    result = {held.key: held for held in core.store.records(AUDITED)}
    if not result:
        return []
    ids = {letter.id for letter in letters}
    found = core.store.find(Query(message_ids=tuple(ids)))
    places = {(f.delivery.mailbox, f.message.id) for f in found if f.delivery.mailbox in result}
    audits = [(AUDIT + at, id, find_record(core, AUDIT + at, id)) for at, id in sorted(places)]
    writes: list[Write] = [put_record(kind, id, None, held, durable=False) for kind, id, held in audits if held]
    for mailbox in sorted({at for at, _ in places}):
        kept = [id for id in result[mailbox].value if id not in ids]
        if kept != result[mailbox].value:
            writes.append(put_record(AUDITED, mailbox, kept or None, result[mailbox], durable=False))
    return [*writes, *without(core, ids)]


def mark_shown(
    core: Core,
    caller: Principal,
    mailbox: str,
    ids: Any,
    host: str,
    where: str = "",
    *,
    read: bool = True,
) -> int:
    """These letters were put before a model or a person. Say so afterwards: better shown twice than never. They
    are stamped as read, unless only their headings were shown. What is not in the mailbox (any more) is passed
    over; gives how many are.
    """
    authorize(caller, "show", mailbox)
    named = check_ids(ids)
    now = core.now().wall
    sight = Sight(at=now, host=check_kind(host, "host"), where=check_line(where, "where", LONGEST_WORD))
    marked = 0

    def plan() -> Sequence[Write]:
        nonlocal marked
        query = Query(mailbox=mailbox, message_ids=named, states=_COME, shown_only=True, order="age")
        found = [f.delivery for f in core.store.find(query)]
        marked = len(found)
        here = [delivery.message_id for delivery in found]
        writes = audit_writes(core, mailbox, here, lambda _, audit: audit.with_sight(sight))
        unread = [d for d in found if read and d.read_at is None and d.state in inbox.READABLE]
        return [*(Move(d, model_delivery.read(d, now), "read") for d in unread), *writes]

    if named:
        core.store.commit(plan)
    return marked


# The books of ringers, and what waits at a mailbox as a ringer sees it. For plans: `ringing` and `lost_rings`
# write down what follows from it.

MOST_ALERTED = 100  # letters that a ring names, and urgent ones that it names besides; the others are in its count


class Look(Struct, frozen=True):
    """What waits at a mailbox."""

    waiting: tuple[Waiting, ...]
    found: dict[str, Found]  # the same letters
    settled: frozenset[str]  # letters in the book that nobody need be told of any more


def find_book(core: Core, mailbox: str, way: str) -> tuple[Book, Record] | None:
    held = find_record(core, BELL, bell_key(mailbox, way))
    return None if held is None else (convert(held.value, Book), held)


def books(core: Core, mailbox: str | None) -> Iterator[tuple[str, str, Book, Record]]:
    """Mailbox, way and book: of one mailbox, or of all."""
    for held in core.store.records(BELL):
        at, _, way = held.key.partition(" ")
        if mailbox in {None, at}:
            yield at, way, convert(held.value, Book), held


def without(core: Core, ids: AbstractSet[str]) -> list[Write]:
    """All books, without what they hold of these letters."""
    return [
        put_book(at, way, alerts.without(book, ids), held)
        for at, way, book, held in books(core, None)
        if ids & (book.notes.keys() | book.dead.keys() | book.open.keys())
    ]


def put_book(mailbox: str, way: str, book: Book, held: Record | None) -> Put:
    return put_record(BELL, bell_key(mailbox, way), to_plain(book), held, durable=False)


def find_told(core: Core, mailbox: str, moment: Moment) -> tuple[RecipientAlerts, Record | None]:
    """What all ringers of a mailbox remember together. In a room of an older version each had its book alone."""
    held = find_record(core, TOLD, mailbox)
    if held is None:
        return alerts.of_books((book for _, _, book, _ in books(core, mailbox)), moment), None
    return convert(held.value, RecipientAlerts), held


def put_told(mailbox: str, result: RecipientAlerts, held: Record | None) -> Put:
    return put_record(TOLD, mailbox, to_plain(result), held, durable=False)


def look(
    core: Core,
    mailbox: str,
    way: str,
    book: Book,
    moment: Moment,
    until: int,
    least: Priority = Priority.NORMAL,
) -> Look:
    """New letters that came up to this number, and those in the book."""
    page = _new(core, mailbox, way, book.up_to, until, moment, least)
    # They overtake.
    more = _new(core, mailbox, way, _number(page[-1]), until, moment, Priority.URGENT) if page else []
    noted = _noted(core, mailbox, book)
    again = [f for f in noted if f.delivery.state is State.UNREAD]
    return Look(
        waiting=(*(_waiting(f, is_new=True) for f in (*page, *more)), *(_waiting(f, is_new=False) for f in again)),
        found={f.message.id: f for f in (*page, *more, *again)},
        settled=frozenset(book.notes) - {f.message.id for f in noted},
    )


def not_new(core: Core, mailbox: str, book: Book, until: int) -> int:
    """After a ring, nothing that came up to this number is new. But what somebody holds and nobody has read is not
    passed: it may come back.
    """
    held = Query(
        mailbox=mailbox, states=(State.CLAIMED,), unread_only=True, after=book.up_to, order="age", limit=1
    )
    return min((until, *(_number(f) - 1 for f in core.store.find(held))))


def alerted_letters(found: Iterable[Found]) -> tuple[RungLetter, ...]:
    """What may be said of these letters: the most urgent first, then the oldest."""
    ordered = sorted(found, key=lambda f: (-f.delivery.priority, _number(f)))
    return tuple(
        RungLetter(
            id=f.message.id,
            sender=f.message.sender,
            proven=f.message.proven,
            subject=f.message.subject,
            thread=f.message.thread,
            priority=f.delivery.priority,
        )
        for f in ordered
    )


def _new(
    core: Core, mailbox: str, way: str, after: int, until: int, moment: Moment, least: Priority
) -> list[Found]:
    """The first unread letters that this way never rang for, in the order of their coming."""
    while True:
        query = Query(
            mailbox=mailbox,
            states=(State.UNREAD,),
            unread_only=True,
            min_priority=least,
            offered_at=moment.wall,
            after=after,
            until=until,
            order="age",
            limit=MOST_ALERTED,
        )
        page = core.store.find(query)
        new = [f for f in page if audit_of(core, mailbox, f.message.id).last(way) is None]
        if new or len(page) < MOST_ALERTED:
            return new
        after = _number(page[-1])


def _noted(core: Core, mailbox: str, book: Book) -> list[Found]:
    """The letters in the book that are not settled, whoever works on them."""
    if not book.notes:
        return []
    open_here = (State.UNREAD, State.CLAIMED)
    return core.store.find(Query(mailbox=mailbox, message_ids=tuple(book.notes), states=open_here, order="age"))


def _waiting(found: Found, *, is_new: bool) -> Waiting:
    delivery = found.delivery
    return Waiting(
        id=found.message.id,
        number=_number(found),
        priority=delivery.priority,
        came=delivery.delivered_at,
        is_unread=delivery.is_unread,
        is_new=is_new,
    )


def _number(found: Found) -> int:
    """Of its coming."""
    return found.delivery.arrived or found.delivery.number


# Telling somebody of mail: stored first, then rung, and each letter once for each way. A ring is a hint.
#
# A ringer keeps one book for a mailbox and a way (`claude`, `exec`, `webhook:<id>`); how often the recipient was
# told, by whatever way, is one record for all of them. What is rung for is decided by `policy.ringing` and
# written
# in the commit that looked, so two ringers of one way never ring for the same letter, and two ways at once are
# one
# telling. No delivery moves, and a ring that is lost loses no mail; `lost_rings` is for those.

if TYPE_CHECKING:
    MayRing = Callable[[], bool]
    Also = Callable[[Collection[str]], Sequence[Write]]

LOOK_EVERY = 10.0  # seconds; a dead ring that is tried again rings no bell
CUT_OFF = "whoever rang ended before it was done"
NOT_NOW = 1.0  # seconds until one who may not be told now is asked again


def begin(core: Core, caller: Principal, mailbox: str, way: str, *, backlog: bool = False) -> int:
    """Open the book, if there is none: what is unread already counts as told; gives how many letters that is. With
    `backlog`, only what this way rang for counts as told.
    """
    authorize(caller, "ring", mailbox)
    way = check_kind(way, "way")
    check_spelling(core, mailbox)
    seen = 0

    def plan() -> Sequence[Write]:
        nonlocal seen
        found = find_book(core, mailbox, way)
        if found is not None:
            return [put_book(mailbox, way, replace(found[0], up_to=0), found[1])] if backlog else []
        seen = 0 if backlog else _count_unread(core, mailbox, core.now())
        return [put_book(mailbox, way, Book(up_to=0 if backlog else core.store.cursor().number), None)]

    if backlog or find_book(core, mailbox, way) is None:
        core.store.commit(plan)
    return seen


def try_ring(
    core: Core,
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
    moment = core.now()
    deliveries.let_time_pass(core, moment, (mailbox,))
    book = _book_now(core, caller, mailbox, way, moment)
    if book is None:
        begin(core, caller, mailbox, way)
        return Later()
    more = alerts.unheard_of(book, moment)[1]
    until = core.store.cursor().number
    seen = look(core, mailbox, way, book, moment, until, least)
    if not seen.waiting:
        check_spelling(core, mailbox)
        return Later(more)
    before, _ = find_told(core, mailbox, moment)
    verdict = alerts.decide(seen.waiting, book, before, moment, core.limits)
    if not verdict.ring:
        return Later(min((s for s in (verdict.look_again, more) if s is not None), default=None))
    if may_ring is not None and not may_ring():
        return Later(NOT_NOW)
    core.store.sync()  # whoever is told finds it, whatever happens next
    letters = _ring(core, mailbox, way, moment, until, least, also, promised)
    if not letters:
        return Later(0.0)  # somebody was quicker
    return Rung(mailbox=mailbox, way=way, letters=letters, unread=_count_unread(core, mailbox, moment))


def _book_now(core: Core, caller: Principal, mailbox: str, way: str, moment: Moment) -> Book | None:
    """Rings that nobody said to be done in time have failed in it."""
    found = find_book(core, mailbox, way)
    if found is not None and (lost := alerts.unheard_of(found[0], moment)[0]):
        ring_failed(core, caller, mailbox, way, lost, CUT_OFF)
        found = find_book(core, mailbox, way)
    return None if found is None else found[0]


def _ring(
    core: Core,
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
        found = find_book(core, mailbox, way)
        if found is None:
            return []
        book, held = found
        seen = look(core, mailbox, way, book, moment, until, least)
        before, shared = find_told(core, mailbox, moment)
        verdict = alerts.decide(seen.waiting, book, before, moment, core.limits)
        ids = verdict.ring
        if not ids:
            return []
        after = alerts.recipient_notified(before, len(ids), until, moment, core.limits, joins=verdict.joins)
        telling = after.tellings[-1]
        rung = [waiting for waiting in seen.waiting if waiting.id in ids]
        up_to = min(telling.up_to, not_new(core, mailbox, book, until))
        book = alerts.rang(book, rung, up_to, telling.number, moment, core.limits, within=within)
        ring = Ring(at=moment.wall, way=way, telling=telling.number)
        letters = alerted_letters(seen.found[id] for id in ids)
        return [
            put_book(mailbox, way, alerts.without(book, seen.settled), held),
            put_told(mailbox, after, shared),
            *audit_writes(core, mailbox, ids, lambda _, audit: audit.with_ring(ring)),
            *(also([letter.id for letter in letters]) if also is not None else ()),
        ]

    core.store.commit(plan)
    return letters


def wait_to_ring(
    core: Core,
    caller: Principal,
    mailbox: str,
    way: str,
    timeout: float,
    may_ring: MayRing | None = None,
    *,
    within: float | None = None,
) -> Rung | None:
    """Block until it is time to ring, at most `timeout` seconds: woken by new mail, and by the rules' timers."""
    inbox.check_timeout(timeout)
    begin(core, caller, mailbox, way)
    patience = Patience(core, caller, mailbox, way, may_ring, within=within)
    return inbox.wait_until(core, (mailbox,), timeout, patience.look, patience.nap)


class Patience:
    """One look after the other, and how long to sleep between them."""

    def __init__(
        self,
        core: Core,
        caller: Principal,
        mailbox: str,
        way: str,
        may_ring: MayRing | None = None,
        *,
        within: float | None = None,
    ) -> None:
        self._ask = partial(try_ring, core, caller, mailbox, way, may_ring, within=within)
        self._seconds: float | None = None

    def look(self) -> Rung | None:
        outcome = self._ask()
        if isinstance(outcome, Rung):
            return outcome
        self._seconds = outcome.seconds
        return None

    def nap(self) -> float:
        return LOOK_EVERY if self._seconds is None else min(self._seconds + 0.001, LOOK_EVERY)


def _count_unread(core: Core, mailbox: str, moment: Moment) -> int:
    query = Query(mailbox=mailbox, states=(State.UNREAD,), unread_only=True, offered_at=moment.wall)
    return sum(core.store.count(query).values())


# What came of rings. Those that did not get through are tried again after a pause, and given up after several
# tries. What was given up is listed and can be tried again; the mail itself waits in any case.

LONGEST_WHY = 500


def ring_failed(
    core: Core,
    caller: Principal,
    mailbox: str,
    way: str,
    ids: Any,
    why: str,
    *,
    delay: float = 0.0,
    chance: float = 1.0,
    was_tried: bool = True,
) -> int:
    """The last ring for these letters did not get through. Saying so twice counts once. Gives for how many of them
    it is given up. `asked`: seconds that must pass before the next try; the rest as `policy.ringing.failed` says.
    """
    authorize(caller, "ring", mailbox)
    way, why = check_kind(way, "way"), check_text(why, "why")[:LONGEST_WHY]
    named = check_ids(ids)
    moment = core.now()
    given_up = 0

    def plan() -> Sequence[Write]:
        nonlocal given_up
        found = find_book(core, mailbox, way)
        if found is None:
            return []
        book, held = found
        is_known = book.open.keys().isdisjoint(named)
        book = alerts.done(book, named)
        lasts = {id: audit_of(core, mailbox, id).last(way) for id in named}
        lost = {id: last for id, last in lasts.items() if last is not None and last.outcome == "rung"}
        for id in lost:
            book = alerts.failed(
                book, id, why, moment, core.limits, delay=delay, chance=chance, was_tried=was_tried
            )
        given_up = len(lost.keys() & book.dead.keys())
        outcomes = {
            id: replace(last, outcome="dead" if id in book.dead else "failed", why=why)
            for id, last in lost.items()
        }
        audits = audit_writes(core, mailbox, outcomes, lambda letter, audit: audit.with_last(outcomes[letter]))
        before, shared = find_told(core, mailbox, moment)
        after = alerts.recipient_failed(before, [last.telling for last in lost.values()])
        if is_known and not lost:
            return []
        return [put_book(mailbox, way, book, held), put_told(mailbox, after, shared), *audits]

    core.store.commit(plan)
    return given_up


def ring_done(core: Core, caller: Principal, mailbox: str, way: str, ids: Any) -> None:
    """The ring for these letters was carried out. Whoever promised to say so does; else it counts as failed."""
    authorize(caller, "ring", mailbox)
    way, named = check_kind(way, "way"), check_ids(ids)

    def plan() -> Sequence[Write]:
        found = find_book(core, mailbox, way)
        if found is None or not found[0].open.keys() & set(named):
            return []
        return [put_book(mailbox, way, alerts.done(found[0], named), found[1])]

    core.store.commit(plan)


def dead_rings(core: Core, caller: Principal, mailbox: str | None) -> list[LostRing]:
    """Rings that were given up, for letters that are still unread: of a mailbox, or of all (None)."""
    authorize(caller, "room" if mailbox is None else "ring", mailbox)
    return [lost for at, way, book, _ in books(core, mailbox) for lost in _lost(core, at, way, book)]


def retry_rings(
    core: Core, caller: Principal, mailbox: str | None, *, way: str | None = None, ids: Any = None
) -> int:
    """Try dead rings again: of these letters or of all, of this way or of any. Who rings there looks within
    seconds. Gives how many.
    """
    authorize(caller, "room" if mailbox is None else "ring", mailbox)
    wanted = None if way is None else check_kind(way, "way")
    named = None if ids is None else check_ids(ids)
    moment = core.now()
    count = 0

    def plan() -> Sequence[Write]:
        nonlocal count
        writes: list[Write] = []
        count = 0
        for at, by, book, held in books(core, mailbox):
            if wanted not in {None, by}:
                continue
            again = [id for id in _unread_dead(core, at, book) if named is None or id in named]
            count += len(again)
            if again:
                writes.append(put_book(at, by, alerts.tried_again(book, again, moment), held))
        return writes

    core.store.commit(plan)
    return count


def _lost(core: Core, mailbox: str, way: str, book: Book) -> Iterator[LostRing]:
    for id, letter in _unread_dead(core, mailbox, book).items():
        dead = book.dead[id]
        yield LostRing(mailbox=mailbox, way=way, letter=letter, at=dead.at, tries=dead.tries, why=dead.why)


def _unread_dead(core: Core, mailbox: str, book: Book) -> dict[str, RungLetter]:
    """The letters of dead rings; of those that were read meanwhile nobody need be told."""
    ids = tuple(book.dead)
    query = Query(mailbox=mailbox, message_ids=ids, states=(State.UNREAD,), unread_only=True, order="age")
    return {letter.id: letter for letter in alerted_letters(core.store.find(query))} if ids else {}


# Does telling somebody of mail help? Rates by way and host, of the letters of which somebody was told last.
#
# A sample, the newest letters of each mailbox: a room with a million letters answers as quickly as a small one.

SAMPLE = 2000  # letters that are looked at, at most

AuditedDelivery = tuple["Audit", "Delivery"]


def rates(core: Core) -> tuple[Rate, ...]:
    """One for each way and host, by name."""
    result: dict[str, list[AuditedDelivery]] = {}
    for audit, delivery in _sample(core):
        names = {ring.way for ring in audit.rings} | {sight.host for sight in audit.sights}
        for name in names:
            result.setdefault(name, []).append((audit, delivery))
    return tuple(_rate(name, result[name]) for name in sorted(result))


def _sample(core: Core) -> Iterator[AuditedDelivery]:
    recent = core.store.records(AUDITED)[:SAMPLE]
    share = SAMPLE // max(len(recent), 1)
    for held in recent:
        query = Query(mailbox=held.key, message_ids=tuple(held.value[-share:]))
        for found in core.store.find(query):
            for record in core.store.records(AUDIT + held.key, found.message.id):
                yield convert(record.value, Audit), found.delivery


def _rate(name: str, results: Sequence[AuditedDelivery]) -> Rate:
    rung = [(audit, at) for audit, _ in results if (at := _rung_at(audit, name)) is not None]
    shown = [(delivery, audit.sights[0].at) for audit, delivery in results if audit.sights]
    return Rate(
        name=name,
        letters=len(results),
        rung=len(rung),
        shown=len(shown),
        acknowledged=sum(_acked_at(delivery) is not None for _, delivery in results),
        median_to_shown=_median(_until(at, (sight.at for sight in audit.sights)) for audit, at in rung),
        median_to_acknowledged=_median(_until(at, (_acked_at(delivery),)) for delivery, at in shown),
    )


def _rung_at(audit: Audit, way: str) -> datetime | None:
    """When the first of its rings got through, as far as anybody knows."""
    return next((ring.at for ring in audit.rings if ring.way == way and ring.outcome == "rung"), None)


def _acked_at(delivery: Delivery) -> datetime | None:
    return None if delivery.has_left else delivery.acked_at


def _until(start: datetime, times: Iterable[datetime | None]) -> float | None:
    """Seconds until the first of these times that came after; None if there is none."""
    return next(((at - start).total_seconds() for at in times if at is not None and at >= start), None)


def _median(spans: Iterable[float | None]) -> float | None:
    """Of an even number, the greater of the two in the middle."""
    found = sorted(span for span in spans if span is not None)
    return found[len(found) // 2] if found else None
