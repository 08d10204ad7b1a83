"""Escalation: a question goes up a ladder of agents until one answers, and the answer comes back down.

A ladder is a list of names, the lowest first; its last rung is the human. `escalate` asks the rung above the
asker; an unanswered question climbs one rung when its time is up, moved by the janitor (`climb_overdue`). An
answer goes to the asker and to every rung the question went past, because the letter that climbed names them all.
When the question is closed, it leaves the inboxes of the rungs above the one that closed it, and they get a
notice.

The letter and the record of the escalation are one commit, so each question climbs once per rung, however many
janitors run at the same time.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from ..errors import Invalid, Missing, NotAllowed
from ..model import delivery
from ..model.codec import blake2b, convert
from ..model.delivery import State, open_delivery
from ..model.message import ESCALATION_UPDATE, Recipient, data, same_name, text
from ..model.names import POSTMASTER, check_agent, check_id, check_kind, fold, meant
from ..model.query import LetterQuery, Query
from ..model.record import CLOSED_ESCALATION, OPEN_ESCALATION
from ..model.task import ESCALATION, Escalation
from ..model.values import as_list, check_limit, passes
from ..policy.routing import after_climb, rungs_above, time_to_climb, urgency
from ..store.protocol import Move, Post, first_sent, known_names, spelt
from . import addressing, inbox
from .compose import LetterFields, as_parts
from .core import change_record, commit, find_record, find_value, put_record, values_of
from .deliveries import notice, taken_back
from .messages import Receipt, commit_posts, prepare_authorised, with_prefix
from .names import current_name, names_of
from .proof import is_person, is_unproven
from .verb import MailboxVerb, verb

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ..model.message import Message, Part
    from ..store.protocol import Write
    from .authorize import Principal
    from .core import Core


MARK = "Escalation:"


@verb("escalate", Receipt, action="send")
class Escalate(LetterFields, kw_only=True):
    """Ask the next agent of your ladder. With a key it is safe to call again: the question is asked once."""

    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None
    reason: Annotated[str, "an open word, such as blocked"]
    ladder: Annotated[list[Any] | None, "agents to ask, the lowest first"] = None

    def run(self, core: Core, principal: Principal) -> Receipt:
        mailbox, word = self.agent_id, check_kind(self.reason, "reason")
        above = rungs_above(check_ladder(core, self.ladder), mailbox)
        above = _seen_here(core, above) if self.ladder is None else above
        now = core.now().wall
        id = core.new_id(mailbox) if self.letter_id is None else check_id(self.letter_id, "id")
        escalation_id = _id(mailbox, self.key or id)
        # A repeat must address the same agent as the first call, else the key would belong to another letter (G3).
        rungs = _from_first(core, mailbox, self.key or id, above)
        about = {"escalation_id": escalation_id, "reason": word, "asker": mailbox, "rung": 1}
        draft = self.drafted(
            to=rungs[0],
            kind=ESCALATION,
            letter_id=id,
            subject=with_prefix(MARK, self.subject or word),
            priority=urgency(word) if self.priority is None else self.priority,
            body=[*as_parts(self.body), {"type": "data", "data": about, "schema": ESCALATION}],
        )
        post = prepare_authorised(core, principal, draft, now)
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
            due_at=time_to_climb(now, core.limits),
        )

        def plan() -> Sequence[Write]:
            # The record of the first call may be closed by now; it must not be opened again.
            if not post.deliveries or first_sent(core.store, mailbox, message.key or message.id) is not None:
                return [post]
            return [put_record(OPEN_ESCALATION, opened.id, opened, None), post]

        return commit_posts(core, [post], plan)[0]


@verb(
    "escalations",
    list[Escalation],
    action="escalations",
    under="escalations",
    many=True,
    writes=False,
    everyone=True,
)
class ListEscalations(MailboxVerb, kw_only=True):
    """Return the questions that were escalated from here or to here, the oldest first, as they are now."""

    open_only: Annotated[bool, "false: also those that are closed"] = True
    limit: Annotated[int | None, "how many at most"] = None

    def run(self, core: Core, _principal: Principal) -> list[Escalation]:
        most = check_limit(self.limit)
        kinds = (OPEN_ESCALATION,) if self.open_only else (OPEN_ESCALATION, CLOSED_ESCALATION)
        found = [one for kind in kinds for one in values_of(core, kind, Escalation).values()]
        seen = [current(core, one) for one in found if not self.agent_id or _concerns(one, self.agent_id)]
        inbox.check_spelling(core, self.mailbox, seen)
        shown = [one for one in seen if one.status == "open" or not self.open_only]
        return sorted(shown, key=lambda one: (one.opened_at, one.id))[:most]


@verb("resolve", Escalation, under="escalation", action="escalations", old_names={"escalation_id": "id"})
class Resolve(MailboxVerb, kw_only=True):
    """Close a question without an answer: its asker and the agents it reached may do so."""

    id: Annotated[str, "the escalation's id"]

    def run(self, core: Core, _principal: Principal) -> Escalation:
        mailbox, id = self.agent_id, self.id

        def plan() -> tuple[Sequence[Write], Escalation]:
            found = find_value(core, OPEN_ESCALATION, check_id(id, "id"), Escalation)
            if found is None or not _concerns(found, mailbox):
                inbox.check_spelling(core, mailbox)
                raise Missing(f"no open escalation {id!r} at {mailbox!r}", field="id")
            now = current(core, found)
            if now.status == "open":
                now = replace(now, status="resolved", closed_at=core.now().wall, closed_by=mailbox)
            return close(core, now), now

        return commit(core, plan)


def close(core: Core, closed: Escalation) -> list[Write]:
    """Return the writes that close an escalation everywhere. Belongs inside a plan."""
    held = find_record(core, OPEN_ESCALATION, closed.id)
    before = find_record(core, CLOSED_ESCALATION, closed.id)
    return [
        put_record(OPEN_ESCALATION, closed.id, None, held),
        put_record(CLOSED_ESCALATION, closed.id, closed, before),
        *acknowledge_above(core, closed),
    ]


def current(core: Core, one: Escalation) -> Escalation:
    """Return the escalation with the status that its letters show.

    It is answered if an agent that it reached replied to the asker, and resolved if its letter was unsent or
    deleted. Other letters of the same thread may answer another question.
    """
    if one.status != "open":
        return one
    first = core.store.get(one.letters[:1]).get(one.letters[0])
    # Its asker took it back, or it was deleted: nobody can answer it any more.
    if first is None or taken_back(core, one.letters[-1:]):
        return replace(one, status="resolved", closed_at=core.now().wall, closed_by=one.asker)
    asker = names_of(core, one.asker)
    # Everyone that it reached, not only the present rung: an agent below may still answer.
    for name in one.reached:
        for letter in _replies(core, one, name, after=first.number):
            is_to_asker = any(recipient.address in asker for recipient in letter.recipients)
            if is_to_asker and not taken_back(core, (letter.id,)):
                return replace(one, status="answered", closed_at=letter.created_at, closed_by=name)
    return one


def _replies(core: Core, one: Escalation, name: str, *, after: int = 0) -> Iterator[Message]:
    """Yield what an agent wrote in reply to this question, or to a letter about it."""
    elsewhere: set[str] = set()
    query = LetterQuery(replies_in=one.thread, sender=spelt(core.store, name), after=after)
    for letter in core.store.letters(query):
        # Whoever wrote it unproven: only the person answers for the person (G12).
        if not is_unproven(core, letter.message) and _leads_to(core, letter.message, one, elsewhere):
            yield letter.message


def _leads_to(core: Core, letter: Message, one: Escalation, elsewhere: set[str]) -> bool:
    """Return whether the chain of replies above a letter reaches this question, and no other one before.

    `elsewhere` collects the ids of chains that do not, so that a long thread is walked once.
    """
    passed: set[str] = set()
    above = letter.in_reply_to
    while above is not None and above not in one.letters:
        found = core.store.get([above]).get(above)
        # Other programs may write a chain that is a circle.
        if found is None or found.message.kind == ESCALATION or above in passed | elsewhere:
            elsewhere |= passed
            return False
        passed.add(above)
        above = found.message.in_reply_to
    return above is not None


def check_ladder(core: Core, ladder: Any) -> list[str]:
    """Return the current names of a ladder, the lowest first; without one, of the ladder of the settings."""
    names = core.limits.ladder.split(",") if ladder is None else as_list(ladder, "ladder")
    agents = [check_agent(name.strip() if isinstance(name, str) else name, "ladder") for name in names]
    checked = [current_name(core, meant(name, core.limits.human)) for name in agents]
    if any(fold(name) == POSTMASTER for name in checked):
        raise Invalid(f"{POSTMASTER!r} takes no mail", field="ladder")
    return list({fold(name): name for name in checked}.values())


def _seen_here(core: Core, above: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rungs of the room's own ladder without agents that were never seen here.

    Nobody may ever read mail there. The last rung, the human, always stays. A ladder that the asker names is used
    as it is.
    """
    known = {fold(name) for name in known_names(core.store)}
    return (*(name for name in above[:-1] if fold(name) in known), above[-1])


def _from_first(core: Core, asker: str, key: str, above: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rungs from the first one that accepts mail from the asker.

    On a repeat with the same key, the agent that was asked first stays the first.
    """
    sent = first_sent(core.store, asker, key)
    # Otherwise a retry would ask another agent, and the same key would have two letters (G3).
    if sent is not None:
        return (sent.message.recipients[0].address, *above[1:])
    refused = list(takewhile(lambda name: not accepts(core, asker, name), above))
    return above[len(refused) :] or above


def accepts(core: Core, asker: str, name: str) -> bool:
    """Return whether the allow list of this rung accepts the asker."""
    return passes(NotAllowed, addressing.check_guard_at, core, asker, name)


def _concerns(one: Escalation, mailbox: str) -> bool:
    return any(same_name(mailbox, name) for name in (one.asker, *one.reached))


def _id(asker: str, key: Any) -> str:
    """Return the escalation's id; a repeat of the letter, by its key or id, gets the same."""
    if not isinstance(key, str):
        raise Invalid(f"must be text, not {type(key).__name__}", field="key")
    return "ESC-" + blake2b(f"{asker} {key}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def span(since: datetime, now: datetime) -> str:
    """Return the time since then for people to read, such as `2 h 5 min`."""
    minutes = max(int((now - since).total_seconds() // 60), 0)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min"


# -- climbing, by the janitor


def climb_overdue(core: Core, now: datetime, *, most: int | None = None) -> int:
    """Close answered escalations, let overdue ones climb, and return how many climbed.

    With `most`, at most so many that are overdue, and no others.
    """
    # Without `most`, also those that were answered: somebody has to close them.
    waiting = values_of(core, OPEN_ESCALATION, Escalation).values()
    ready = [
        one.id for one in waiting if _is_due(one, now) or (most is None and current(core, one).status != "open")
    ]
    return sum(_close_or_climb(core, id, now) for id in ready[:most])


def _is_due(one: Escalation, now: datetime) -> bool:
    return one.due_at is not None and one.due_at <= now


def forget_closed(core: Core, now: datetime) -> None:
    """Delete closed escalations that are older than settled mail may be."""
    if core.limits.retain_for == 0:
        return
    cutoff = now - timedelta(seconds=core.limits.retain_for)
    for one in values_of(core, CLOSED_ESCALATION, Escalation).values():
        if one.closed_at is not None and one.closed_at < cutoff:
            change_record(core, CLOSED_ESCALATION, one.id, Escalation, lambda _: None)


def letters_of_open(core: Core) -> list[str]:
    """Return the ids of letters of open escalations."""
    return [id for one in values_of(core, OPEN_ESCALATION, Escalation).values() for id in one.letters]


def _close_or_climb(core: Core, id: str, now: datetime) -> bool:
    def plan() -> tuple[Sequence[Write], bool]:
        held = find_record(core, OPEN_ESCALATION, id)
        if held is None:  # another janitor was quicker
            return [], False
        one = current(core, convert(held.value, Escalation))
        if one.status != "open":
            return close(core, one), False
        if not _is_due(one, now):  # another janitor let it climb
            return [], False
        after, letters = _climb(core, one, now)
        return [put_record(OPEN_ESCALATION, id, after, held), *letters], after.rung > one.rung

    return commit(core, plan)


def _climb(core: Core, one: Escalation, now: datetime) -> tuple[Escalation, list[Write]]:
    """Return the escalation one rung up, past rungs that refuse the asker, and its letters.

    At the top it stays; the asker gets one notice of that.
    """
    waited = f"unanswered by {one.rungs[one.rung]} for {span(one.since, now)}"
    place = next_rung(core, one)
    # No further timer: it would climb from the top again and again.
    if place is None:
        stays = replace(one, due_at=None)
        return stays, [_update(core, stays, f"{one.id} is {waited}. Nobody stands above.", now)]
    letter = _letter(core, one, place, f"{one.id} was {waited}.", now)
    after = replace(
        one,
        rung=place,
        letters=(*one.letters, letter.id),
        priority=letter.priority,
        since=now,
        due_at=time_to_climb(now, core.limits),
    )
    words = f"{one.id} was {waited}. It is with {one.rungs[place]} now."
    return after, [_post(letter, now), _update(core, after, words, now)]


def next_rung(core: Core, one: Escalation) -> int | None:
    """Return the index of the rung that is asked next; None at the top."""
    for place in range(one.rung + 1, len(one.rungs)):
        if accepts(core, one.asker, one.rungs[place]):
            return place
    return None


def _letter(core: Core, one: Escalation, place: int, note: str, now: datetime) -> Message:
    """Return the question as a letter to the next rung; the rungs below get a copy, and so the answer."""
    first = core.store.get(one.letters[:1])[one.letters[0]].message
    below = [name for name in one.rungs[:place] if accepts(core, one.asker, name)]
    recipients = (Recipient(one.rungs[place]), *(Recipient(name, "cc") for name in below))
    # each once, the next rung as `to`
    kinds = {spelt(core.store, r.address): r.kind for r in reversed(recipients)}
    return replace(
        first,
        id=core.new_id(one.asker),
        recipients=tuple(Recipient(name, kind) for name, kind in reversed(kinds.items())),
        created_at=now,
        parts=(text(note), *(_with_rung(part, place) for part in first.parts)),
        priority=after_climb(first.priority),
        # The question climbs because nobody answered; it must not expire on its way up.
        expires_at=None,
        thread_id=one.thread,
        in_reply_to=one.letters[-1],
        hops=core.limits.hops,
        trace=(one.asker,),
        key=None,
    )


def _with_rung(part: Part, place: int) -> Part:
    """Return the data part of the escalation with its new rung, and any other part as it is."""
    if part.type != "data" or part.get("schema") != ESCALATION:
        return part
    return data(part["data"] | {"rung": place + 1}, schema=ESCALATION)


def _update(core: Core, one: Escalation, words: str, now: datetime) -> Post:
    """Return a notice to the asker, from the postmaster."""
    facts = {"escalation_id": one.id, "rung": one.rung + 1, "waits_for": one.waits_for}
    return _notice(core, one, one.asker, words, facts, now)


def _notice(core: Core, one: Escalation, to: str, words: str, facts: dict[str, Any], now: datetime) -> Post:
    where = {"thread_id": one.thread, "in_reply_to": one.letters[-1]}
    return notice(core, ESCALATION_UPDATE, to, one.subject, words, facts, now, schema=ESCALATION, **where)


def _post(message: Message, now: datetime) -> Post:
    return Post(
        message=message,
        deliveries=tuple(open_delivery(message, r.address, r.kind, now) for r in message.recipients),
    )


# -- closing


def acknowledge_above(core: Core, closed: Escalation) -> list[Write]:
    """Return the writes that acknowledge the question at every rung above the one that closed it. Part of a plan.

    An answer from below goes to a letter that does not name the rungs above; without this the question would stay
    in their inboxes as if it were open. A claimed letter is left to its holder, and a person's to the person, in
    whose list it says who closed it (G12). Each rung gets a notice, unless it received the answer itself.
    """
    writes: list[Write] = []
    for name in _above(closed):
        mailbox = spelt(core.store, name)
        query = Query(mailbox=mailbox, message_ids=closed.letters, states=(State.UNREAD,), order="age")
        waiting = [found.delivery for found in core.store.find(query)]
        now = core.now().wall
        if not is_person(core, mailbox):
            writes += [Move(one, delivery.ack(one, now, archive=True), "ack") for one in waiting]
        if waiting and not _has_the_answer(core, closed, mailbox):
            words = f"{closed.id} was {closed.status} by {closed.closed_by}. It no longer waits for you."
            facts = {"escalation_id": closed.id, "status": closed.status, "closed_by": closed.closed_by}
            writes.append(_notice(core, closed, mailbox, words, facts, now))
    return writes


def _above(closed: Escalation) -> Sequence[str]:
    """Return the rungs above the one that closed it; all of them if that was the asker."""
    places = [place for place, name in enumerate(closed.reached) if same_name(name, closed.closed_by or "")]
    return closed.reached[places[0] + 1 if places else 0 :]


def _has_the_answer(core: Core, closed: Escalation, mailbox: str) -> bool:
    if closed.status != "answered" or closed.closed_by is None:
        return False
    answers = _replies(core, closed, closed.closed_by)
    return any(same_name(recipient.address, mailbox) for answer in answers for recipient in answer.recipients)
