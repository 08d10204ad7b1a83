"""What came of rings. Those that did not get through are tried again after a pause, and given up after several
tries. What was given up is listed and can be tried again; the mail itself waits in any case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import policy
from ..model.delivery import State
from ..model.names import check_kind
from ..model.query import Query
from ..model.ring import LostRing
from ..model.values import check_text
from .auditing import audit_of, audit_writes, check_ids
from .authorize import authorize
from .ringbook import books, find_book, find_told, put_book, put_told, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..model.ring import Book, RungLetter
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

LONGEST_WHY = 500


def ring_failed(
    office: Office,
    caller: Principal,
    mailbox: str,
    way: str,
    ids: Any,
    why: str,
    *,
    asked: float = 0.0,
    chance: float = 1.0,
    was_tried: bool = True,
) -> int:
    """The last ring for these letters did not get through. Saying so twice counts once. Gives for how many of them
    it is given up. `asked`: seconds that must pass before the next try; the rest as `policy.ringing.failed` says.
    """
    authorize(caller, "ring", mailbox)
    way, why = check_kind(way, "way"), check_text(why, "why")[:LONGEST_WHY]
    named = check_ids(ids)
    moment = office.now()
    given_up = 0

    def plan() -> Sequence[Write]:
        nonlocal given_up
        found = find_book(office, mailbox, way)
        if found is None:
            return []
        book, held = found
        is_known = book.open.keys().isdisjoint(named)
        book = policy.ringing.done(book, named)
        lasts = {id: audit_of(office, mailbox, id).last(way) for id in named}
        lost = {id: last for id, last in lasts.items() if last is not None and last.outcome == "rung"}
        for id in lost:
            book = policy.ringing.failed(
                book, id, why, moment, office.limits, asked=asked, chance=chance, was_tried=was_tried
            )
        given_up = len(lost.keys() & book.dead.keys())
        outcomes = {
            id: replace(last, outcome="dead" if id in book.dead else "failed", why=why)
            for id, last in lost.items()
        }
        audits = audit_writes(office, mailbox, outcomes, lambda letter, audit: audit.with_last(outcomes[letter]))
        before, shared = find_told(office, mailbox, moment)
        after = policy.telling.failed(before, [last.telling for last in lost.values()])
        if is_known and not lost:
            return []
        return [put_book(mailbox, way, book, held), put_told(mailbox, after, shared), *audits]

    office.store.commit(plan)
    return given_up


def ring_done(office: Office, caller: Principal, mailbox: str, way: str, ids: Any) -> None:
    """The ring for these letters was carried out. Whoever promised to say so does; else it counts as failed."""
    authorize(caller, "ring", mailbox)
    way, named = check_kind(way, "way"), check_ids(ids)

    def plan() -> Sequence[Write]:
        found = find_book(office, mailbox, way)
        if found is None or not found[0].open.keys() & set(named):
            return []
        return [put_book(mailbox, way, policy.ringing.done(found[0], named), found[1])]

    office.store.commit(plan)


def dead_rings(office: Office, caller: Principal, mailbox: str | None) -> list[LostRing]:
    """Rings that were given up, for letters that are still unread: of a mailbox, or of all (None)."""
    authorize(caller, "room" if mailbox is None else "ring", mailbox)
    return [lost for at, way, book, _ in books(office, mailbox) for lost in _lost(office, at, way, book)]


def retry_rings(
    office: Office, caller: Principal, mailbox: str | None, *, way: str | None = None, ids: Any = None
) -> int:
    """Try dead rings again: of these letters or of all, of this way or of any. Who rings there looks within
    seconds. Gives how many.
    """
    authorize(caller, "room" if mailbox is None else "ring", mailbox)
    wanted = None if way is None else check_kind(way, "way")
    named = None if ids is None else check_ids(ids)
    moment = office.now()
    count = 0

    def plan() -> Sequence[Write]:
        nonlocal count
        writes: list[Write] = []
        count = 0
        for at, by, book, held in books(office, mailbox):
            if wanted not in {None, by}:
                continue
            again = [id for id in _unread(office, at, book) if named is None or id in named]
            count += len(again)
            if again:
                writes.append(put_book(at, by, policy.ringing.tried_again(book, again, moment), held))
        return writes

    office.store.commit(plan)
    return count


def _lost(office: Office, mailbox: str, way: str, book: Book) -> Iterator[LostRing]:
    for id, letter in _unread(office, mailbox, book).items():
        dead = book.dead[id]
        yield LostRing(mailbox=mailbox, way=way, letter=letter, at=dead.at, tries=dead.tries, why=dead.why)


def _unread(office: Office, mailbox: str, book: Book) -> dict[str, RungLetter]:
    """The letters of dead rings; of those that were read meanwhile nobody need be told."""
    ids = tuple(book.dead)
    query = Query(mailbox=mailbox, message_ids=ids, states=(State.UNREAD,), unread_only=True, order="age")
    return {letter.id: letter for letter in told(office.store.find(query))} if ids else {}
