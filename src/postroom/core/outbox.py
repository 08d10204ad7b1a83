"""The outbox: mail for other systems, where each recipient is, what goes next, and what became of it.

A letter to `agent@system` is queued in a mailbox of that name until the other system confirms that it is safe
there; then the delivery is done. Between one sender and one recipient nothing overtakes a letter that waits for a
retry. A letter that nobody took in time, or that the other system refused, is dead, and its sender gets a bounce.

A bare name is an agent of this room, if one has that name; else the agent that the table of routes knows at
another system; else, if the settings say so, a name to be searched for (`name@ANYWHERE`). The couriers of
`federation/` carry the letters; nothing here opens a connection.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, Missing, PostroomError
from ..model import delivery as model_delivery
from ..model.codec import convert
from ..model.delivery import GIVEN, Attempt, State
from ..model.message import Recipient, is_any, origin_route, same_name
from ..model.names import (
    ANYWHERE,
    AT,
    BROADCAST,
    POSTMASTER,
    agent_of,
    at_system,
    fold,
    format_address,
    meant,
    parse_address,
    system_of,
)
from ..model.peer import Carried, Route
from ..model.query import Query
from ..model.record import EVERYONE, LINK, ROUTE, SERVED
from ..model.values import passes, time_in
from ..policy import retry, trust
from ..policy.retry import is_too_old, latest_try
from ..store.protocol import Move, is_known, outgoing, spelling_of, waiting_letters
from . import deliveries as core_deliveries
from . import peers as core_peers
from . import task_index
from .compose import check_address
from .core import change_record, commit, find_record, find_value, put_record, records_of, values_of
from .deliveries import SLICE, apply_timers, move_found
from .proof import people_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..model.delivery import Delivery
    from ..model.message import Message, RecipientKind
    from ..model.names import Address
    from ..model.peer import Peer
    from ..model.query import Found
    from ..store.protocol import Post, Write
    from .core import Core


def waiting_mailboxes(core: Core, limit: int | None = None) -> list[str]:
    """Return mailboxes at other systems with mail that could go now, the longest waiting first."""
    now = core.now().wall
    return [*outgoing(core.store, now, latest_try(now, core.limits))][:limit]


def next_letters(
    core: Core, mailboxes: Sequence[str], limit: int, takes: Callable[[Found], bool] = lambda _: True
) -> list[Found]:
    """Return the letters that go next to these mailboxes, in order of acceptance, if the courier `takes` them.

    Between one sender and one recipient nothing overtakes a letter that waits for a retry or for another courier.
    """
    moment = core.now()
    apply_timers(core, moment, mailboxes)
    found = [one for mailbox in mailboxes for one in _next_at(core, mailbox, moment.wall, limit, takes)]
    found.sort(key=lambda one: (one.delivery.number, one.delivery.mailbox))
    return found[:limit]


def assign(core: Core, letters: Sequence[Found], system: str) -> None:
    """Record that letters which could go to any of several systems are about to go to this one.

    It is recorded before they are sent: from now on that system may have them.
    """
    attempt = Attempt(at=core.now().wall, holder=system, reason=f"{GIVEN}{system}")

    def plan() -> Sequence[Write]:
        # A letter that one system may have is never given to another: it would be delivered twice (G9).
        free = [one for found in letters for one in _queued_now(core, found) if not one.given_to]
        return [Move(one, model_delivery.give(one, attempt), "give") for one in free]

    core.store.commit(plan)


def record_departure(core: Core, deliveries: Sequence[Delivery], system: str) -> None:
    """Record that a system has these letters safe: the one they are for, or one that relays them."""
    now, places = core.now().wall, {(one.message_id, one.mailbox) for one in deliveries}

    def plan() -> Sequence[Write]:
        # As they are now: something may have been unsent, or have expired, while it was on its way.
        queued = core.store.find(Query(message_ids=tuple({id for id, _ in places}), states=(State.QUEUED,)))
        gone = [f.delivery for f in queued if (f.message.id, f.delivery.mailbox) in places]
        return [Move(one, model_delivery.depart(one, now, _whereto(one, system)), "depart") for one in gone]

    core.store.commit(plan)


def record_delay(core: Core, found: Found, reason: str, due_at: datetime) -> None:
    """Record that the other system did not take a letter now; it is tried again at `due_at`."""
    attempt = Attempt(at=core.now().wall, holder=system_of(found.delivery.mailbox), reason=reason)
    move_found(core, _still_queued(found), "retry", lambda one: model_delivery.retry(one, attempt, due_at))


def record_refusal(core: Core, found: Found, reason: str) -> None:
    """Record that the other system refuses a letter: it is dead, and its sender gets a bounce."""
    now = core.now().wall

    def plan() -> Sequence[Write]:
        return [write for one in _queued_now(core, found) for write in _buried(core, found, one, reason, now)]

    core.store.commit(plan)


def give_up_old(core: Core, now: datetime) -> int:
    """Bury letters that waited longer than `outbox_max_age`, bounce them, and return how many."""
    given_up = 0

    def plan() -> tuple[list[Write], int]:
        old = list(_too_old(core, now))
        writes: list[Write] = []
        for found in old:
            reason = f"{_waited_for(found.delivery)} did not take it in time"
            writes += _buried(core, found, found.delivery, reason, now)
        return writes, len(old)

    while next(_too_old(core, now), None) is not None:
        buried = commit(core, plan)
        # Another process settled them between the look and the commit.
        if not buried:
            break
        given_up += buried
    return given_up


def waits_since(found: Found) -> datetime:
    """Return since when a letter waits: since it was written, its scheduled time came, or it was revived.

    A relayed letter waits since it arrived here: the time it was written is from another system's clock.
    """
    came_at = time_in(origin_route(found.message), "at")
    return found.delivery.delivered_at or came_at or found.message.created_at


def _waited_for(delivery: Delivery) -> str:
    system = delivery.given_to or system_of(delivery.mailbox)
    return "any system that has it" if system == ANYWHERE else system


def _next_at(core: Core, mailbox: str, now: datetime, limit: int, takes: Callable[[Found], bool]) -> list[Found]:
    held: set[str] = set()  # senders with a letter that waits for a retry or for another courier
    ready: list[Found] = []
    for found in _queued(core, mailbox, max(limit, SLICE)):
        delivery, sender = found.delivery, found.message.sender
        is_due = _is_due(core, delivery, now)
        # A letter that was scheduled for later (no attempts) holds nothing back; one that is retried does (G7).
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
    # A retry further ahead than any delay was set by a wrong clock.
    return delivery.attempts > 0 and delivery.due_at > latest_try(now, core.limits)


def _queued(core: Core, mailbox: str, page: int) -> Iterator[Found]:
    """Yield all letters that wait in a mailbox, in order of acceptance, page by page."""
    after = 0
    while found := core.store.find(
        Query(mailbox=mailbox, states=(State.QUEUED,), after=after, order="age", limit=page)
    ):
        yield from found
        after = found[-1].delivery.number
        if len(found) < page:
            return


def _too_old(core: Core, now: datetime) -> Iterator[Found]:
    """Yield up to SLICE letters that waited too long.

    Later letters were sent later, so the first young one ends the search in a mailbox.
    """
    count = 0
    for mailbox in outgoing(core.store, now, latest_try(now, core.limits)):
        for found in _queued(core, mailbox, SLICE):
            since = waits_since(found)
            # By the earlier of both times, because a revived letter waits again and would end the search too soon.
            if not is_too_old(min(found.message.created_at, since), now, core.limits):
                break
            is_due = _is_due(core, found.delivery, now)
            if (is_due or found.delivery.attempts) and is_too_old(since, now, core.limits):
                yield found
                count += 1
            if count == SLICE:
                return


def _still_queued(found: Found) -> Query:
    """Return the query for the delivery as it is now; it finds nothing if that was unsent or expired meanwhile."""
    return Query(mailbox=found.delivery.mailbox, message_ids=(found.message.id,), states=(State.QUEUED,))


def _queued_now(core: Core, found: Found) -> list[Delivery]:
    return [one.delivery for one in core.store.find(_still_queued(found))]


def _buried(core: Core, found: Found, delivery: Delivery, reason: str, now: datetime) -> list[Write]:
    dead = model_delivery.bury(delivery, Attempt(at=now, holder=system_of(delivery.mailbox), reason=reason))
    return [Move(delivery, dead, "bury"), *core_deliveries.bounce(core, found.message, dead, now)]


def _whereto(delivery: Delivery, system: str) -> str:
    target = system_of(delivery.mailbox)
    is_there = target == ANYWHERE or same_name(target, system)
    return system if is_there else f"{system}, on its way to {target}"


# -- recipients at other systems


def normalize_recipients(core: Core, peers: Mapping[str, Peer], message: Message) -> Message:
    """Return the letter with normalized recipients.

    `x@<this room>` becomes `x`; each system is spelt as its peer is, and each name there as it was first spelt
    here.
    """
    recipients: dict[str, Recipient] = {}
    for recipient in message.recipients:
        address = recipient.address
        if AT in address:
            address = _normal(core, peers, parse_address(address, recipient.kind), recipient.kind)
        key = fold(address) if AT in address else address
        recipients.setdefault(key, Recipient(address, recipient.kind))
    return replace(message, recipients=tuple(recipients.values()))


def may_exist(core: Core, address: str) -> bool:
    """Return whether the address may exist: False only for `x@<this room>` without an agent `x`."""
    if AT not in address or not agent_of(address) or not core_peers.is_ours(core, system_of(address)):
        return True
    spelt = spelling_of(core.store, agent_of(address))
    return spelt is not None and is_known(core.store, spelt)


def resolve_recipients(core: Core, post: Post) -> Post:
    """Return the letter with each recipient at its system, or raise a refusal. Part of a commit."""
    was_for = [delivery.mailbox for delivery in post.deliveries]
    deliveries = [_sent_to(core, post, name) for name in was_for]
    if deliveries != was_for:
        post = _readdressed(post, deliveries)
    unasked = [name for name in deliveries if AT in name]
    if not post.routes:  # routes were checked before the commit; later changes are the courier's to check
        unasked = [name for name in unasked if name not in was_for]
    if unasked:
        check_routes(core, core_peers.all_peers(core), post.message, unasked)
    return post


def spell_remote(core: Core, mailbox: str) -> str:
    """Return a remote address as it is spelt here, else as its system spells it."""
    held = spelling_of(core.store, mailbox)
    if held is not None or not agent_of(mailbox):
        return held or mailbox
    route = _known_route(core, agent_of(mailbox))
    if route is None or not route.name or not same_name(route.system, system_of(mailbox)):
        return mailbox
    return mailbox.replace(agent_of(mailbox), route.name, 1)


def route_of(core: Core, name: str, now: datetime) -> Route | None:
    """Return the system where the table of routes has an agent, while that is fresh and a peer leads there."""
    route = _known_route(core, name)
    if route is None or route.until <= now:
        return None
    return route if peer_towards(core, core_peers.all_peers(core), route.system) else None


def _known_route(core: Core, name: str) -> Route | None:
    return find_value(core, ROUTE, fold(name), Route)


def announced_agents(core: Core) -> list[tuple[str, Route]]:
    """Return agents at other systems that peers announced, while that is fresh and a peer leads there."""
    now, peers = core.now().wall, core_peers.all_peers(core)
    return [
        (at.name or key, at)
        for key, at in values_of(core, ROUTE, Route).items()
        if at.until > now and not at.is_found and peer_towards(core, peers, at.system)
    ]


def refreshes_on_miss(core: Core) -> bool:
    """Return whether peers are asked for unknown names for which mail waits here.

    Never in a room of files: an agent that only reads and writes its files may exist without being known.
    """
    return (
        core.limits.federation_strategy == "table"
        and core.limits.federation_refresh_on_miss
        and core.store.vouches
    )


def unknown_names(core: Core) -> dict[str, int]:
    """Return unknown names with unread mail here, with the number of the newest letter for each.

    People and the postmaster are always known: nobody leads their mail away.
    """
    always = {POSTMASTER, *people_names(core)}
    found: dict[str, int] = {}
    for name in core.store.names():
        if name.known or AT in name.mailbox or fold(name.mailbox) in always:
            continue
        newest = Query(mailbox=name.mailbox, states=(State.UNREAD,), unread_only=True, order="newest", limit=1)
        found |= {one.delivery.mailbox: one.delivery.number for one in core.store.find(newest)}
    return found


def redirect_unknown(core: Core, name: str, spelling: str, system: str) -> str | None:
    """Queue the mail for an unknown name for a system that has such an agent.

    Returns the mailbox there, or None if nothing goes. Letters that were written to a scope, are too old to wait
    for another system, or may not go there, stay here.
    """
    mailbox = spell_remote(core, at_system(spelling, system))

    def plan() -> tuple[Sequence[Write], bool]:
        # Registered here since it was looked up: its mail stays.
        if is_known(core.store, name):
            return [], False
        now, peers = core.now().wall, core_peers.all_peers(core)
        # The outbox has a limit per system; what does not fit stays here, where it lies safe (G10).
        free = core.limits.outbox_max_letters - waiting_letters(core.store, mailbox, name)[0]
        lying = Query(mailbox=name, states=(State.UNREAD,), unread_only=True, order="age", limit=max(0, free))
        going = [one for one in core.store.find(lying) if _may_go_on(core, peers, one, mailbox, now)]
        if not going:
            return [], False
        moves = [
            Move(one.delivery, model_delivery.redirect(one.delivery, mailbox, now), model_delivery.REDIRECTED)
            for one in going
        ]
        until = now + timedelta(seconds=core.limits.federation_table_ttl)
        route = Route(system=system, until=until, name=spelling, is_found=True)
        held = find_record(core, ROUTE, fold(name))
        tasks = task_index.redirect(core, [one.message for one in going], name, mailbox)
        return [*moves, *tasks, put_record(ROUTE, fold(name), route, held, durable=False)], True

    return mailbox if commit(core, plan) else None


def search_again(core: Core, found: Found, reason: str) -> bool:
    """Queue a letter that a system refused for the next system that has the name; return whether that was done.

    Only if the sender named no system and peers were asked for the name. Never for a task: its parties are
    recorded by name and system.
    """
    mailbox = found.delivery.mailbox
    name, system = agent_of(mailbox), system_of(mailbox)
    route = _known_route(core, name)
    # Only a name that was looked up is looked up again: a sender who named the system meant it.
    was_found = route is not None and route.is_found and same_name(route.system, system)
    if (
        not was_found
        or found.message.task is not None
        or not any(same_name(one.address, name) for one in found.message.recipients)
    ):
        return False
    now, target = core.now().wall, at_system(name, ANYWHERE)
    attempt = Attempt(at=now, holder=system, reason=reason)
    redirected = partial(model_delivery.redirect, mailbox=target, now=now, attempt=attempt)
    return bool(move_found(core, _still_queued(found), model_delivery.REDIRECTED, redirected))


def _may_go_on(core: Core, peers: Mapping[str, Peer], found: Found, mailbox: str, now: datetime) -> bool:
    message, name = found.message, found.delivery.mailbox
    is_meant = any(same_name(recipient.address, name) for recipient in message.recipients)
    if message.is_automatic or AT in message.sender or not (is_meant or found.delivery.kind == "bcc"):
        return False
    is_old = retry.is_too_old(waits_since(found), now, core.limits)
    # The refusal itself is raised in the commit, for a repeat of a letter that is stored already is not refused.
    return not is_old and passes(PostroomError, check_routes, core, peers, message, [mailbox])


def peer_towards(core: Core, peers: Mapping[str, Peer], system: str) -> Peer | None:
    """Return the peer that leads to a system; any trusted peer for a system that is yet to be found."""
    if system == ANYWHERE:
        return next((peer for peer in peers.values() if peer.trusted), None)
    return trust.route_to(peers, system, core.limits)


def count_waiting(core: Core) -> tuple[dict[str, int], dict[str, int]]:
    """Count the letters that wait for each peer, and those for each system that no peer leads to."""
    peers = core_peers.all_peers(core)
    by_peer: dict[str, int] = {}
    stranded: dict[str, int] = {}
    for mailbox, many in outgoing(core.store).items():
        system = system_of(mailbox)
        peer = peer_towards(core, peers, system)
        counts, name = (stranded, system) if peer is None else (by_peer, peer.system)
        if peer is None or system != ANYWHERE:
            counts[name] = counts.get(name, 0) + many
    return by_peer, stranded


def why_it_waits(core: Core, delivery: Delivery) -> str | None:
    """Return why a letter for another system is still here, as far as the room knows."""
    if delivery.state is not State.QUEUED or AT not in delivery.mailbox:
        return None
    peers, system = core_peers.all_peers(core), system_of(delivery.mailbox)
    if system != ANYWHERE and peer_towards(core, peers, system) is None:
        return f"waits: {trust.no_route(peers, system).message}"
    if system == ANYWHERE and not delivery.history:
        return "waits: nobody who was asked has it, or nobody was"
    if delivery.history:
        return f"waits: {delivery.history[-1].reason}"
    (now,) = carried(core, [system])
    return f"waits: {now.reason}" if now.reason else None


def check_routes(core: Core, peers: Mapping[str, Peer], message: Message, mailboxes: Iterable[str]) -> None:
    """Refuse a letter to a system that no peer leads to, or that its scope may not write to."""
    for mailbox in mailboxes:
        target = parse_address(mailbox, "to")
        peer = peer_towards(core, peers, target.system)
        if peer is None and target.system == ANYWHERE:
            raise Missing(
                f"there is no peer that could look up {target.agent!r}", field="to", hint="postroom peers add"
            )
        if peer is None:
            raise trust.no_route(peers, target.system)
        if target.system != ANYWHERE:
            trust.check_outgoing(peer, message, target)


def was_sent_to(core: Core, id: str, party: str) -> bool:
    """Return whether this letter was sent to that remote party.

    The party may answer before its delivery is confirmed, and under a name of which the sender wrote only the
    agent or only the system.
    """
    found = (one.delivery.mailbox for one in core.store.find(Query(message_ids=(id,))))
    return any(_is_meant(party, mailbox) for mailbox in found)


def _is_meant(party: str, mailbox: str) -> bool:
    target, sender = parse_address(mailbox, "to"), parse_address(party, "sender")
    if not target.system or (target.agent and not same_name(target.agent, sender.agent)):
        return False
    return target.system == ANYWHERE or same_name(target.system, sender.system)


def searches_unknown(core: Core) -> bool:
    """Return whether other systems are asked for names that are unknown here."""
    return core.limits.federation_strategy != "table" or core.limits.federation_refresh_on_miss


def _normal(core: Core, peers: Mapping[str, Peer], address: Address, field: RecipientKind) -> str:
    if core_peers.is_ours(core, address.system):
        return meant(_here(address, field), core.limits.human)
    named = [peer.system for peer in peers.values() if same_name(peer.system, address.system)]
    return spell_remote(core, format_address(replace(address, system=named[0]) if named else address))


def _here(address: Address, field: RecipientKind) -> str:
    if address.agent:
        return check_address(address.agent, field)
    if address.scope:
        return check_address(BROADCAST + address.scope, field)
    raise Invalid(
        f"{format_address(address)!r} is this room itself",
        field=field,
        hint=f"{BROADCAST}<scope> for everybody in a scope",
    )


def _sent_to(core: Core, post: Post, name: str) -> str:
    if AT in name or is_any(name) or is_known(core.store, name) or post.message.is_automatic:
        return name
    route = route_of(core, name, core.now().wall)
    if route is not None:
        return spell_remote(core, at_system(route.name or name, route.system))
    if core.limits.federation_strategy != "table" and core_peers.all_peers(core):
        return spell_remote(core, at_system(name, ANYWHERE))
    return name


def _readdressed(post: Post, names: Sequence[str]) -> Post:
    """Return the letter with deliveries queued for other systems.

    The time of delivery is kept only where it differs from the time the letter was written.
    """
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


# -- the links: whether anybody serves this room, which links are up, since when
#
# The process that serves a room with peers records both, so that every other process can say why a letter waits.
# It writes when a link comes or goes, and every LINK_BEAT seconds that it still runs.

LINK_BEAT = 30.0  # seconds between two records that the serving process still runs
SILENT = timedelta(seconds=3 * LINK_BEAT)  # after which it counts as gone


class LinkStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether a link is up, and since when."""

    system: str
    since: datetime
    is_up: bool = False
    problem: str = ""  # why it is down


class Served(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last sign of life of the process that serves the room."""

    since: datetime
    seen: datetime
    is_over: bool = False  # it ended in order


def record_links(core: Core, problems: Mapping[str, str | None], began: datetime) -> None:
    """Record that this process serves the room since it `began`, and the state of its links.

    `problems`: by system, why its link is down; None if it is up.
    """

    def plan() -> Sequence[Write]:
        now, held = core.now().wall, records_of(core, LINK)
        writes: list[Write] = []
        for system, problem in problems.items():
            record = held.pop(fold(system), None)
            before = None if record is None else convert(record.value, LinkStatus)
            is_same = before is not None and before.is_up == (problem is None)
            since = before.since if before is not None and is_same else now
            after = LinkStatus(system=system, since=since, is_up=problem is None, problem=problem or "")
            if after != before:
                writes.append(put_record(LINK, fold(system), after, record, durable=False))
        gone = [put_record(LINK, key, None, record, durable=False) for key, record in held.items()]
        sign = put_record(
            SERVED, EVERYONE, Served(since=began, seen=now), find_record(core, SERVED, EVERYONE), durable=False
        )
        return [*writes, *gone, sign]

    core.store.commit(plan)


def record_end(core: Core, began: datetime) -> None:
    """Record that this process serves the room no more."""
    ended = Served(since=began, seen=core.now().wall, is_over=True)
    change_record(core, SERVED, EVERYONE, Served, lambda _: ended, durable=False)


def carried(core: Core, systems: Iterable[str]) -> tuple[Carried, ...]:
    """Return for each system what carries mail there now or, if nothing does, why not and since when."""
    peers = core_peers.all_peers(core)
    served, statuses = find_value(core, SERVED, EVERYONE, Served), values_of(core, LINK, LinkStatus)
    return tuple(_carried(core, peers, served, statuses, system) for system in systems)


def _carried(
    core: Core, peers: Mapping[str, Peer], served: Served | None, statuses: Mapping[str, LinkStatus], system: str
) -> Carried:
    if system == ANYWHERE:
        ways = [peer for peer in peers.values() if peer.trusted]
    else:
        ways = list(trust.routes_to(peers, system, core.limits))
    if not ways:
        is_known = any(fold(peer.system) == fold(system) for peer in peers.values())
        reason = f"{system} is not trusted" if is_known else f"{system} is not a known system"
        return Carried(system=system, state="unknown", reason=reason)
    fetching = [peer for peer in ways if peer.is_mount and not peer.place]
    if fetching:  # it has mounted this room, and carries the mail both ways itself
        return Carried(system=system, state="up")
    if served is None or served.is_over or core.now().wall - served.seen > SILENT:
        since = None if served is None else served.seen
        return Carried(system=system, state="unserved", since=since, reason="nobody serves this room")
    known = [statuses[fold(peer.system)] for peer in ways if fold(peer.system) in statuses]
    up = next((one for one in known if one.is_up), None)
    if up is not None:
        return Carried(system=system, state="up", since=up.since)
    first = next(iter(known), None) or LinkStatus(system=ways[0].system, since=served.since)
    why = f": {first.problem}" if first.problem else ""
    return Carried(
        system=system, state="down", since=first.since, reason=f"the link to {first.system} is down{why}"
    )
