"""The books of ringers, and what waits at a mailbox as a ringer sees it. For plans: `ringing` and `lost_rings`
write down what follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from .. import policy
from ..model.codec import convert, to_plain
from ..model.delivery import State
from ..model.message import Priority
from ..model.query import Found, Query
from ..model.record import BELL, TOLD, bell_key
from ..model.ring import Book, RungLetter
from ..model.telling import Told
from ..policy.ringing import Waiting
from .auditing import audit_of
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from ..model.query import Moment
    from ..model.record import Record
    from ..store.base import Put, Write
    from .office import Office

MOST = 100  # letters that a ring names, and urgent ones that it names besides; the others are in its count


class Look(Struct, frozen=True):
    """What waits at a mailbox."""

    waiting: tuple[Waiting, ...]
    found: dict[str, Found]  # the same letters
    settled: frozenset[str]  # letters in the book that nobody need be told of any more


def find_book(office: Office, mailbox: str, way: str) -> tuple[Book, Record] | None:
    held = find_record(office, BELL, bell_key(mailbox, way))
    return None if held is None else (convert(held.value, Book), held)


def books(office: Office, mailbox: str | None) -> Iterator[tuple[str, str, Book, Record]]:
    """Mailbox, way and book: of one mailbox, or of all."""
    for held in office.store.records(BELL):
        at, _, way = held.key.partition(" ")
        if mailbox in {None, at}:
            yield at, way, convert(held.value, Book), held


def without(office: Office, ids: AbstractSet[str]) -> list[Write]:
    """All books, without what they hold of these letters."""
    return [
        put_book(at, way, policy.ringing.without(book, ids), held)
        for at, way, book, held in books(office, None)
        if ids & (book.notes.keys() | book.dead.keys() | book.open.keys())
    ]


def put_book(mailbox: str, way: str, book: Book, held: Record | None) -> Put:
    return put_record(BELL, bell_key(mailbox, way), to_plain(book), held, durable=False)


def find_told(office: Office, mailbox: str, moment: Moment) -> tuple[Told, Record | None]:
    """What all ringers of a mailbox remember together. In a room of an older version each had its book alone."""
    held = find_record(office, TOLD, mailbox)
    if held is None:
        return policy.telling.of_books((book for _, _, book, _ in books(office, mailbox)), moment), None
    return convert(held.value, Told), held


def put_told(mailbox: str, told: Told, held: Record | None) -> Put:
    return put_record(TOLD, mailbox, to_plain(told), held, durable=False)


def look(
    office: Office,
    mailbox: str,
    way: str,
    book: Book,
    moment: Moment,
    until: int,
    least: Priority = Priority.NORMAL,
) -> Look:
    """New letters that came up to this number, and those in the book."""
    page = _new(office, mailbox, way, book.up_to, until, moment, least)
    # They overtake.
    more = _new(office, mailbox, way, _number(page[-1]), until, moment, Priority.URGENT) if page else []
    noted = _noted(office, mailbox, book)
    again = [f for f in noted if f.delivery.state is State.UNREAD]
    return Look(
        waiting=(*(_waiting(f, is_new=True) for f in (*page, *more)), *(_waiting(f, is_new=False) for f in again)),
        found={f.message.id: f for f in (*page, *more, *again)},
        settled=frozenset(book.notes) - {f.message.id for f in noted},
    )


def not_new(office: Office, mailbox: str, book: Book, until: int) -> int:
    """After a ring, nothing that came up to this number is new. But what somebody holds and nobody has read is not
    passed: it may come back.
    """
    held = Query(
        mailbox=mailbox, states=(State.CLAIMED,), unread_only=True, after=book.up_to, order="age", limit=1
    )
    return min((until, *(_number(f) - 1 for f in office.store.find(held))))


def told(found: Iterable[Found]) -> tuple[RungLetter, ...]:
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
    office: Office, mailbox: str, way: str, after: int, until: int, moment: Moment, least: Priority
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
            limit=MOST,
        )
        page = office.store.find(query)
        new = [f for f in page if audit_of(office, mailbox, f.message.id).last(way) is None]
        if new or len(page) < MOST:
            return new
        after = _number(page[-1])


def _noted(office: Office, mailbox: str, book: Book) -> list[Found]:
    """The letters in the book that are not settled, whoever works on them."""
    if not book.notes:
        return []
    open_here = (State.UNREAD, State.CLAIMED)
    return office.store.find(Query(mailbox=mailbox, message_ids=tuple(book.notes), states=open_here, order="age"))


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
