"""Whether mail from another system is taken: what it says, who says it, which way it came, whom it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import policy, service
from ..errors import HopsSpent, Invalid, LoopDetected, NotAllowed, UnknownAgent
from ..model.address import ANYWHERE, agent_of, at_system, format_address, parse_address, system_of
from ..model.card import Card, Warmth
from ..model.codec import convert
from ..model.message import CAME, Recipient, same_name
from ..model.names import AT, POSTMASTER, check_agent, check_id, check_party, meant
from ..model.record import CARD
from ..policy.admission import check_expiry
from .compose import compose, draft_of
from .pace import check_pace

if TYPE_CHECKING:
    from datetime import datetime

    from ..model.address import Address
    from ..model.message import Message
    from ..model.peer import Peer
    from .arriving import Arrival
    from .office import Office
    from .pace import Batch


def recognized(office: Office, peer: Peer, arrival: Arrival) -> Arrival:
    """The same, with its system and sender spelt as they are known here."""
    names = (peer.system, *peer.relays_for)
    source = next((name for name in names if same_name(name, arrival.source)), arrival.source)
    message = arrival.message
    if same_name(system_of(message.sender), source):
        sender = service.elsewhere.spelt(office, at_system(agent_of(message.sender), source))
        message = replace(message, sender=sender)
    return replace(arrival, message=message, source=source)


def checked(office: Office, peer: Peer, arrival: Arrival, now: datetime, batch: Batch) -> Message:
    """The letter as it would be written here, or a refusal of all of it."""
    _check_way(office, peer, arrival)
    message = _sound(office, arrival, now)
    if message.is_automatic and agent_of(message.sender) != POSTMASTER:
        raise NotAllowed(f"only a house writes a {message.kind!r}", field="kind")
    check_expiry(message.expires_at, now)
    message = _followed(office, message, arrival)
    if not message.is_automatic:
        check_pace(office, message, batch)
        batch.add(message)
    return message


def mailboxes(office: Office, peer: Peer, arrival: Arrival, message: Message, target: Address) -> list[str]:
    """Where the letter goes for one of its targets."""
    policy.trust.check_incoming(peer, arrival.source, message.scope, target)
    if not target.system or service.identity.is_ours(office, target.system):
        if target.agent:
            return [_resident(office, peer, arrival.source, message.scope, target.agent)]
        return _everybody(office, peer, arrival.source, message.scope, target.scope)
    if target.system == ANYWHERE and office.store.is_known(target.agent):
        return [_resident(office, peer, arrival.source, message.scope, target.agent)]
    return [_further(office, peer, arrival, message, target)]


def named(office: Office, target: Address) -> str | None:
    """The mailbox that is meant, whether or not it may have the letter; None: there is none."""
    if target.system and not service.identity.is_ours(office, target.system):
        is_here = target.system == ANYWHERE and office.store.is_known(target.agent)
        return target.agent if is_here else service.elsewhere.spelt(office, format_address(target))
    try:
        return office.store.spelling(meant(check_agent(target.agent, "to"), office.limits.human))
    except Invalid:
        return None


# -- who says it, and which way it came


def _check_way(office: Office, peer: Peer, arrival: Arrival) -> None:
    sender = parse_address(arrival.message.sender, "from")
    if not same_name(sender.system, arrival.source):
        wrong = f"{arrival.message.sender!r} is not at {arrival.source!r}"
        raise NotAllowed(wrong, field="from", hint="agent@system, where the letter was written")
    if not policy.trust.speaks_for(peer, arrival.source):
        raise NotAllowed(f"{peer.system!r} does not speak for {arrival.source!r}", field="from")
    if service.identity.is_ours(office, arrival.source):
        raise LoopDetected("the letter was written here", field="from")
    if any(service.identity.is_ours(office, system) for system in arrival.path):
        raise LoopDetected(f"the letter was here before ({' → '.join(arrival.path)})", field="path")
    if max(arrival.hops, len(arrival.path) - 1) >= office.limits.federation_hops:
        raise HopsSpent(f"the letter went through {arrival.hops} systems", field="hopCount")


# -- what it says


def _sound(office: Office, arrival: Arrival, now: datetime) -> Message:
    """As its sender would say it here."""
    said = arrival.message
    extra = {name: value for name, value in said.extra.items() if name != CAME}
    recipients = _at_home(office, said)
    drafted = draft_of(replace(said, key=None, extra=extra, recipients=recipients or (Recipient("x"),)))
    message = compose(office, drafted, now)
    trace = dict.fromkeys([*(_name_here(office, name, arrival.source) for name in said.trace), message.sender])
    return replace(
        message,
        recipients=message.recipients if recipients else (),
        hops=max(1, min(said.hops, office.limits.hops)),
        trace=tuple(trace),
        created_at=min(said.created_at, now),
    )


def _at_home(office: Office, message: Message) -> tuple[Recipient, ...]:
    """Those of ours by the names they have here. Whom nobody here is called like stays as it was said."""
    ours: dict[str, Recipient] = {}
    for recipient in message.recipients:
        address = recipient.address
        is_ours = AT in address and agent_of(address) and service.identity.is_ours(office, system_of(address))
        if is_ours and service.elsewhere.is_somebody(office, address):
            name = service.compose.check_address(agent_of(address), recipient.kind)
            address = office.store.spelling(name) or name
        ours.setdefault(address, replace(recipient, address=address))
    return tuple(ours.values())


def _name_here(office: Office, name: str, source: str) -> str:
    """What somebody in the trace of a letter from there is called here."""
    party = check_party(name, "trace")
    if AT not in party:
        return at_system(party, source)
    return agent_of(party) if service.identity.is_ours(office, system_of(party)) else party


def _followed(office: Office, message: Message, arrival: Arrival) -> Message:
    """In the thread of the letter that it answers, where its sender knows that letter; else in the one that it
    says, unless that is somebody else's here.
    """
    parent = None if message.in_reply_to is None else _known(office, message, arrival, message.in_reply_to)
    if parent is not None:
        return replace(
            message,
            thread_id=parent.thread,
            thread_tag=message.thread_tag or parent.thread_tag,
            conversation_id=message.conversation_id or parent.conversation_id,
        )
    root = arrival.message.thread_id
    if root is None or (office.store.get([root]) and _known(office, message, arrival, root) is None):
        return message
    return replace(message, thread_id=check_id(root, "thread_id"))


def _known(office: Office, message: Message, arrival: Arrival, id: str) -> Message | None:
    """A letter here that the sender of this one wrote or got; of a notice, one that its reader wrote."""
    if message.is_automatic:
        found = office.store.get([id]).get(id)
        readers = [target.agent for target in arrival.targets]
        is_theirs = found is not None and any(same_name(found.message.sender, name) for name in readers)
        return found.message if found is not None and is_theirs else None
    found = office.store.get([id]).get(id)
    if found is None or found.message.sender == message.sender:
        return None if found is None else found.message
    return found.message if service.elsewhere.was_sent_to(office, id, message.sender) else None


# -- whom it is for


def _resident(office: Office, peer: Peer, source: str, scope: str, name: str) -> str:
    """The mailbox of an agent here that this peer may write to, from this scope of that system."""
    spelt = office.store.spelling(meant(check_agent(name, "to"), office.limits.human))
    if spelt is None or not office.store.is_known(spelt):
        raise UnknownAgent(f"nobody here is called {name!r}", field="to")
    found = office.store.records(CARD, spelt)
    card = convert(found[0].value, Card) if found else Card(id=spelt, registered_at=office.now().wall)
    if found and not _is_there(office, spelt):
        raise UnknownAgent(f"{name!r} left, and did not come back", field="to")
    if not policy.trust.is_reachable(peer, card, source, scope):
        raise NotAllowed(f"{name!r} takes no mail from {peer.system!r}", field="to")
    return spelt


def _everybody(office: Office, peer: Peer, source: str, scope: str, within: str) -> list[str]:
    """All that are shown to this peer and may be written to from this scope; or those of them in one of ours."""
    cards = [convert(record.value, Card) for record in office.store.records(CARD) if AT not in record.key]
    shown = [card for card in cards if policy.trust.is_shown(peer, card) and (not within or within in card.scopes)]
    meant = [card.id for card in shown if policy.trust.is_reachable(peer, card, source, scope)]
    names = [name for name in meant if _is_there(office, name)]
    if not names:
        raise UnknownAgent("nobody here is shown to you", field="to")
    return names


def _is_there(office: Office, name: str) -> bool:
    """One that left, and did not come back in time, is not. One that is only silent is: its mail waits for it."""
    (record,) = office.store.records(CARD, name)
    presence = service.directory.agent_of(office, record, office.now()).presence
    return not presence.left or presence.warmth not in {Warmth.EXPIRED, Warmth.GONE}


def _further(office: Office, peer: Peer, arrival: Arrival, message: Message, target: Address) -> str:
    """The mailbox at a further system, where this peer may go there through us."""
    peers = service.peers.all_peers(office)
    is_said = target.system != ANYWHERE
    onward = service.elsewhere.peer_towards(office, peers, target.system) if is_said else None
    policy.trust.check_relaying(peer, onward)
    if max(arrival.hops, len(arrival.path) - 1) + 1 >= office.limits.federation_hops:
        raise HopsSpent(f"the letter went through {arrival.hops} systems", field="hopCount")
    if target.system == ANYWHERE:
        route = service.elsewhere.route_of(office, target.agent, office.now().wall)
        if route is None and not service.elsewhere.seeks(office):
            raise UnknownAgent(f"nobody here knows {target.agent!r}", field="to")
        if route is not None:
            target = replace(target, agent=route.name or target.agent, system=route.system)
    if any(same_name(target.system, passed) for passed in (*arrival.path, arrival.source, peer.system)):
        raise LoopDetected(f"the letter comes from {target.system!r}", field="to")
    service.elsewhere.check_ways(office, peers, message, [format_address(target)])
    return service.elsewhere.spelt(office, format_address(target))
