"""Names at other systems: which of a letter's recipients are there, and whether the letter may go to them.

A bare name is somebody here, if anybody here is called so; else who the table of routes knows at another system;
else, where the settings say so, somebody that is to be found.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import policy, service
from ..errors import Invalid, Missing, PostroomError
from ..model import delivery as moves
from ..model.address import ANYWHERE, agent_of, at_system, format_address, parse_address, system_of
from ..model.codec import convert, to_plain
from ..model.delivery import State
from ..model.message import Recipient, is_any, same_name
from ..model.names import AT, BROADCAST, POSTMASTER, fold, meant
from ..model.peer import Route
from ..model.query import Query
from ..model.record import ROUTE
from ..store.base import Move
from .authorize import authorize
from .compose import check_address
from .records import find_record, put_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ..model.address import Address
    from ..model.delivery import Delivery
    from ..model.message import Message, RecipientKind
    from ..model.peer import Peer
    from ..model.query import Found
    from ..store.base import Post, Write
    from .authorize import Principal
    from .office import Office


def at_home(office: Office, peers: Mapping[str, Peer], message: Message) -> Message:
    """The letter with those called `x@<this room>` as `x`, each system spelt as its peer is, and each name there
    as it was spelt here first.
    """
    recipients: dict[str, Recipient] = {}
    for recipient in message.recipients:
        address = recipient.address
        if AT in address:
            address = _normal(office, peers, parse_address(address, recipient.kind), recipient.kind)
        key = fold(address) if AT in address else address
        recipients.setdefault(key, Recipient(address, recipient.kind))
    return replace(message, recipients=tuple(recipients.values()))


def is_somebody(office: Office, address: str) -> bool:
    """Not, if it is said to be an agent here, and nobody here is called so."""
    if AT not in address or not agent_of(address) or not service.identity.is_ours(office, system_of(address)):
        return True
    spelt = office.store.spelling(agent_of(address))
    return spelt is not None and office.store.is_known(spelt)


def bound(office: Office, post: Post) -> Post:
    """The letter with each recipient where it is, or a refusal. Part of a commit."""
    was_for = [delivery.mailbox for delivery in post.deliveries]
    deliveries = [_sent_to(office, post, name) for name in was_for]
    if deliveries != was_for:
        post = _readdressed(post, deliveries)
    unasked = [name for name in deliveries if AT in name]
    if not post.routes:  # then all that were known to be elsewhere are open: what changed since, the courier asks
        unasked = [name for name in unasked if name not in was_for]
    if unasked:
        check_ways(office, service.peers.all_peers(office), post.message, unasked)
    return post


def spelt(office: Office, mailbox: str) -> str:
    """A name elsewhere as it is known here, else as its system spells it: whoever writes it otherwise means it."""
    held = office.store.spelling(mailbox)
    if held is not None or not agent_of(mailbox):
        return held or mailbox
    found = office.store.records(ROUTE, fold(agent_of(mailbox)))
    route = convert(found[0].value, Route) if found else None
    is_told = route is not None and route.name and same_name(route.system, system_of(mailbox))
    return mailbox.replace(agent_of(mailbox), route.name, 1) if route is not None and is_told else mailbox


def route_of(office: Office, name: str, now: datetime) -> Route | None:
    """Where the table says that an agent is, while that is fresh and somebody leads there."""
    found = office.store.records(ROUTE, fold(name))
    route = convert(found[0].value, Route) if found else None
    if route is None or route.until <= now:
        return None
    return route if peer_towards(office, service.peers.all_peers(office), route.system) else None


def told_of(office: Office, caller: Principal) -> list[tuple[str, Route]]:
    """Agents elsewhere that peers told of, by name, while that is believed and somebody leads there."""
    authorize(caller, "agents")
    now, peers = office.now().wall, service.peers.all_peers(office)
    told = [(record.key, convert(record.value, Route)) for record in office.store.records(ROUTE)]
    led = [(key, at) for key, at in told if at.until > now and peer_towards(office, peers, at.system)]
    return [(at.name or key, at) for key, at in led if not at.is_found]


def refreshes(office: Office) -> bool:
    """Are peers asked for names of which nobody here has heard, and for which mail lies here? Not in a room of
    files: an agent that only reads and writes its files may be there though nobody heard from it.
    """
    return (
        office.limits.federation_strategy == "table"
        and office.limits.federation_refresh_on_miss
        and office.store.vouches
    )


def strangers(office: Office) -> dict[str, int]:
    """Those names, with the number of the newest letter for each. The person and the house are always here."""
    always = {POSTMASTER, fold(office.limits.human)}
    return {name: newest for name, newest in office.store.strangers().items() if fold(name) not in always}


def send_on(office: Office, name: str, spelling: str, system: str) -> str | None:
    """Queue the mail that lies here for a name of which nobody here has heard, for a system that has such an
    agent. Returns the mailbox there; None: nothing goes. What was written to a scope, is too old to wait for
    another system, or may not go there, stays here.
    """
    mailbox = spelt(office, at_system(spelling, system))
    sent: list[Move] = []

    def plan() -> Sequence[Write]:
        sent.clear()
        if office.store.is_known(name):
            return []
        now, peers = office.now().wall, service.peers.all_peers(office)
        free = office.limits.outbox_max_letters - office.store.waiting(mailbox, name)[0]
        lying = Query(mailbox=name, states=(State.UNREAD,), unread_only=True, order="age", limit=max(0, free))
        going = [one for one in office.store.find(lying) if _may_go_on(office, peers, one, mailbox, now)]
        sent.extend(
            Move(one.delivery, moves.redirect(one.delivery, mailbox, now), moves.REDIRECTED) for one in going
        )
        until = now + timedelta(seconds=office.limits.federation_table_ttl)
        route = Route(system=system, until=until, name=spelling, is_found=True)
        held = find_record(office, ROUTE, fold(name))
        tasks = service.taskbook.redirect(office, [one.message for one in going], name, mailbox)
        return [*sent, *tasks, put_record(ROUTE, fold(name), to_plain(route), held, durable=False)] if sent else []

    office.store.commit(plan)
    return mailbox if sent else None


def seek_anew(office: Office, found: Found, reason: str) -> bool:
    """Queue a letter that a system refused for the next that has the name. Only where its sender named no system,
    and peers were asked for the name; else False, and nothing is done. Nor for a task: who may move it is written
    down by name and system.
    """
    mailbox = found.delivery.mailbox
    name, system = agent_of(mailbox), system_of(mailbox)
    held = office.store.records(ROUTE, fold(name))
    route = convert(held[0].value, Route) if held else None
    was_found = route is not None and route.is_found and same_name(route.system, system)
    if (
        not was_found
        or found.message.task is not None
        or not any(same_name(one.address, name) for one in found.message.recipients)
    ):
        return False
    moved: list[Move] = []

    def plan() -> Sequence[Write]:
        now, target = office.now().wall, at_system(name, ANYWHERE)
        attempt = moves.Attempt(at=now, holder=system, reason=reason)
        at = Query(mailbox=mailbox, message_ids=(found.message.id,), states=(State.QUEUED,))
        queued = [one.delivery for one in office.store.find(at)]
        moved[:] = [Move(one, moves.redirect(one, target, now, attempt), moves.REDIRECTED) for one in queued]
        return moved

    office.store.commit(plan)
    return bool(moved)


def _may_go_on(office: Office, peers: Mapping[str, Peer], found: Found, mailbox: str, now: datetime) -> bool:
    message, name = found.message, found.delivery.mailbox
    is_meant = any(same_name(recipient.address, name) for recipient in message.recipients)
    if message.is_automatic or AT in message.sender or not (is_meant or found.delivery.kind == "bcc"):
        return False
    is_old = policy.outgoing.is_too_old(service.outbox.waits_since(found), now, office.limits)
    return not is_old and are_open(office, peers, message, [mailbox])


def peer_towards(office: Office, peers: Mapping[str, Peer], system: str) -> Peer | None:
    """Who leads to a system; anybody at all leads to one that is to be found."""
    if system == ANYWHERE:
        return next((peer for peer in peers.values() if peer.trusted), None)
    return policy.trust.route_to(peers, system, policy.trust.strategy_of(office.limits))


def waiting_by_way(office: Office) -> tuple[dict[str, int], dict[str, int]]:
    """How many letters wait for each peer to take or pass them on, and how many for each system without a way."""
    peers = service.peers.all_peers(office)
    by_peer: dict[str, int] = {}
    stranded: dict[str, int] = {}
    for mailbox, many in office.store.outgoing(None).items():
        system = system_of(mailbox)
        peer = peer_towards(office, peers, system)
        counts, name = (stranded, system) if peer is None else (by_peer, peer.system)
        if peer is None or system != ANYWHERE:
            counts[name] = counts.get(name, 0) + many
    return by_peer, stranded


def why_it_waits(office: Office, delivery: Delivery) -> str | None:
    """What keeps a letter for another system here, as far as the room knows."""
    if delivery.state is not State.QUEUED or AT not in delivery.mailbox:
        return None
    peers, system = service.peers.all_peers(office), system_of(delivery.mailbox)
    if system != ANYWHERE and peer_towards(office, peers, system) is None:
        return f"waits: {policy.trust.no_route(peers, system).message}"
    if system == ANYWHERE and not delivery.history:
        return "waits: nobody who was asked has it, or nobody was"
    return f"waits: {delivery.history[-1].reason}" if delivery.history else None


def check_ways(office: Office, peers: Mapping[str, Peer], message: Message, mailboxes: Iterable[str]) -> None:
    """Refuse a letter to a system that nobody leads to, or that its scope may not write to."""
    for mailbox in mailboxes:
        _check_way(office, peers, message, parse_address(mailbox, "to"))


def are_open(office: Office, peers: Mapping[str, Peer], message: Message, mailboxes: Iterable[str]) -> bool:
    """Would it pass? Why not is told in the commit, unless the letter is there already: then nothing is asked."""
    try:
        check_ways(office, peers, message, mailboxes)
    except PostroomError:
        return False
    return True


def _check_way(office: Office, peers: Mapping[str, Peer], message: Message, target: Address) -> None:
    peer = peer_towards(office, peers, target.system)
    if peer is None and target.system == ANYWHERE:
        raise Missing(f"there is nobody to ask for {target.agent!r}", field="to", hint="postroom peers add")
    if peer is None:
        raise policy.trust.no_route(peers, target.system)
    if target.system != ANYWHERE:
        policy.trust.check_outgoing(peer, message, target)


def was_sent_to(office: Office, id: str, party: str) -> bool:
    """Was this letter sent to somebody elsewhere? They may answer before we know that it is there, and by a name
    that only a system or an agent was said of.
    """
    found = (one.delivery.mailbox for one in office.store.find(Query(message_ids=(id,))))
    return any(_is_meant(party, mailbox) for mailbox in found)


def _is_meant(party: str, mailbox: str) -> bool:
    said, whose = parse_address(mailbox, "to"), parse_address(party, "sender")
    at_any = not said.agent or same_name(said.agent, whose.agent)
    return bool(said.system) and at_any and (said.system == ANYWHERE or same_name(said.system, whose.system))


def seeks(office: Office) -> bool:
    """Are other systems asked for names that nobody here knows?"""
    return office.limits.federation_strategy != "table" or office.limits.federation_refresh_on_miss


def _normal(office: Office, peers: Mapping[str, Peer], address: Address, field: RecipientKind) -> str:
    if service.identity.is_ours(office, address.system):
        return meant(_here(address, field), office.limits.human)
    named = [peer.system for peer in peers.values() if same_name(peer.system, address.system)]
    return spelt(office, format_address(replace(address, system=named[0]) if named else address))


def _here(address: Address, field: RecipientKind) -> str:
    if address.agent:
        return check_address(address.agent, field)
    if address.scope:
        return check_address(BROADCAST + address.scope, field)
    hint = f"{BROADCAST}<scope> for everybody in a scope"
    raise Invalid(f"{format_address(address)!r} is this room itself", field=field, hint=hint)


def _sent_to(office: Office, post: Post, name: str) -> str:
    if AT in name or is_any(name) or office.store.is_known(name) or post.message.is_automatic:
        return name
    route = route_of(office, name, office.now().wall)
    if route is not None:
        return spelt(office, at_system(route.name or name, route.system))
    if office.limits.federation_strategy != "table" and service.peers.all_peers(office):
        return spelt(office, at_system(name, ANYWHERE))
    return name


def _readdressed(post: Post, names: Sequence[str]) -> Post:
    """Queued for other systems. When it was sent is kept only where the letter itself says another time."""
    created = post.message.created_at
    deliveries = [
        delivery
        if delivery.mailbox == name
        else replace(
            delivery,
            mailbox=name,
            state=State.QUEUED,
            delivered_at=None if delivery.delivered_at == created else delivery.delivered_at,
        )
        for delivery, name in zip(post.deliveries, names, strict=True)
    ]
    return replace(post, deliveries=tuple(deliveries))
