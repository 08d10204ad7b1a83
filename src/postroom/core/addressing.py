"""From addresses to mailboxes, inside the commit of a letter: whoever can do it (`any:python`), and the guards.

It looks and the letter is written with nobody in between, so two senders do not both choose the same idle agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import NotAllowed, QuotaFull, UnknownAgent
from ..model.agent import EVERYONE, OPEN_DOOR, Card, guard_from
from ..model.codec import convert
from ..model.message import Recipient, is_any, same_name
from ..model.names import ANY, AT, at_system, fold, system_of
from ..model.query import Query
from ..model.record import CARD, GUARD
from ..policy import routing
from ..policy.admission import check_guard, without_letter
from ..store.protocol import FEW, check_space
from . import agents as core_agents
from . import outbox
from .names import is_sent_by, moved, names_of, resident

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..model.agent import Guard
    from ..model.message import Message
    from ..store.protocol import Post
    from .core import Core


def addressed(core: Core, post: Post, *, ask: bool = True) -> Post:
    """The letter as it may be written, or a refusal. With `ask` off it passes every guard."""
    gone = _check_guards(core, post, ask=ask)
    if gone:  # a note names the door of today: there is no second one to follow
        post = _sent_on(post, gone)
        _check_guards(core, post, ask=ask)
    post = outbox.bound(core, post)
    return _routed(core, post) if post.routes else post


def routed_by(value: Post, written: Post) -> tuple[str, ...]:
    """Who was chosen for the `any:` addresses of a letter."""
    named = {delivery.mailbox for delivery in value.deliveries}
    chosen = [d.mailbox for d in written.deliveries if d.mailbox not in named]
    return tuple(name for name in chosen if value.routes or AT in name)


def routed_to(core: Core, message: Message) -> Message:
    """The letter, with those who got it in the place of `any:` addresses."""
    if not any(is_any(recipient.address) for recipient in message.recipients):
        return message
    named = tuple(r for r in message.recipients if not is_any(r.address))
    known = {fold(recipient.address) for recipient in named}
    found = core.store.find(Query(message_ids=(message.id,), order="age"))
    others = (
        Recipient(f.delivery.mailbox, f.delivery.kind) for f in found if fold(f.delivery.mailbox) not in known
    )
    return replace(message, recipients=(*named, *(other for other in others if other.kind != "bcc")))


def without_it(core: Core, letter: Message, targets: Sequence[str]) -> list[str]:
    """Those of `targets` who do not have the letter, whatever they were called when it was sent."""
    strangers = without_letter(letter, targets)
    if not strangers or len(strangers) > FEW:
        return strangers
    names = {name: names_of(core, resident(core, name)) for name in strangers}
    return [name for name in strangers if len(without_letter(letter, names[name])) == len(names[name])]


def _check_guards(core: Core, post: Post, *, ask: bool) -> dict[str, str]:
    """Pass, or a refusal. Says which of these names are given up, and for which.

    Guards stand only where somebody set one, so mostly there is nothing to read.
    """
    sender = post.message.sender
    mailboxes = [sender, *(delivery.mailbox for delivery in post.deliveries), *post.copies]
    if len(mailboxes) > FEW:
        guards = set(core.store.keys(GUARD))
        mailboxes = [name for name in mailboxes if name in guards] if guards else []
    gone: dict[str, str] = {}
    for mailbox in mailboxes:
        guard = guard_at(core, mailbox)
        if guard.moved_to is not None:
            gone[mailbox] = guard.moved_to
        elif ask and guard is not OPEN_DOOR:
            _check_guard(core, guard, post.message, mailbox)
    if sender in gone:
        raise moved(sender, gone[sender], "sender")
    return gone


def guard_at(core: Core, mailbox: str) -> Guard:
    found = core.store.records(GUARD, mailbox)
    return guard_from(found[0].value) if found else OPEN_DOOR


def check_guard_at(core: Core, sender: str, name: str) -> None:
    """Pass, or NotAllowed, as the guard at the door of this agent says, wherever that is today."""
    mailbox = resident(core, name)
    _ask(core, guard_at(core, mailbox), sender, mailbox)


def is_open_to(core: Core, message: Message, mailbox: str) -> bool:
    """Pass, or NotAllowed, as the guard of this very mailbox says; who asked takes the answer. Says whether the
    mailbox is open to everybody.
    """
    guard = guard_at(core, mailbox)
    if guard is not OPEN_DOOR:
        _check_guard(core, guard, message, mailbox)
    return guard is OPEN_DOOR


def _check_guard(core: Core, guard: Guard, message: Message, mailbox: str) -> None:
    is_wanted = _is_asked_for(core, message, mailbox)
    _ask(core, replace(guard, allow=(EVERYONE,)) if is_wanted else guard, message.sender, mailbox)


def _is_asked_for(core: Core, message: Message, mailbox: str) -> bool:
    """Does it answer a letter that this very mailbox sent to its sender? Who asks takes the answer."""
    if message.in_reply_to is None:
        return False
    found = core.store.get([message.in_reply_to]).get(message.in_reply_to)
    if found is None or not is_sent_by(core, found.message, mailbox):
        return False
    if AT in message.sender:
        return outbox.was_sent_to(core, found.message.id, message.sender)
    return not without_it(core, found.message, [message.sender])


def _ask(core: Core, guard: Guard, sender: str, mailbox: str) -> None:
    """The guard knows people by the names they had when it was told of them."""
    if not same_name(sender, mailbox):
        check_guard((*names_of(core, sender), *_system_of(sender)), mailbox, guard)


def _system_of(sender: str) -> tuple[str, ...]:
    """A guard may know all of a system by `@system`."""
    return (at_system("", system_of(sender)),) if AT in sender else ()


def _sent_on(post: Post, gone: Mapping[str, str]) -> Post:
    """The letter to the names of today, each once."""
    first = {gone.get(d.mailbox, d.mailbox): d for d in reversed(post.deliveries)}
    deliveries = tuple(replace(d, mailbox=name) for name, d in reversed(first.items()))
    copies = dict.fromkeys(gone.get(name, name) for name in post.copies)
    return replace(post, deliveries=deliveries, copies=tuple(name for name in copies if name not in first))


def _routed(core: Core, post: Post) -> Post:
    """The letter with an agent's mailbox in the place of each `any:`. Never one that has it already."""
    message = post.message
    went = [resident(core, name) for name in message.trace]  # who was renamed since is still the same
    taken = {fold(name) for name in (message.sender, *went, *post.copies)}
    taken |= {fold(delivery.mailbox) for delivery in post.deliveries}
    deliveries = []
    for delivery in post.deliveries:
        mailbox = delivery.mailbox
        if is_any(mailbox):
            mailbox = _choose(core, post, mailbox.removeprefix(ANY).split(","), taken)
            taken.add(fold(mailbox))
        deliveries.append(replace(delivery, mailbox=mailbox))
    return replace(post, deliveries=tuple(deliveries))


def _choose(core: Core, post: Post, wanted: Collection[str], taken: Collection[str]) -> str:
    """The least busy agent that can do all of this and takes the letter."""
    refusal: NotAllowed | QuotaFull | None = None
    sender = post.message.sender
    for candidate in routing.least_busy(_candidates(core, wanted, taken)):
        try:
            check_guard_at(core, sender, candidate.name)
            if post.quota is not None:
                check_space(sender, candidate.name, core.store.waiting(candidate.name, sender), post.quota)
        except NotAllowed as refused:
            refusal = refusal or refused
        except QuotaFull as refused:  # trying again helps: better to hear this
            refusal = refused
        else:
            return candidate.name
    if refusal is not None:
        raise refusal
    raise _nobody(core, wanted, taken)


def _nobody(core: Core, wanted: Collection[str], taken: Collection[str]) -> UnknownAgent:
    """Nobody can, or nobody who can has been heard from lately."""
    skill = " and ".join(wanted)
    cards = [convert(record.value, Card) for record in core.store.records(CARD)]
    away = [card.id for card in cards if _can(card, wanted) and fold(card.id) not in taken]
    if not away:
        hint = "register agents with this capability"
        return UnknownAgent(f"nobody else here can do {skill!a} now", field="to", hint=hint)
    who = ", ".join(away[:FEW])
    return UnknownAgent(f"who can do {skill!a} is offline: {who}", field="to", hint="a heartbeat brings them back")


def _can(card: Card, wanted: Collection[str]) -> bool:
    """Those of other systems, who may be shown here, are chosen there, and not from here."""
    return AT not in card.id and set(wanted) <= set(card.capabilities)


def _candidates(core: Core, wanted: Collection[str], taken: Collection[str]) -> list[routing.Candidate]:
    moment = core.now()
    agents = [core_agents.agent_of(core, record, moment) for record in core.store.records(CARD)]
    able = [agent for agent in agents if _can(agent.card, wanted) and fold(agent.card.id) not in taken]
    return [
        routing.Candidate(
            name=agent.card.id,
            tasks=len(agent.presence.current_tasks),
            most_tasks=agent.card.max_concurrent_tasks,
            letters=core.store.waiting(agent.card.id, agent.card.id)[0],
            active_at=agent.presence.last_active_at,
        )
        for agent in able
        if routing.is_routable(agent.presence)
    ]
