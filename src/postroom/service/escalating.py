"""Escalation: a question goes to the rung above its asker, and the answer comes back down.

An answer goes to the asker and to every rung the question went past: the letter that climbed names them all, and
answering an escalation answers everyone on it. Unanswered ones climb by the janitor (`climbing`).
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import Invalid, Missing, NotAllowed
from ..model.codec import convert, to_plain
from ..model.delivery import UNSENT
from ..model.escalation import ESCALATION, Escalation
from ..model.hashing import blake2b
from ..model.message import same_name
from ..model.names import POSTMASTER, check_agent, check_id, check_kind, fold, meant
from ..model.query import LetterQuery, Query
from ..model.record import CLOSED_ESCALATION, OPEN_ESCALATION
from ..policy.ladder import rungs_above, time_to_climb, urgency
from .authorize import authorize
from .compose import Draft, pieces
from .given import listed
from .naming import names_of, resident
from .records import find_record, put_record
from .sending import commit_posts, marked, prepare

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..store.base import Post, Write
    from .authorize import Principal
    from .office import Office
    from .sending import Receipt

MARK = "Escalation:"


def escalate(
    office: Office,
    caller: Principal,
    mailbox: str,
    body: Any,
    /,
    *,
    reason: Any,
    ladder: Any = None,
    **more: Any,
) -> Receipt:
    """Ask the rung above. The letter and the record that lets it climb are one commit; a key makes it safe to try
    again.
    """
    authorize(caller, "send", mailbox)
    word = check_kind(reason, "reason")
    above = rungs_above(check_ladder(office, ladder), mailbox)
    above = _heard_from(office, above) if ladder is None else above
    now = office.now().wall
    said = {"subject": "", "priority": None, "id": None, "key": None} | more
    id = office.new_id(mailbox) if said["id"] is None else check_id(said["id"], "id")
    escalation_id = _id(mailbox, said["key"] or id)
    rungs = _from_first(office, mailbox, said["key"] or id, above)
    about = {"escalation_id": escalation_id, "reason": word, "asker": mailbox, "rung": 1}
    own = {
        "sender": mailbox,
        "to": rungs[0],
        "kind": ESCALATION,
        "id": id,
        "subject": marked(MARK, said["subject"] or word),
        "priority": urgency(word) if said["priority"] is None else said["priority"],
        "body": [*pieces(body), {"type": "data", "data": about, "schema": ESCALATION}],
    }
    post = prepare(office, caller, Draft(**(more | own)), now)
    message = post.message
    opened = Escalation(
        id=escalation_id,
        asker=mailbox,
        reason=word,
        subject=message.subject,
        priority=message.priority,
        rungs=rungs,
        letters=(message.id,),
        thread=message.thread,
        opened_at=now,
        since=now,
        due_at=time_to_climb(now, office.limits),
    )

    def plan() -> Sequence[Write]:
        if _is_repeat(office, post):
            return [post]
        return [put_record(OPEN_ESCALATION, opened.id, to_plain(opened), None), post]

    return commit_posts(office, [post], plan)[0]


def escalations(
    office: Office, caller: Principal, mailbox: str | None, *, open_only: bool = True
) -> list[Escalation]:
    """Those this mailbox asked or was asked (None: the operator's view), the oldest first, as they are now."""
    authorize(caller, "room" if mailbox is None else "escalations", mailbox)
    kinds = (OPEN_ESCALATION,) if open_only else (OPEN_ESCALATION, CLOSED_ESCALATION)
    found = [convert(record.value, Escalation) for kind in kinds for record in office.store.records(kind)]
    seen = [as_it_is(office, one) for one in found if mailbox is None or _concerns(one, mailbox)]
    if not seen and mailbox is not None:
        service.reading.check_spelling(office, mailbox)
    shown = [one for one in seen if one.status == "open" or not open_only]
    return sorted(shown, key=lambda one: (one.opened_at, one.id))


def resolve(office: Office, caller: Principal, mailbox: str, id: str) -> Escalation:
    """Close one without an answer, by its asker or by one it was put to; it climbs no further."""
    authorize(caller, "escalations", mailbox)
    closed: list[Escalation] = []

    def plan() -> Sequence[Write]:
        held = find_record(office, OPEN_ESCALATION, check_id(id, "id"))
        found = None if held is None else convert(held.value, Escalation)
        if found is None or not _concerns(found, mailbox):
            service.reading.check_spelling(office, mailbox)
            raise Missing(f"no open escalation {id!r} at {mailbox!r}", field="id")
        now = as_it_is(office, found)
        if now.status == "open":
            now = replace(now, status="resolved", closed_at=office.now().wall, closed_by=mailbox)
        closed[:] = [now]
        return [*close(office, now), *service.standing_down.stand_down(office, now)]

    office.store.commit(plan)
    return closed[0]


def close(office: Office, closed: Escalation) -> list[Write]:
    """Out of the way of the janitor, and kept for the audit. Part of a plan."""
    held = find_record(office, OPEN_ESCALATION, closed.id)
    before = find_record(office, CLOSED_ESCALATION, closed.id)
    return [
        put_record(OPEN_ESCALATION, closed.id, None, held),
        put_record(CLOSED_ESCALATION, closed.id, to_plain(closed), before),
    ]


def as_it_is(office: Office, one: Escalation) -> Escalation:
    """The escalation as its letters tell it: answered, if somebody it was put to wrote to the asker since;
    resolved, if the asker took its letter back, or if it is deleted.
    """
    if one.status != "open":
        return one
    first = office.store.get(one.letters[:1]).get(one.letters[0])
    if first is None or _is_unsent(office, one.letters[-1]):
        return replace(one, status="resolved", closed_at=office.now().wall, closed_by=one.asker)
    asker = names_of(office, one.asker)
    for name in one.reached:
        query = LetterQuery(replies_in=one.thread, sender=_spelt(office, name), after=first.number)
        for letter in office.store.letters(query):
            if any(recipient.address in asker for recipient in letter.message.recipients):
                at = letter.message.created_at
                return replace(one, status="answered", closed_at=at, closed_by=name)
    return one


def _spelt(office: Office, name: str) -> str:
    return office.store.spelling(name) or name


def check_ladder(office: Office, ladder: Any) -> list[str]:
    """The names on a ladder as they are today, the lowest first; without one, those of the settings."""
    names = office.limits.ladder.split(",") if ladder is None else listed(ladder, "ladder")
    said = [check_agent(name.strip() if isinstance(name, str) else name, "ladder") for name in names]
    checked = [resident(office, meant(name, office.limits.human)) for name in said]
    if any(fold(name) == POSTMASTER for name in checked):
        raise Invalid(f"{POSTMASTER!r} takes no mail", field="ladder")
    return list({fold(name): name for name in checked}.values())


def _heard_from(office: Office, above: tuple[str, ...]) -> tuple[str, ...]:
    """Of the room's own ladder: who was never heard from is passed over, as nobody may ever look there. The last
    rung, the human, counts in any case, and so does everyone whom the asker names.
    """
    known = {fold(name) for name in office.store.known()}
    return (*(name for name in above[:-1] if fold(name) in known), above[-1])


def _from_first(office: Office, asker: str, key: str, above: tuple[str, ...]) -> tuple[str, ...]:
    """The rungs from the first that takes mail from the asker. One that was asked already, with this key, stays
    the first, whatever became of it since.
    """
    asked = office.store.sent(asker, key)
    if asked is not None:
        return (asked.message.recipients[0].address, *above[1:])
    refused = list(takewhile(lambda name: not takes(office, asker, name), above))
    return above[len(refused) :] or above


def takes(office: Office, asker: str, name: str) -> bool:
    """Does the guard of this rung let the asker in?"""
    try:
        service.addressing.check_guard_at(office, asker, name)
    except NotAllowed:
        return False
    return True


def _is_unsent(office: Office, id: str) -> bool:
    found = office.store.find(Query(message_ids=(id,)))
    return bool(found) and all(f.delivery.reason == UNSENT for f in found)


def _concerns(one: Escalation, mailbox: str) -> bool:
    return any(same_name(mailbox, name) for name in (one.asker, *one.reached))


def _id(asker: str, key: Any) -> str:
    """The same for the same letter sent again, whether it has a key or the id is its key."""
    if not isinstance(key, str):
        raise Invalid(f"must be text, not {type(key).__name__}", field="key")
    return "ESC-" + blake2b(f"{asker} {key}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def _is_repeat(office: Office, post: Post) -> bool:
    message = post.message
    return not post.deliveries or office.store.sent(message.sender, message.key or message.id) is not None


def span(since: datetime, now: datetime) -> str:
    """How long it has waited, as people say it."""
    minutes = max(int((now - since).total_seconds() // 60), 0)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min"
