"""Taking a letter back, while nobody has begun to work on it: from all its recipients, or from none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import IllegalMove, UnknownMessage
from ..model import delivery as moves
from ..model.delivery import UNSENT, State
from ..model.names import check_id
from ..model.query import Query
from ..store.base import Move
from .authorize import authorize
from .naming import check_not_moved, is_sent_by
from .taskbook import has_moved, opened_by, take_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..store.base import Write
    from .authorize import Principal
    from .office import Office

_NAMED = 3  # so many holders are named in a refusal


def unsend(office: Office, caller: Principal, mailbox: str, id: str) -> Message:
    """Take a letter back. It is dead everywhere with the reason "unsent", and nobody can revive it; who had not
    looked at it never sees it. A task that it opened is canceled. Unsending twice is the same as once.
    """
    authorize(caller, "unsend", mailbox)
    check_not_moved(office, mailbox, "mailbox")
    letter = office.store.get((check_id(id, "id"),)).get(id)
    if letter is None or not is_sent_by(office, letter.message, mailbox):
        raise UnknownMessage(f"no letter {id!r} was sent by {mailbox!r}", field="id")
    now = office.now().wall

    def plan() -> Sequence[Write]:
        found = [f.delivery for f in office.store.find(Query(message_ids=(id,), order="age"))]
        if all(_is_unsent(delivery) for delivery in found):
            return []
        _check_untouched(found)
        _check_task(office, letter.message)
        seen = any(delivery.kind == "to" and delivery.read_at is not None for delivery in found)
        taken_back = [Move(delivery, moves.unsend(delivery, now), "unsend") for delivery in found]
        return [*taken_back, *take_back(office, letter.message, now, seen=seen)]

    office.store.commit(plan)
    return letter.message


def _is_unsent(delivery: Delivery) -> bool:
    return delivery.state is State.DEAD and delivery.reason == UNSENT


def _check_untouched(deliveries: Sequence[Delivery]) -> None:
    """Refuse, and say who has it, once somebody has claimed or settled it. A claim that was given back as if it
    had never been does not count; a failed try does, but not one to bring it to another system.
    """
    taken = [d for d in deliveries if d.state not in {State.QUEUED, State.UNREAD} or _was_tried(d)]
    if taken:
        told = [f"{d.mailbox} ({_what_happened(d)})" for d in taken[:_NAMED]]
        more = f" and {len(taken) - _NAMED} more" if len(taken) > _NAMED else ""
        raise IllegalMove(f"too late to unsend: {', '.join(told)}{more}", field="id", hint="send a correction")


def _check_task(office: Office, message: Message) -> None:
    """Refuse once the receiver has taken the task on, which it may without settling the letter; and a step of a
    task, by which the other party goes.
    """
    task = opened_by(office, message)
    if task is not None and task.is_active:
        told = f"{task.receiver} has taken the task on"
        raise IllegalMove(f"too late to unsend: {told}", field="id", hint="cancel the task")
    if has_moved(office, message):
        raise IllegalMove("a step of a task cannot be taken back", field="id", hint="send a correction")


def _was_tried(delivery: Delivery) -> bool:
    return delivery.attempts > 0 and delivery.state is not State.QUEUED


def _what_happened(delivery: Delivery) -> str:
    if delivery.has_left and delivery.reason:
        return delivery.reason
    return str(delivery.state) if delivery.state is not State.UNREAD else "tried it before"
