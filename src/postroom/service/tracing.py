"""The life of one letter. A sender sees where its letter is, a recipient its own part, the operator everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import service
from ..errors import UnknownMessage
from ..model.delivery import State
from ..model.message import BOUNCE
from ..model.names import check_id
from ..model.query import LetterQuery, Query
from ..model.record import FORGOTTEN
from ..model.trace import Trace, stop_of, with_audit
from .addressing import routed_to, without_it
from .auditing import audit_of
from .authorize import authorize
from .naming import is_sent_by, seen_by
from .reading import check_spelling

if TYPE_CHECKING:
    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.task import Standing
    from ..model.trace import Stop
    from .authorize import Principal
    from .office import Office


def trace(office: Office, caller: Principal, mailbox: str | None, id: str) -> Trace:
    """What became of a letter, as `mailbox` may see it (None: the operator's view)."""
    authorize(caller, "room" if mailbox is None else "trace", mailbox)
    if mailbox is not None:
        check_spelling(office, mailbox)
    letter = office.store.get((check_id(id, "id"),)).get(id)
    if letter is None:
        raise _unknown(office, mailbox, id)
    found = office.store.find(Query(message_ids=(id,), order="age"))
    sees_all = mailbox is None or is_sent_by(office, letter.message, mailbox)
    visible = found if sees_all else [f for f in found if _has_come(f.delivery, mailbox)]
    if not visible and not sees_all:
        raise _unknown(office, mailbox, id)
    ways = [(answer, _way(office, letter.message, answer)) for answer in _answers(office, mailbox, letter.message)]
    task = service.taskbook.opened_by(office, letter.message)
    return Trace(
        message=letter.message if mailbox is None else seen_by(office, letter.message, mailbox),
        number=letter.number,
        stops=tuple(
            _stop(office, f.delivery, task, whole=mailbox in {None, f.delivery.mailbox})
            for f in sorted(visible, key=lambda f: f.delivery.mailbox)
        ),
        replies=tuple(answer for answer, way in ways if way == "reply"),
        relays=tuple(answer for answer, way in ways if way == "relay"),
        bounces=tuple(answer for answer, way in ways if way == BOUNCE),
    )


def _stop(office: Office, delivery: Delivery, task: Standing | None, *, whole: bool) -> Stop:
    """`whole`: for its recipient or the operator."""
    stop = stop_of(delivery, with_holder=whole)
    stop = with_audit(stop, audit_of(office, delivery.mailbox, delivery.message_id), whole=whole)
    if task is not None and task.receiver == delivery.mailbox:
        stop = replace(stop, task=task.state, done_at=task.moved_at if task.is_final else None)
    waits = service.elsewhere.why_it_waits(office, delivery)
    return stop if waits is None else replace(stop, reason=waits)


def _has_come(delivery: Delivery, mailbox: str | None) -> bool:
    """Is it here, and was it not taken back unseen?"""
    return delivery.mailbox == mailbox and delivery.state is not State.QUEUED and not delivery.is_hidden


def _answers(office: Office, mailbox: str | None, message: Message) -> list[Message]:
    """Letters about this one that were sent or received here."""
    thread = office.store.letters(LetterQuery(thread=message.thread, party=mailbox))
    about = [letter.message for letter in thread if letter.message.in_reply_to == message.id]
    return about if mailbox is None else [seen_by(office, answer, mailbox) for answer in about]


def _way(office: Office, message: Message, answer: Message) -> str:
    """A reply goes to somebody who has the letter; a relay to those alone who have not."""
    if answer.kind == BOUNCE:
        return BOUNCE
    targets = [recipient.address for recipient in answer.recipients]
    return "relay" if without_it(office, routed_to(office, message), targets) == targets else "reply"


def _unknown(office: Office, mailbox: str | None, id: str) -> UnknownMessage:
    """What became of it is for the operator; to others, absent and forbidden look the same."""
    hint = None
    if mailbox is None and (gone := office.store.records(FORGOTTEN, id)):
        hint = f"it was deleted at {gone[0].value['at']}"
    elif mailbox is None and id in office.store.quarantined():
        hint = "it was found damaged and set aside"
    return UnknownMessage(f"no letter {id!r}", field="id", hint=hint)
