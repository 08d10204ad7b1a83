"""An escalation that is over: those it had climbed to need not look at it any more, and are told so.

Whoever answers late, from below, answers the letter it got, and that letter does not name those above. Without
this the question would stay in their mail as if it were open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import delivery as moves
from ..model.delivery import State
from ..model.escalation import ESCALATION
from ..model.message import ESCALATION_UPDATE, same_name
from ..model.query import LetterQuery, Query
from ..store.base import Move
from .notices import notice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.escalation import Escalation
    from ..store.base import Post, Write
    from .office import Office


def stand_down(office: Office, closed: Escalation) -> list[Write]:
    """Part of the plan that closes it: the question is done with at every rung above, unless somebody there has
    claimed it, and each is told who was quicker. Who was on the answer knows already.
    """
    writes: list[Write] = []
    for name in _above(closed):
        mailbox = office.store.spelling(name) or name
        query = Query(mailbox=mailbox, message_ids=closed.letters, states=(State.UNREAD,), order="age")
        waiting = [found.delivery for found in office.store.find(query)]
        now = office.now().wall
        writes += [Move(one, moves.ack(one, now, archive=True), "ack") for one in waiting]
        if waiting and not _has_the_answer(office, closed, mailbox):
            writes.append(_told(office, closed, mailbox))
    return writes


def _above(closed: Escalation) -> Sequence[str]:
    """The rungs above the one that closed it; all of them, when that was the asker."""
    places = [place for place, name in enumerate(closed.reached) if same_name(name, closed.closed_by or "")]
    return closed.reached[places[0] + 1 if places else 0 :]


def _has_the_answer(office: Office, closed: Escalation, mailbox: str) -> bool:
    if closed.status != "answered" or closed.closed_by is None:
        return False
    sender = office.store.spelling(closed.closed_by) or closed.closed_by
    answers = [x.message for x in office.store.letters(LetterQuery(replies_in=closed.thread, sender=sender))]
    return any(same_name(recipient.address, mailbox) for answer in answers for recipient in answer.recipients)


def _told(office: Office, closed: Escalation, mailbox: str) -> Post:
    words = f"{closed.id} was {closed.status} by {closed.closed_by}. It no longer waits for you."
    facts = {"escalation_id": closed.id, "status": closed.status, "closed_by": closed.closed_by}
    where = {"thread_id": closed.thread, "in_reply_to": closed.letters[-1]}
    now = office.now().wall
    return notice(
        office, ESCALATION_UPDATE, mailbox, closed.subject, words, facts, now, schema=ESCALATION, **where
    )
