"""Who was told of a letter, by what bell, and where it was shown: an audit beside the mail, which moves nothing.

It belongs to its letter and is forgotten with it. It says something of this room alone, so it never travels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import TooLarge
from ..model import delivery as moves
from ..model.codec import convert, to_plain
from ..model.delivery import State
from ..model.names import check_id, check_kind
from ..model.query import Query
from ..model.record import AUDIT, AUDITED
from ..model.ring import Audit, Sight
from ..model.values import check_line
from ..store.base import Move
from .authorize import authorize
from .given import listed
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from ..model.message import Message
    from ..model.record import Record
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

MOST_RECENT = 100  # letters of a mailbox that are counted in rates
LONGEST_WORD = 200  # of where something was shown
MOST = 1000  # letters named in one call
_COME = (State.UNREAD, State.CLAIMED, State.DONE, State.DEAD)


def audit_of(office: Office, mailbox: str, letter: str) -> Audit:
    return _audit(find_record(office, AUDIT + mailbox, letter))


def _audit(held: Record | None) -> Audit:
    return Audit() if held is None else convert(held.value, Audit)


def audit_writes(
    office: Office, mailbox: str, ids: Collection[str], change: Callable[[str, Audit], Audit]
) -> list[Write]:
    """The audits of these letters, each changed. Part of a plan: it looks first."""
    writes: list[Write] = []
    for id in ids:
        held = find_record(office, AUDIT + mailbox, id)
        writes.append(put_record(AUDIT + mailbox, id, to_plain(change(id, _audit(held))), held, durable=False))
    return [*writes, *_recent(office, mailbox, ids)] if writes else []


def _recent(office: Office, mailbox: str, ids: Collection[str]) -> list[Write]:
    held = find_record(office, AUDITED, mailbox)
    before = [] if held is None else held.value
    after = [*(id for id in before if id not in set(ids)), *ids][-MOST_RECENT:]
    return [] if after == before else [put_record(AUDITED, mailbox, after, held, durable=False)]


def check_ids(ids: Any) -> tuple[str, ...]:
    """Letters as callers name them, each once."""
    named = tuple(dict.fromkeys(check_id(id, "ids") for id in listed(ids, "ids")))
    if len(named) > MOST:
        raise TooLarge(f"{len(named)} letters, the limit is {MOST}", field="ids")
    return named


def forgotten(office: Office, letters: Sequence[Message]) -> list[Write]:
    """What goes with these letters when they are deleted. Part of a plan: it looks first."""
    told = {held.key: held for held in office.store.records(AUDITED)}
    if not told:
        return []
    ids = {letter.id for letter in letters}
    found = office.store.find(Query(message_ids=tuple(ids)))
    places = {(f.delivery.mailbox, f.message.id) for f in found if f.delivery.mailbox in told}
    audits = [(AUDIT + at, id, find_record(office, AUDIT + at, id)) for at, id in sorted(places)]
    writes: list[Write] = [put_record(kind, id, None, held, durable=False) for kind, id, held in audits if held]
    for mailbox in sorted({at for at, _ in places}):
        kept = [id for id in told[mailbox].value if id not in ids]
        if kept != told[mailbox].value:
            writes.append(put_record(AUDITED, mailbox, kept or None, told[mailbox], durable=False))
    return [*writes, *service.ringbook.without(office, ids)]


def mark_shown(
    office: Office,
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
    now = office.now().wall
    sight = Sight(at=now, host=check_kind(host, "host"), where=check_line(where, "where", LONGEST_WORD))
    marked = 0

    def plan() -> Sequence[Write]:
        nonlocal marked
        query = Query(mailbox=mailbox, message_ids=named, states=_COME, shown_only=True, order="age")
        found = [f.delivery for f in office.store.find(query)]
        marked = len(found)
        here = [delivery.message_id for delivery in found]
        writes = audit_writes(office, mailbox, here, lambda _, audit: audit.with_sight(sight))
        unread = [d for d in found if read and d.read_at is None and d.state in service.reading.READABLE]
        return [*(Move(d, moves.read(d, now), "read") for d in unread), *writes]

    if named:
        office.store.commit(plan)
    return marked
