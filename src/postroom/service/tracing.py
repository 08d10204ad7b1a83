"""The life of one letter. A sender sees where its letter is, a recipient its own part, the operator everything."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UnknownMessage
from ..model.delivery import State
from ..model.message import BOUNCE, Message
from ..model.names import check_id
from ..model.query import Found, LetterQuery, Query
from ..model.record import FORGOTTEN
from ..model.trace import Trace, stop_of
from ..policy.hops import without_letter
from .authorize import Principal, authorize
from .office import Office


def trace(office: Office, caller: Principal, mailbox: str | None, id: str) -> Trace:
    """What became of a letter, as `mailbox` may see it (None: the operator's view)."""
    authorize(caller, "room" if mailbox is None else "trace", mailbox)
    letter = office.store.get((check_id(id, "id"),)).get(id)
    if letter is None:
        raise _unknown(office, mailbox, id)
    found = office.store.find(Query(message_ids=(id,), order="age"))
    visible = _visible(mailbox, letter.message, found)
    if mailbox not in {None, letter.message.sender} and not visible:
        raise _unknown(office, mailbox, id)
    answers = _answers(office, mailbox, letter.message)
    return Trace(
        message=letter.message if mailbox is None else letter.message.seen_by(mailbox),
        number=letter.number,
        stops=tuple(stop_of(f.delivery, with_holder=mailbox in {None, f.delivery.mailbox}) for f in visible),
        replies=tuple(answer for answer in answers if _way(letter.message, answer) == "reply"),
        relays=tuple(answer for answer in answers if _way(letter.message, answer) == "relay"),
        bounces=tuple(answer for answer in answers if _way(letter.message, answer) == BOUNCE),
    )


def _visible(mailbox: str | None, message: Message, found: Sequence[Found]) -> list[Found]:
    """Its sender sees all of its letter's deliveries, a recipient its own once it has come."""
    if mailbox in {None, message.sender}:
        return sorted(found, key=lambda f: f.delivery.mailbox)
    return [f for f in found if f.delivery.mailbox == mailbox and f.delivery.state is not State.QUEUED]


def _answers(office: Office, mailbox: str | None, message: Message) -> list[Message]:
    """Letters about this one that were sent or received here."""
    thread = office.store.letters(LetterQuery(thread=message.thread, party=mailbox))
    about = [letter.message for letter in thread if letter.message.in_reply_to == message.id]
    return about if mailbox is None else [answer.seen_by(mailbox) for answer in about]


def _way(message: Message, answer: Message) -> str:
    """A reply goes to somebody who has the letter; a relay to those alone who have not."""
    if answer.kind == BOUNCE:
        return BOUNCE
    targets = [recipient.address for recipient in answer.recipients]
    return "relay" if without_letter(message, targets) == targets else "reply"


def _unknown(office: Office, mailbox: str | None, id: str) -> UnknownMessage:
    """What became of it is for the operator; to others, absent and forbidden look the same."""
    hint = None
    if mailbox is None and (gone := office.store.records(FORGOTTEN, id)):
        hint = f"it was deleted at {gone[0].value['at']}"
    elif mailbox is None and id in office.store.quarantined():
        hint = "it was found damaged and set aside"
    return UnknownMessage(f"no letter {id!r}", field="id", hint=hint)
