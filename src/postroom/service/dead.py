"""Dead letters: list them, say why, bring them back, delete them for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import Invalid, TooLarge, UnknownMessage
from ..model import delivery as moves
from ..model.codec import digest
from ..model.delivery import SETTLED, UNSENT, State
from ..model.message import CAME
from ..model.names import AT, check_id
from ..model.query import Found, Query
from ..model.record import FORGOTTEN, SPENT, Record, spent_key
from ..store.base import Forget, Move, Put
from .authorize import authorize
from .given import check_limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

MOST = 10_000  # letters named in one call


def list_dead(office: Office, caller: Principal, mailbox: str, limit: int | None = None) -> list[Found]:
    """Dead letters of a mailbox, the oldest first; `delivery.reason` and `.history` say why. With them, those that
    it sent to other systems and that died here.
    """
    authorize(caller, "dead", mailbox)
    most = check_limit(limit)
    query = Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True, order="age", limit=most)
    service.moving.let_time_pass(office, office.now(), (mailbox,))
    service.naming.check_not_moved(office, mailbox, "mailbox")
    found = [*office.store.find(query), *_dead_on_the_way(office, mailbox)]
    return sorted(found, key=lambda f: (f.delivery.number, f.delivery.mailbox))[:most]


def revive(office: Office, caller: Principal, mailbox: str, ids: Sequence[str]) -> list[Found]:
    """Back into the inbox, with all tries ahead of them again. All or none."""
    authorize(caller, "revive", mailbox)
    revived: list[Found] = []
    now = office.now().wall

    def plan() -> Sequence[Write]:
        found = _dead(office, mailbox, ids)
        revived[:] = [Found(f.message, _revived(f.delivery, now)) for f in found]
        return [Move(f.delivery, g.delivery, _back(g.delivery)) for f, g in zip(found, revived, strict=True)]

    office.store.commit(plan)
    return revived


def _revived(delivery: Delivery, now: datetime) -> Delivery:
    return moves.requeue(delivery, now) if AT in delivery.mailbox else moves.revive(delivery)


def _back(revived: Delivery) -> str:
    return "requeue" if revived.state is State.QUEUED else "revive"


def purge_dead(office: Office, caller: Principal, mailbox: str, ids: Sequence[str]) -> int:
    """Delete dead letters for good. One that still lives in another mailbox is kept; returns how many went."""
    authorize(caller, "purge", mailbox)
    purged = 0

    def plan() -> Sequence[Write]:
        nonlocal purged
        letters = [f.message for f in _dead(office, mailbox, ids) if _is_settled(office, f.message.id)]
        purged = len(letters)
        return forget(office, letters, office.now().wall)

    office.store.commit(plan)
    return purged


def forget(office: Office, letters: Sequence[Message], now: datetime) -> list[Write]:
    """Delete letters, and the tasks they opened; remember that their ids and keys are spent. Part of a plan: it
    looks first.
    """
    memories: dict[tuple[str, str], dict[str, Any]] = {}
    for letter in letters:
        way = service.sending.way_of(letter)
        memory = {"id": letter.id, "digest": digest(letter), "at": now.isoformat(), "way": way}
        if CAME in letter.extra:
            memory[CAME] = letter.extra[CAME]
        memories[FORGOTTEN, letter.id] = memory
        # One letter's id may be another's key: what is remembered already stays.
        memories.setdefault((SPENT, spent_key(letter.sender, letter.key or letter.id)), memory)
    new = [Record(kind=at[0], key=at[1], value=v) for at, v in memories.items() if not office.store.records(*at)]
    forgotten: list[Write] = [*(Forget(letter.id) for letter in letters), *(Put(record=record) for record in new)]
    told = service.auditing.forgotten(office, letters)
    return [*forgotten, *told, *service.taskbook.strike(office, letters)]


def _dead(office: Office, mailbox: str, ids: Sequence[str]) -> list[Found]:
    ids = [check_id(id, "id") for id in ids]
    if len(ids) > MOST:
        raise TooLarge(f"{len(ids)} letters, the limit is {MOST}", field="id")
    query = Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True, message_ids=tuple(ids), order="age")
    found = office.store.find(query)
    if len(found) < len(set(ids)):
        found += _dead_on_the_way(office, mailbox, tuple(ids))
    missing = set(ids) - {f.message.id for f in found}
    if not ids:
        raise Invalid("no letter is named", field="id", hint="give the ids of dead letters")
    if missing:
        service.naming.check_not_moved(office, mailbox, "mailbox")
        raise UnknownMessage(f"no dead letter {min(missing)!r} in {mailbox!r}", field="id")
    return found


def _dead_on_the_way(office: Office, mailbox: str, ids: tuple[str, ...] = ()) -> list[Found]:
    """Letters to other systems that died here: nobody here has that mailbox, so they are their sender's."""
    places = [name for name in office.store.mailboxes() if AT in name]
    wanted = Query(states=(State.DEAD,), sender=mailbox, message_ids=ids, order="age")
    found = (one for place in places for one in office.store.find(replace(wanted, mailbox=place)))
    return [one for one in found if one.delivery.reason != UNSENT]


def _is_settled(office: Office, id: str) -> bool:
    everywhere = office.store.find(Query(message_ids=(id,)))
    return all(found.delivery.state in SETTLED for found in everywhere)
