"""Unanswered escalations climb, once per rung, however many janitors look at the same time."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import StaleRevision
from ..model.codec import convert, to_plain
from ..model.delivery import open_delivery
from ..model.escalation import ESCALATION, Escalation
from ..model.message import ESCALATION_UPDATE, Recipient
from ..model.parts import data, text
from ..model.record import CLOSED_ESCALATION, OPEN_ESCALATION
from ..policy.ladder import after_climb, time_to_climb
from ..store.base import Post
from .escalating import as_it_is, close, span, takes
from .notices import notice
from .records import find_record, put_record
from .standing_down import stand_down

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.message import Message
    from ..model.parts import Part
    from ..store.base import Write
    from .office import Office


def climb_overdue(office: Office, now: datetime) -> int:
    """Close what is answered, let climb what is overdue. Says how many climbed."""
    waiting = [convert(record.value, Escalation) for record in office.store.records(OPEN_ESCALATION)]
    ripe = [one.id for one in waiting if _is_due(one, now) or as_it_is(office, one).status != "open"]
    return sum(_look_after(office, id, now) for id in ripe)


def _is_due(one: Escalation, now: datetime) -> bool:
    return one.due_at is not None and one.due_at <= now


def forget_closed(office: Office, now: datetime) -> None:
    """Closed escalations are kept as long as settled mail is."""
    if office.limits.retain_for == 0:
        return
    cutoff = now - timedelta(seconds=office.limits.retain_for)
    for record in office.store.records(CLOSED_ESCALATION):
        closed_at = convert(record.value, Escalation).closed_at
        if closed_at is not None and closed_at < cutoff:
            with suppress(StaleRevision):  # another janitor was quicker
                office.store.commit([put_record(CLOSED_ESCALATION, record.key, None, record)])


def letters_of_open(office: Office) -> list[str]:
    """The letters of questions that wait for an answer."""
    waiting = (convert(record.value, Escalation) for record in office.store.records(OPEN_ESCALATION))
    return [id for one in waiting for id in one.letters]


def _look_after(office: Office, id: str, now: datetime) -> bool:
    climbed = False

    def plan() -> Sequence[Write]:
        nonlocal climbed
        climbed = False
        held = find_record(office, OPEN_ESCALATION, id)
        if held is None:  # another janitor was quicker
            return []
        one = as_it_is(office, convert(held.value, Escalation))
        if one.status != "open":
            return [*close(office, one), *stand_down(office, one)]
        if not _is_due(one, now):  # likewise
            return []
        after, letters = _climb(office, one, now)
        climbed = after.rung > one.rung
        return [put_record(OPEN_ESCALATION, id, to_plain(after), held), *letters]

    office.store.commit(plan)
    return climbed


def _climb(office: Office, one: Escalation, now: datetime) -> tuple[Escalation, list[Write]]:
    """One rung up, past those who take no mail from the asker. At the top it stays, and that is told once."""
    waited = f"unanswered by {one.rungs[one.rung]} for {span(one.since, now)}"
    place = next_rung(office, one)
    if place is None:
        stays = replace(one, due_at=None)
        return stays, [_update(office, stays, f"{one.id} is {waited}. Nobody stands above.", now)]
    letter = _letter(office, one, place, f"{one.id} was {waited}.", now)
    after = replace(
        one,
        rung=place,
        letters=(*one.letters, letter.id),
        priority=letter.priority,
        since=now,
        due_at=time_to_climb(now, office.limits),
    )
    told = f"{one.id} was {waited}. It is with {one.rungs[place]} now."
    return after, [_post(letter, now), _update(office, after, told, now)]


def next_rung(office: Office, one: Escalation) -> int | None:
    """The place of who is asked next, when nobody answers; None at the top."""
    for place in range(one.rung + 1, len(one.rungs)):
        if takes(office, one.asker, one.rungs[place]):
            return place
    return None


def _letter(office: Office, one: Escalation, place: int, note: str, now: datetime) -> Message:
    """The question once more, from its asker, to the next rung; those below get a copy, and so the answer."""
    first = office.store.get(one.letters[:1])[one.letters[0]].message
    below = [name for name in one.rungs[:place] if takes(office, one.asker, name)]
    recipients = (Recipient(one.rungs[place]), *(Recipient(name, "cc") for name in below))
    spelt = {_spelt(office, r.address): r.kind for r in reversed(recipients)}  # each once, the next rung as `to`
    return replace(
        first,
        id=office.new_id(one.asker),
        recipients=tuple(Recipient(name, kind) for name, kind in reversed(spelt.items())),
        created_at=now,
        parts=(text(note), *(_told(part, place) for part in first.parts)),
        priority=after_climb(first.priority),
        expires_at=None,
        thread_id=one.thread,
        in_reply_to=one.letters[-1],
        hops=office.limits.hops,
        trace=(one.asker,),
        key=None,
    )


def _told(part: Part, place: int) -> Part:
    """The part that names the escalation, with its new rung."""
    if part.type != "data" or part.get("schema") != ESCALATION:
        return part
    return data(part["data"] | {"rung": place + 1}, schema=ESCALATION)


def _spelt(office: Office, name: str) -> str:
    """As the mailbox is spelt here: a climb is nobody's typing error."""
    return office.store.spelling(name) or name


def _update(office: Office, one: Escalation, words: str, now: datetime) -> Post:
    """A notice of the house to the asker."""
    facts = {"escalation_id": one.id, "rung": one.rung + 1, "waits_for": one.waits_for}
    where = {"thread_id": one.thread, "in_reply_to": one.letters[-1]}
    return notice(office, ESCALATION_UPDATE, one.asker, one.subject, words, facts, now, schema=ESCALATION, **where)


def _post(message: Message, now: datetime) -> Post:
    return Post(
        message=message,
        deliveries=tuple(open_delivery(message, r.address, r.kind, now) for r in message.recipients),
    )
