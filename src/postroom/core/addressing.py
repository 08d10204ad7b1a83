"""Resolution of addresses to mailboxes: guards, former names, agents for `any:SKILLS`.

`resolve_post` runs inside the commit of a letter. No other writer comes between its reads and the write, so two
senders cannot choose the same idle agent, and a guard that was just set is respected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..errors import NotAllowed, QuotaFull, UnknownAgent
from ..model.agent import EVERYONE, NO_GUARD, Card, guard_from
from ..model.codec import convert
from ..model.message import Recipient, is_any, same_name
from ..model.names import ANY, AT, at_system, fold, system_of
from ..model.query import Query
from ..model.record import CARD, GUARD
from ..policy.admission import check_guard, without_letter
from ..store.protocol import FEW, check_space, record_keys, waiting_letters
from . import outbox
from .core import find_letter
from .names import current_name, is_sent_by, names_of, renamed_error

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..model.agent import Guard
    from ..model.message import Message
    from ..policy.routing import Candidate
    from ..store.protocol import Post
    from .core import Core


def resolve_post(core: Core, post: Post, *, ask: bool = True) -> Post:
    """Return the post with its final mailboxes, or raise a refusal. With `ask` off no guard is checked."""
    gone = _check_guards(core, post, ask=ask)
    if gone:  # `moved_to` is always the current name, so one step is enough
        post = _to_current_names(post, gone)
        _check_guards(core, post, ask=ask)
    # After the guards: only names that no agent here has may stand for agents of other systems.
    post = outbox.resolve_recipients(core, post)
    return _resolve_any(core, post) if post.routes else post


def routed_by(prepared: Post, written: Post) -> tuple[str, ...]:
    """Return the agents that were chosen for the `any:` addresses of a letter."""
    named = {delivery.mailbox for delivery in prepared.deliveries}
    chosen = [d.mailbox for d in written.deliveries if d.mailbox not in named]
    return tuple(name for name in chosen if prepared.routes or AT in name)


def routed_to(core: Core, message: Message) -> Message:
    """Return the letter with the agents that received it in place of its `any:` addresses."""
    if not any(is_any(recipient.address) for recipient in message.recipients):
        return message
    named = tuple(r for r in message.recipients if not is_any(r.address))
    known = {fold(recipient.address) for recipient in named}
    found = core.store.find(Query(message_ids=(message.id,), order="age"))
    others = (
        Recipient(f.delivery.mailbox, f.delivery.kind) for f in found if fold(f.delivery.mailbox) not in known
    )
    return replace(message, recipients=(*named, *(other for other in others if other.kind != "bcc")))


def without_copy(core: Core, letter: Message, targets: Sequence[str]) -> list[str]:
    """Return the targets that have no copy of the letter, under their current name or a former one."""
    strangers = without_letter(letter, targets)
    if not strangers or len(strangers) > FEW:
        return strangers
    names = {name: names_of(core, current_name(core, name)) for name in strangers}
    return [name for name in strangers if len(without_letter(letter, names[name])) == len(names[name])]


def _check_guards(core: Core, post: Post, *, ask: bool) -> dict[str, str]:
    """Raise a refusal if a guard refuses the sender; return former names among the mailboxes and the current ones.

    A guard record exists only for a mailbox that has one, so usually there is nothing to read.
    """
    sender = post.message.sender
    mailboxes = [sender, *(delivery.mailbox for delivery in post.deliveries), *post.copies]
    # One query for all guards is cheaper than one for each member of a large scope.
    if len(mailboxes) > FEW:
        guards = set(record_keys(core.store, GUARD))
        mailboxes = [name for name in mailboxes if name in guards] if guards else []
    gone: dict[str, str] = {}
    for mailbox in mailboxes:
        guard = guard_at(core, mailbox)
        if guard.moved_to is not None:
            gone[mailbox] = guard.moved_to
        elif ask and guard is not NO_GUARD:
            _check_guard(core, guard, post.message, mailbox)
    if sender in gone:
        raise renamed_error(sender, gone[sender], "sender")
    return gone


def guard_at(core: Core, mailbox: str) -> Guard:
    """Return the guard of a mailbox."""
    found = core.store.records(GUARD, mailbox)
    return guard_from(found[0].value) if found else NO_GUARD


def check_guard_at(core: Core, sender: str, name: str) -> None:
    """Raise NotAllowed if the guard of this agent refuses the sender. A former name is followed."""
    mailbox = current_name(core, name)
    _check_sender(core, guard_at(core, mailbox), sender, mailbox)


def is_open_to(core: Core, message: Message, mailbox: str) -> bool:
    """Raise NotAllowed if the guard of this mailbox refuses the message; return whether it has no guard at all.

    An answer that the mailbox asked for is accepted whatever the allow list says.
    """
    guard = guard_at(core, mailbox)
    if guard is not NO_GUARD:
        _check_guard(core, guard, message, mailbox)
    return guard is NO_GUARD


def _check_guard(core: Core, guard: Guard, message: Message, mailbox: str) -> None:
    if _is_solicited(core, message, mailbox):
        guard = replace(guard, allow=(EVERYONE,))
    _check_sender(core, guard, message.sender, mailbox)


def _is_solicited(core: Core, message: Message, mailbox: str) -> bool:
    """Return whether the message answers a letter that this mailbox sent to the message's sender."""
    if message.in_reply_to is None:
        return False
    answered = find_letter(core, message.in_reply_to)
    if answered is None or not is_sent_by(core, answered, mailbox):
        return False
    if AT in message.sender:
        return outbox.was_sent_to(core, answered.id, message.sender)
    return not without_copy(core, answered, [message.sender])


def _check_sender(core: Core, guard: Guard, sender: str, mailbox: str) -> None:
    """Raise NotAllowed if the guard refuses the sender under any of its names, or its whole system (`@system`)."""
    if not same_name(sender, mailbox):
        system = (at_system("", system_of(sender)),) if AT in sender else ()
        check_guard((*names_of(core, sender), *system), mailbox, guard)


def _to_current_names(post: Post, gone: Mapping[str, str]) -> Post:
    """Return the post with current names in place of former ones, each mailbox once."""
    first = {gone.get(d.mailbox, d.mailbox): d for d in reversed(post.deliveries)}
    deliveries = tuple(replace(d, mailbox=name) for name, d in reversed(first.items()))
    copies = dict.fromkeys(gone.get(name, name) for name in post.copies)
    return replace(post, deliveries=deliveries, copies=tuple(name for name in copies if name not in first))


def _resolve_any(core: Core, post: Post) -> Post:
    """Return the post with an agent's mailbox in place of each `any:`, never one that has the letter already."""
    message = post.message
    # An agent that passed the letter on must not be chosen for it again (G11).
    passed = [current_name(core, name) for name in message.trace]
    taken = {fold(name) for name in (message.sender, *passed, *post.copies)}
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
    """Return the least busy agent that has all these capabilities and accepts the letter."""
    refusal: NotAllowed | QuotaFull | None = None
    sender = post.message.sender
    for candidate in _candidates(core, wanted, taken):
        try:
            check_guard_at(core, sender, candidate.name)
            if post.quota is not None:
                waiting = waiting_letters(core.store, candidate.name, sender)
                check_space(sender, candidate.name, waiting, post.quota)
        except NotAllowed as refused:
            refusal = refusal or refused
        except QuotaFull as refused:  # temporary, so a more useful error than NotAllowed
            refusal = refused
        else:
            return candidate.name
    if refusal is not None:
        raise refusal
    raise _no_candidate_error(core, wanted, taken)


def _no_candidate_error(core: Core, wanted: Collection[str], taken: Collection[str]) -> UnknownAgent:
    """Return the error for: no agent has these capabilities, or all that have them are offline."""
    skill = " and ".join(wanted)
    cards = [convert(record.value, Card) for record in core.store.records(CARD)]
    away = [card.id for card in cards if _has_capabilities(card, wanted) and fold(card.id) not in taken]
    if not away:
        hint = "register agents with this capability"
        return UnknownAgent(f"no other agent here can do {skill!a} now", field="to", hint=hint)
    offline = ", ".join(away[:FEW])
    text = f"all agents that can do {skill!a} are offline: {offline}"
    return UnknownAgent(text, field="to", hint="a heartbeat brings them back")


def _has_capabilities(card: Card, wanted: Collection[str]) -> bool:
    """Return whether a local agent has these capabilities.

    Agents of other systems are chosen by their own system.
    """
    return AT not in card.id and set(wanted) <= set(card.capabilities)


def _candidates(core: Core, wanted: Collection[str], taken: Collection[str]) -> list[Candidate]:
    """Return the agents that have these capabilities, the least busy first."""
    from ..policy import routing  # noqa: PLC0415 - only for `any:` addresses
    from . import agents as core_agents  # noqa: PLC0415 - only for `any:` addresses

    moment = core.now()
    agents = [core_agents.agent_of(core, record, moment) for record in core.store.records(CARD)]
    able = [
        agent for agent in agents if _has_capabilities(agent.card, wanted) and fold(agent.card.id) not in taken
    ]
    return routing.least_busy(
        routing.Candidate(
            name=agent.card.id,
            tasks=len(agent.presence.current_tasks),
            most_tasks=agent.card.max_concurrent_tasks,
            letters=waiting_letters(core.store, agent.card.id, agent.card.id)[0],
            active_at=agent.presence.last_active_at,
        )
        for agent in able
        if routing.is_routable(agent.presence)
    )
