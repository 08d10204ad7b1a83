"""From addresses to mailboxes, inside the commit of a letter: whoever can do it (`any:python`), and the guards.

It looks and the letter is written with nobody in between, so two senders do not both choose the same idle agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from msgspec.structs import replace

from ..errors import NotAllowed, QuotaFull, UnknownAgent
from ..model.delivery import State
from ..model.guard import guard_from
from ..model.message import Message, Recipient, is_any
from ..model.names import ANY, fold
from ..model.query import Query
from ..model.record import CARD, GUARD
from ..policy.admission import check_guard
from ..policy.presence import is_routable
from ..policy.routing import Candidate, least_busy
from ..store.base import Post
from .directory import agent_of
from .office import Office

FEW = 8  # up to so many recipients are looked up one by one


def addressed(office: Office, post: Post, chosen: Counter[str]) -> Post:
    """The letter as it may be written, or a refusal. `chosen`: how many of the same commit each agent got."""
    if any(is_any(delivery.mailbox) for delivery in post.deliveries):
        post = _routed(office, post, chosen)
    _check_guards(office, post)
    return post


def routed_to(office: Office, message: Message) -> Message:
    """The letter, with those who got it in the place of `any:` addresses."""
    if not any(is_any(recipient.address) for recipient in message.recipients):
        return message
    named = tuple(r for r in message.recipients if not is_any(r.address))
    known = {fold(recipient.address) for recipient in named}
    found = office.store.find(Query(message_ids=(message.id,), order="age"))
    others = (
        Recipient(f.delivery.mailbox, f.delivery.kind) for f in found if fold(f.delivery.mailbox) not in known
    )
    return replace(message, recipients=(*named, *(other for other in others if other.kind != "bcc")))


def _check_guards(office: Office, post: Post) -> None:
    """Guards stand only where somebody set one, so mostly there is nothing to read."""
    mailboxes = [*(delivery.mailbox for delivery in post.deliveries), *post.copies]
    if len(mailboxes) > FEW:
        guards = set(office.store.keys(GUARD))
        mailboxes = [name for name in mailboxes if name in guards] if guards else []
    for mailbox in mailboxes:
        check_guard_at(office, post.message.sender, mailbox)


def check_guard_at(office: Office, sender: str, mailbox: str) -> None:
    """Pass, or NotAllowed, as the guard at this door says."""
    for guard in office.store.records(GUARD, mailbox):
        check_guard(sender, mailbox, guard_from(guard.value))


def _routed(office: Office, post: Post, chosen: Counter[str]) -> Post:
    """The letter with an agent's mailbox in the place of each `any:`. Never one that has it already."""
    message = post.message
    taken = {fold(name) for name in (message.sender, *message.trace, *post.copies)}
    taken |= {fold(delivery.mailbox) for delivery in post.deliveries}
    deliveries = []
    for delivery in post.deliveries:
        mailbox = delivery.mailbox
        if is_any(mailbox):
            mailbox = _choose(office, post, mailbox.removeprefix(ANY).split(","), taken, chosen)
            taken.add(fold(mailbox))
            chosen[mailbox] += 1
        deliveries.append(replace(delivery, mailbox=mailbox))
    return replace(post, deliveries=tuple(deliveries))


def _choose(
    office: Office, post: Post, wanted: Collection[str], taken: Collection[str], chosen: Counter[str]
) -> str:
    """The least busy agent that can do all of this and takes the letter."""
    refusal: NotAllowed | QuotaFull | None = None
    for candidate in least_busy(_candidates(office, wanted, taken, chosen)):
        try:
            check_guard_at(office, post.message.sender, candidate.name)
        except NotAllowed as refused:
            refusal = refusal or refused
            continue
        if post.quota is None or candidate.letters < post.quota:
            return candidate.name
        refusal = QuotaFull(f"the inbox of {candidate.name!r} is full, and so is everybody's", field="to")
    if refusal is not None:
        raise refusal
    skill = " and ".join(wanted)
    raise UnknownAgent(
        f"nobody else here can do {skill!a} now", field="to", hint="register agents with this capability"
    )


def _candidates(
    office: Office, wanted: Collection[str], taken: Collection[str], chosen: Counter[str]
) -> list[Candidate]:
    moment = office.now()
    agents = [agent_of(office, record, moment) for record in office.store.records(CARD)]
    able = [a for a in agents if set(wanted) <= set(a.card.capabilities) and fold(a.card.id) not in taken]
    return [
        Candidate(
            name=agent.card.id,
            tasks=len(agent.presence.current_tasks),
            most_tasks=agent.card.max_concurrent_tasks,
            letters=_open_letters(office, agent.card.id) + chosen[agent.card.id],
            active_at=agent.presence.last_active_at,
        )
        for agent in able
        if is_routable(agent.presence)
    ]


def _open_letters(office: Office, mailbox: str) -> int:
    query = Query(mailbox=mailbox, states=(State.UNREAD, State.CLAIMED))
    return sum(office.store.count(query).values())
