"""Mail for other systems: what waits, what goes next, what became of it. It waits until the other one has it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..errors import Invalid, Missing, PostroomError, StaleRevision, UnknownMessage
from ..model import delivery as model_delivery
from ..model.codec import convert, to_plain
from ..model.delivery import GIVEN, Attempt, State
from ..model.message import CAME, Recipient, is_any, same_name
from ..model.names import (
    ANYWHERE,
    AT,
    BROADCAST,
    POSTMASTER,
    agent_of,
    at_system,
    fold,
    format_address,
    is_remote,
    meant,
    parse_address,
    system_of,
)
from ..model.peer import Route
from ..model.query import Query
from ..model.record import ROUTE
from ..policy import retry, trust
from ..policy.retry import is_too_old, latest_try
from ..store.protocol import Move
from . import deliveries as core_deliveries
from . import peers as core_peers
from . import task_index
from .authorize import authorize
from .compose import check_address
from .core import find_record, put_record
from .deliveries import SLICE, let_time_pass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..model.delivery import Delivery
    from ..model.message import Message, RecipientKind
    from ..model.names import Address
    from ..model.peer import Peer
    from ..model.query import Found
    from ..store.protocol import Post, Write
    from .authorize import Principal
    from .core import Core


def waiting(core: Core, limit: int | None = None) -> list[str]:
    """Mailboxes elsewhere with mail that could go now, the longest waiting first."""
    now = core.now().wall
    return [*core.store.outgoing(now, latest_try(now, core.limits))][:limit]


def next_letters(
    core: Core, mailboxes: Sequence[str], limit: int, takes: Callable[[Found], bool] = lambda _: True
) -> list[Found]:
    """What goes next to these, in order of acceptance, by one who `takes` it. Of one sender to one recipient
    nothing overtakes a letter that waits to be tried again, or for another way.
    """
    moment = core.now()
    let_time_pass(core, moment, mailboxes)
    found = [one for mailbox in mailboxes for one in _next_at(core, mailbox, moment.wall, limit, takes)]
    found.sort(key=lambda one: (one.delivery.number, one.delivery.mailbox))
    return found[:limit]


def give(core: Core, letters: Sequence[Found], system: str) -> None:
    """They could go to any of several systems, and are about to go to this one: from now on it may have them."""
    attempt = Attempt(at=core.now().wall, holder=system, reason=f"{GIVEN}{system}")

    def plan() -> Sequence[Write]:
        free = [one for found in letters for one in _still_queued(core, found) if not one.given_to]
        return [Move(one, model_delivery.give(one, attempt), "give") for one in free]

    core.store.commit(plan)


def departed(core: Core, deliveries: Sequence[Delivery], system: str) -> None:
    """A system has them, safe: the one they are for, or one that passes them on."""
    now = core.now().wall
    steps = [Move(one, model_delivery.depart(one, now, _whereto(one, system)), "depart") for one in deliveries]
    try:
        core.store.commit(steps)
    except (StaleRevision, UnknownMessage):  # something was unsent, or expired, while it was on its way
        for step in steps:
            _depart_now(core, step.before, now, system)


def delayed(core: Core, found: Found, reason: str, due_at: datetime) -> None:
    """The other system did not take it now; it is tried again."""
    attempt = Attempt(at=core.now().wall, holder=system_of(found.delivery.mailbox), reason=reason)

    def plan() -> Sequence[Write]:
        return [Move(d, model_delivery.retry(d, attempt, due_at), "retry") for d in _still_queued(core, found)]

    core.store.commit(plan)


def refused(core: Core, found: Found, reason: str) -> None:
    """The other system will not take it: it is dead, and its sender is told."""
    now = core.now().wall

    def plan() -> Sequence[Write]:
        return [w for d in _still_queued(core, found) for w in _buried(core, found, d, reason, now)]

    core.store.commit(plan)


def give_up_old(core: Core, now: datetime) -> int:
    """What waited for as long as anything does is dead, and its senders are told. How many there were."""
    given_up = 0

    def plan() -> Sequence[Write]:
        nonlocal given_up
        writes: list[Write] = []
        for found in _too_old(core, now):
            reason = f"{_waited_for(found.delivery)} did not take it in time"
            writes += _buried(core, found, found.delivery, reason, now)
            given_up += 1
        return writes

    while next(_too_old(core, now), None) is not None:
        before = given_up
        core.store.commit(plan)
        if given_up == before:
            break
    return given_up


def waits_since(found: Found) -> datetime:
    """When it set out: when it was written, or when its time came or somebody revived it. One that is passed on
    sets out when it came: when it was written is told by another system's clock.
    """
    return found.delivery.delivered_at or _came_at(found.message) or found.message.created_at


def _waited_for(delivery: Delivery) -> str:
    system = delivery.given_to or system_of(delivery.mailbox)
    return "any system that has it" if system == ANYWHERE else system


def _came_at(letter: Message) -> datetime | None:
    """None: it was written here, or what stands in its file was written by others."""
    came: Any = letter.extra.get(CAME) if is_remote(letter.sender) else None
    try:
        at = None if came is None else datetime.fromisoformat(came["at"])
    except (LookupError, TypeError, ValueError):
        return None
    return at if at is not None and at.tzinfo is not None else None


def _next_at(core: Core, mailbox: str, now: datetime, limit: int, takes: Callable[[Found], bool]) -> list[Found]:
    held: set[str] = set()  # senders, one of whose letters waits to be tried again, or for another way
    ready: list[Found] = []
    for found in _queued(core, mailbox, max(limit, SLICE)):
        delivery, sender = found.delivery, found.message.sender
        is_due = _is_due(core, delivery, now)
        if (not is_due and delivery.attempts) or (is_due and not takes(found)):
            held.add(sender)
        elif is_due and sender not in held:
            ready.append(found)
        if len(ready) == limit:
            break
    return ready


def _is_due(core: Core, delivery: Delivery, now: datetime) -> bool:
    if delivery.due_at is None or delivery.due_at <= now:
        return True
    return delivery.attempts > 0 and delivery.due_at > latest_try(now, core.limits)


def _queued(core: Core, mailbox: str, page: int) -> Iterator[Found]:
    """All that waits there, in order of acceptance, page by page."""
    after = 0
    while found := core.store.find(
        Query(mailbox=mailbox, states=(State.QUEUED,), after=after, order="age", limit=page)
    ):
        yield from found
        after = found[-1].delivery.number
        if len(found) < page:
            return


def _too_old(core: Core, now: datetime) -> Iterator[Found]:
    """A slice of them. Later letters were sent later: the first that is young ends the search in a mailbox."""
    result = 0
    for mailbox in core.store.outgoing(now, latest_try(now, core.limits)):
        for found in _queued(core, mailbox, SLICE):
            since = waits_since(found)
            if not is_too_old(min(found.message.created_at, since), now, core.limits):
                break
            is_due = _is_due(core, found.delivery, now)
            if (is_due or found.delivery.attempts) and is_too_old(since, now, core.limits):
                yield found
                result += 1
            if result == SLICE:
                return


def _still_queued(core: Core, found: Found) -> list[Delivery]:
    """As it is now, unless it was unsent or expired meanwhile."""
    at = Query(mailbox=found.delivery.mailbox, message_ids=(found.message.id,), states=(State.QUEUED,))
    return [one.delivery for one in core.store.find(at)]


def _buried(core: Core, found: Found, delivery: Delivery, reason: str, now: datetime) -> list[Write]:
    attempt = Attempt(at=now, holder=system_of(delivery.mailbox), reason=reason)
    dead = model_delivery.bury(delivery, attempt)
    bounce = core_deliveries.bounce(core, found.message, dead, now)
    return [Move(delivery, dead, "bury"), *bounce]


def _whereto(delivery: Delivery, system: str) -> str:
    target = system_of(delivery.mailbox)
    is_there = target == ANYWHERE or same_name(target, system)
    return system if is_there else f"{system}, on its way to {target}"


def _depart_now(core: Core, delivery: Delivery, now: datetime, system: str) -> None:
    def plan() -> Sequence[Write]:
        at = Query(mailbox=delivery.mailbox, message_ids=(delivery.message_id,), states=(State.QUEUED,))
        found = [one.delivery for one in core.store.find(at)]
        return [Move(one, model_delivery.depart(one, now, _whereto(one, system)), "depart") for one in found]

    core.store.commit(plan)


# Names at other systems: which of a letter's recipients are there, and whether the letter may go to them.
#
# A bare name is somebody here, if anybody here is called so; else who the table of routes knows at another
# system;
# else, where the settings say so, somebody that is to be found.


def at_home(core: Core, peers: Mapping[str, Peer], message: Message) -> Message:
    """The letter with those called `x@<this room>` as `x`, each system spelt as its peer is, and each name there
    as it was spelt here first.
    """
    recipients: dict[str, Recipient] = {}
    for recipient in message.recipients:
        address = recipient.address
        if AT in address:
            address = _normal(core, peers, parse_address(address, recipient.kind), recipient.kind)
        key = fold(address) if AT in address else address
        recipients.setdefault(key, Recipient(address, recipient.kind))
    return replace(message, recipients=tuple(recipients.values()))


def is_somebody(core: Core, address: str) -> bool:
    """Not, if it is said to be an agent here, and nobody here is called so."""
    if AT not in address or not agent_of(address) or not core_peers.is_ours(core, system_of(address)):
        return True
    spelt = core.store.spelling(agent_of(address))
    return spelt is not None and core.store.is_known(spelt)


def bound(core: Core, post: Post) -> Post:
    """The letter with each recipient where it is, or a refusal. Part of a commit."""
    was_for = [delivery.mailbox for delivery in post.deliveries]
    deliveries = [_sent_to(core, post, name) for name in was_for]
    if deliveries != was_for:
        post = _readdressed(post, deliveries)
    unasked = [name for name in deliveries if AT in name]
    if not post.routes:  # then all that were known to be elsewhere are open: what changed since, the courier asks
        unasked = [name for name in unasked if name not in was_for]
    if unasked:
        check_ways(core, core_peers.all_peers(core), post.message, unasked)
    return post


def spelt(core: Core, mailbox: str) -> str:
    """A name elsewhere as it is known here, else as its system spells it: whoever writes it otherwise means it."""
    held = core.store.spelling(mailbox)
    if held is not None or not agent_of(mailbox):
        return held or mailbox
    found = core.store.records(ROUTE, fold(agent_of(mailbox)))
    route = convert(found[0].value, Route) if found else None
    is_told = route is not None and route.name and same_name(route.system, system_of(mailbox))
    return mailbox.replace(agent_of(mailbox), route.name, 1) if route is not None and is_told else mailbox


def route_of(core: Core, name: str, now: datetime) -> Route | None:
    """Where the table says that an agent is, while that is fresh and somebody leads there."""
    found = core.store.records(ROUTE, fold(name))
    route = convert(found[0].value, Route) if found else None
    if route is None or route.until <= now:
        return None
    return route if peer_towards(core, core_peers.all_peers(core), route.system) else None


def told_of(core: Core, caller: Principal) -> list[tuple[str, Route]]:
    """Agents elsewhere that peers told of, by name, while that is believed and somebody leads there."""
    authorize(caller, "agents")
    now, peers = core.now().wall, core_peers.all_peers(core)
    results = [(record.key, convert(record.value, Route)) for record in core.store.records(ROUTE)]
    led = [(key, at) for key, at in results if at.until > now and peer_towards(core, peers, at.system)]
    return [(at.name or key, at) for key, at in led if not at.is_found]


def refreshes(core: Core) -> bool:
    """Are peers asked for names of which nobody here has heard, and for which mail lies here? Not in a room of
    files: an agent that only reads and writes its files may be there though nobody heard from it.
    """
    return (
        core.limits.federation_strategy == "table"
        and core.limits.federation_refresh_on_miss
        and core.store.vouches
    )


def strangers(core: Core) -> dict[str, int]:
    """Those names, with the number of the newest letter for each. The person and the house are always here."""
    always = {POSTMASTER, fold(core.limits.human)}
    return {name: newest for name, newest in core.store.strangers().items() if fold(name) not in always}


def send_on(core: Core, name: str, spelling: str, system: str) -> str | None:
    """Queue the mail that lies here for a name of which nobody here has heard, for a system that has such an
    agent. Returns the mailbox there; None: nothing goes. What was written to a scope, is too old to wait for
    another system, or may not go there, stays here.
    """
    mailbox = spelt(core, at_system(spelling, system))
    sent: list[Move] = []

    def plan() -> Sequence[Write]:
        sent.clear()
        if core.store.is_known(name):
            return []
        now, peers = core.now().wall, core_peers.all_peers(core)
        free = core.limits.outbox_max_letters - core.store.waiting(mailbox, name)[0]
        lying = Query(mailbox=name, states=(State.UNREAD,), unread_only=True, order="age", limit=max(0, free))
        going = [one for one in core.store.find(lying) if _may_go_on(core, peers, one, mailbox, now)]
        sent.extend(
            Move(one.delivery, model_delivery.redirect(one.delivery, mailbox, now), model_delivery.REDIRECTED)
            for one in going
        )
        until = now + timedelta(seconds=core.limits.federation_table_ttl)
        route = Route(system=system, until=until, name=spelling, is_found=True)
        held = find_record(core, ROUTE, fold(name))
        tasks = task_index.redirect(core, [one.message for one in going], name, mailbox)
        return [*sent, *tasks, put_record(ROUTE, fold(name), to_plain(route), held, durable=False)] if sent else []

    core.store.commit(plan)
    return mailbox if sent else None


def seek_anew(core: Core, found: Found, reason: str) -> bool:
    """Queue a letter that a system refused for the next that has the name. Only where its sender named no system,
    and peers were asked for the name; else False, and nothing is done. Nor for a task: who may move it is written
    down by name and system.
    """
    mailbox = found.delivery.mailbox
    name, system = agent_of(mailbox), system_of(mailbox)
    held = core.store.records(ROUTE, fold(name))
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
        now, target = core.now().wall, at_system(name, ANYWHERE)
        attempt = model_delivery.Attempt(at=now, holder=system, reason=reason)
        at = Query(mailbox=mailbox, message_ids=(found.message.id,), states=(State.QUEUED,))
        queued = [one.delivery for one in core.store.find(at)]
        moved[:] = [
            Move(one, model_delivery.redirect(one, target, now, attempt), model_delivery.REDIRECTED)
            for one in queued
        ]
        return moved

    core.store.commit(plan)
    return bool(moved)


def _may_go_on(core: Core, peers: Mapping[str, Peer], found: Found, mailbox: str, now: datetime) -> bool:
    message, name = found.message, found.delivery.mailbox
    is_meant = any(same_name(recipient.address, name) for recipient in message.recipients)
    if message.is_automatic or AT in message.sender or not (is_meant or found.delivery.kind == "bcc"):
        return False
    is_old = retry.is_too_old(waits_since(found), now, core.limits)
    return not is_old and are_open(core, peers, message, [mailbox])


def peer_towards(core: Core, peers: Mapping[str, Peer], system: str) -> Peer | None:
    """Who leads to a system; anybody at all leads to one that is to be found."""
    if system == ANYWHERE:
        return next((peer for peer in peers.values() if peer.trusted), None)
    return trust.route_to(peers, system, trust.strategy_of(core.limits))


def waiting_by_way(core: Core) -> tuple[dict[str, int], dict[str, int]]:
    """How many letters wait for each peer to take or pass them on, and how many for each system without a way."""
    peers = core_peers.all_peers(core)
    by_peer: dict[str, int] = {}
    stranded: dict[str, int] = {}
    for mailbox, many in core.store.outgoing(None).items():
        system = system_of(mailbox)
        peer = peer_towards(core, peers, system)
        counts, name = (stranded, system) if peer is None else (by_peer, peer.system)
        if peer is None or system != ANYWHERE:
            counts[name] = counts.get(name, 0) + many
    return by_peer, stranded


def why_it_waits(core: Core, delivery: Delivery) -> str | None:
    """What keeps a letter for another system here, as far as the room knows."""
    if delivery.state is not State.QUEUED or AT not in delivery.mailbox:
        return None
    peers, system = core_peers.all_peers(core), system_of(delivery.mailbox)
    if system != ANYWHERE and peer_towards(core, peers, system) is None:
        return f"waits: {trust.no_route(peers, system).message}"
    if system == ANYWHERE and not delivery.history:
        return "waits: nobody who was asked has it, or nobody was"
    return f"waits: {delivery.history[-1].reason}" if delivery.history else None


def check_ways(core: Core, peers: Mapping[str, Peer], message: Message, mailboxes: Iterable[str]) -> None:
    """Refuse a letter to a system that nobody leads to, or that its scope may not write to."""
    for mailbox in mailboxes:
        _check_way(core, peers, message, parse_address(mailbox, "to"))


def are_open(core: Core, peers: Mapping[str, Peer], message: Message, mailboxes: Iterable[str]) -> bool:
    """Would it pass? Why not is told in the commit, unless the letter is there already: then nothing is asked."""
    try:
        check_ways(core, peers, message, mailboxes)
    except PostroomError:
        return False
    return True


def _check_way(core: Core, peers: Mapping[str, Peer], message: Message, target: Address) -> None:
    peer = peer_towards(core, peers, target.system)
    if peer is None and target.system == ANYWHERE:
        raise Missing(f"there is nobody to ask for {target.agent!r}", field="to", hint="postroom peers add")
    if peer is None:
        raise trust.no_route(peers, target.system)
    if target.system != ANYWHERE:
        trust.check_outgoing(peer, message, target)


def was_sent_to(core: Core, id: str, party: str) -> bool:
    """Was this letter sent to somebody elsewhere? They may answer before we know that it is there, and by a name
    that only a system or an agent was said of.
    """
    found = (one.delivery.mailbox for one in core.store.find(Query(message_ids=(id,))))
    return any(_is_meant(party, mailbox) for mailbox in found)


def _is_meant(party: str, mailbox: str) -> bool:
    value, whose = parse_address(mailbox, "to"), parse_address(party, "sender")
    at_any = not value.agent or same_name(value.agent, whose.agent)
    return bool(value.system) and at_any and (value.system == ANYWHERE or same_name(value.system, whose.system))


def seeks(core: Core) -> bool:
    """Are other systems asked for names that nobody here knows?"""
    return core.limits.federation_strategy != "table" or core.limits.federation_refresh_on_miss


def _normal(core: Core, peers: Mapping[str, Peer], address: Address, field: RecipientKind) -> str:
    if core_peers.is_ours(core, address.system):
        return meant(_here(address, field), core.limits.human)
    named = [peer.system for peer in peers.values() if same_name(peer.system, address.system)]
    return spelt(core, format_address(replace(address, system=named[0]) if named else address))


def _here(address: Address, field: RecipientKind) -> str:
    if address.agent:
        return check_address(address.agent, field)
    if address.scope:
        return check_address(BROADCAST + address.scope, field)
    hint = f"{BROADCAST}<scope> for everybody in a scope"
    raise Invalid(f"{format_address(address)!r} is this room itself", field=field, hint=hint)


def _sent_to(core: Core, post: Post, name: str) -> str:
    if AT in name or is_any(name) or core.store.is_known(name) or post.message.is_automatic:
        return name
    route = route_of(core, name, core.now().wall)
    if route is not None:
        return spelt(core, at_system(route.name or name, route.system))
    if core.limits.federation_strategy != "table" and core_peers.all_peers(core):
        return spelt(core, at_system(name, ANYWHERE))
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
