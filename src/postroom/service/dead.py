"""Dead letters, and the notices that tell a sender of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ..errors import UnknownMessage
from ..model import delivery as moves
from ..model.codec import digest
from ..model.delivery import SETTLED, Delivery, State, open_delivery
from ..model.message import BOUNCE, Message, Recipient
from ..model.parts import data, text
from ..model.query import Found, Query
from ..model.record import FORGOTTEN, SPENT, Record, spent_key
from ..store.base import Forget, Move, Post, Put, Write
from .authorize import Principal, authorize
from .office import POSTMASTER, Office


def bounce(office: Office, message: Message, delivery: Delivery, now: datetime) -> list[Write]:
    """The notice to the sender that its letter died here; none for what the house wrote itself."""
    if message.is_automatic:
        return []
    reason = delivery.reason or "no reason given"
    notice = Message(
        id=office.ids.message(),
        sender=POSTMASTER,
        recipients=(Recipient(message.sender),),
        created_at=now,
        kind=BOUNCE,
        subject=f"Undeliverable: {message.subject or message.id}"[:1000],
        parts=(
            text(f"Your letter to {delivery.mailbox} is dead after {delivery.attempts} tries: {reason}"),
            data({"message_id": message.id, "mailbox": delivery.mailbox, "reason": reason}, schema=BOUNCE),
        ),
        scope=message.scope,
        thread_id=message.thread,
        thread_tag=message.thread_tag,
        conversation_id=message.conversation_id,
        in_reply_to=message.id,
        trace=(POSTMASTER,),
    )
    return [Post(message=notice, deliveries=(open_delivery(notice, message.sender, "to", now),))]


def list_dead(office: Office, caller: Principal, mailbox: str, limit: int | None = None) -> list[Found]:
    """Dead letters of a mailbox, the oldest first; `delivery.reason` and `.history` say why."""
    authorize(caller, "dead", mailbox)
    return office.store.find(Query(mailbox=mailbox, states=(State.DEAD,), order="age", limit=limit))


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
        return [write for letter in letters for write in forget(letter, office.now().wall)]

    office.store.commit(plan)
    return purged


def forget(message: Message, now: datetime) -> list[Write]:
    """Delete a letter, and remember that its id and key are spent."""
    memory = {"id": message.id, "digest": digest(message), "at": now.isoformat()}
    spent = spent_key(message.sender, message.key or message.id)
    return [
        Forget(message.id),
        Put(record=Record(kind=FORGOTTEN, key=message.id, value=memory)),
        Put(record=Record(kind=SPENT, key=spent, value=memory)),
    ]


def _dead(office: Office, mailbox: str, ids: Sequence[str]) -> list[Found]:
    found = office.store.find(Query(mailbox=mailbox, states=(State.DEAD,), message_ids=tuple(ids), order="age"))
    missing = set(ids) - {f.message.id for f in found}
    if missing or not ids:
        raise UnknownMessage(f"no dead letter {min(missing, default='')!r} in {mailbox!r}", field="id")
    return found


def _is_settled(office: Office, id: str) -> bool:
    everywhere = office.store.find(Query(message_ids=(id,)))
    return all(found.delivery.state in SETTLED for found in everywhere)
