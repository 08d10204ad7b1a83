"""Dead letters: list them, say why, bring them back, delete them for good."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import Invalid, TooLarge, UnknownMessage
from ..model import delivery as moves
from ..model.codec import digest
from ..model.delivery import SETTLED, State
from ..model.names import check_id
from ..model.query import Found, Query
from ..model.record import FORGOTTEN, SPENT, Record, spent_key
from ..store.base import Forget, Move, Put
from .authorize import authorize
from .given import check_limit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.message import Message
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

MOST = 10_000  # letters named in one call


def list_dead(office: Office, caller: Principal, mailbox: str, limit: int | None = None) -> list[Found]:
    """Dead letters of a mailbox, the oldest first; `delivery.reason` and `.history` say why."""
    authorize(caller, "dead", mailbox)
    query = Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True, order="age", limit=check_limit(limit))
    service.moving.let_time_pass(office, office.now(), (mailbox,))
    service.naming.check_not_moved(office, mailbox, "mailbox")
    return office.store.find(query)


def revive(office: Office, caller: Principal, mailbox: str, ids: Sequence[str]) -> list[Found]:
    """Back into the inbox, with all tries ahead of them again. All or none."""
    authorize(caller, "revive", mailbox)
    revived: list[Found] = []

    def plan() -> Sequence[Write]:
        found = _dead(office, mailbox, ids)
        revived[:] = [Found(f.message, moves.revive(f.delivery)) for f in found]
        return [Move(f.delivery, after.delivery, "revive") for f, after in zip(found, revived, strict=True)]

    office.store.commit(plan)
    return revived


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
        memory = {"id": letter.id, "digest": digest(letter), "at": now.isoformat(), "way": way_of(letter)}
        memories[FORGOTTEN, letter.id] = memory
        # One letter's id may be another's key: what is remembered already stays.
        memories.setdefault((SPENT, spent_key(letter.sender, letter.key or letter.id)), memory)
    new = [Record(kind=at[0], key=at[1], value=v) for at, v in memories.items() if not office.store.records(*at)]
    forgotten: list[Write] = [*(Forget(letter.id) for letter in letters), *(Put(record=record) for record in new)]
    return [*forgotten, *service.taskbook.strike(office, letters)]


def way_of(message: Message) -> dict[str, Any]:
    """What a letter has from the one it answers: needed to tell whether another says the same."""
    return {
        "thread_id": message.thread_id,
        "thread_tag": message.thread_tag,
        "conversation_id": message.conversation_id,
        "hops": message.hops,
        "trace": message.trace,
    }


def _dead(office: Office, mailbox: str, ids: Sequence[str]) -> list[Found]:
    ids = [check_id(id, "id") for id in ids]
    if len(ids) > MOST:
        raise TooLarge(f"{len(ids)} letters, the limit is {MOST}", field="id")
    query = Query(mailbox=mailbox, states=(State.DEAD,), shown_only=True, message_ids=tuple(ids), order="age")
    found = office.store.find(query)
    missing = set(ids) - {f.message.id for f in found}
    if not ids:
        raise Invalid("no letter is named", field="id", hint="give the ids of dead letters")
    if missing:
        service.naming.check_not_moved(office, mailbox, "mailbox")
        raise UnknownMessage(f"no dead letter {min(missing)!r} in {mailbox!r}", field="id")
    return found


def _is_settled(office: Office, id: str) -> bool:
    everywhere = office.store.find(Query(message_ids=(id,)))
    return all(found.delivery.state in SETTLED for found in everywhere)
