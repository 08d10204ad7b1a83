"""The agents that we announce to a peer, and those that it announces to us.

The latter are the routes by which bare names are found elsewhere.

What a peer says of its agents is believed for a while, and it repeats it before that is over. All of it runs on
the executor's threads.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..core import agents as core_agents
from ..core import outbox, peers
from ..core.authorize import OWNER
from ..core.core import commit, find_record, put_record, records_of
from ..core.folders import make_folders
from ..core.inbox import GetChanges, current_cursor
from ..core.names import mailbox_named
from ..errors import Invalid, Resync
from ..formats.map import GUEST, LINK_NAME
from ..model.agent import Card, Heartbeat, Status, Warmth
from ..model.codec import convert, encode, to_plain
from ..model.message import same_name
from ..model.names import AT, at_system, check_name, check_remote_agent, fold
from ..model.peer import Route
from ..model.record import BEAT, CARD, ROUTE
from ..policy.routing import is_routable
from ..policy.trust import is_reachable, is_shown, speaks_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..core.core import Core
    from ..model.agent import Agent
    from ..model.peer import Peer
    from ..model.query import Moment
    from ..model.record import Cursor, Record
    from ..store.protocol import Write


MOST = 10_000  # agents of one peer
_NEVER = datetime.min.replace(tzinfo=UTC)  # a route is believed from the moment it is recorded


def exposure(core: Core, peer: Peer) -> dict[str, Any]:
    """Return the announcement of our agents to a peer: `{agents: [{agentId, status, scopes}]}`.

    Under `further` stand the agents of other systems that it reaches through us, with their `systemId`.

    Of more agents than fit into one frame only the first are announced; the others are reached by name and system.
    """
    ours = [
        {"agentId": agent.card.id, "status": agent.presence.words.map, "scopes": list(agent.card.scopes)}
        for agent in shown(core, peer)
    ]
    kept = list(_fitting([*ours, *_further(core, peer)][:MOST], core.limits.max_message_bytes))
    result, further = kept[: len(ours)], kept[len(ours) :]
    return {"agents": result} | ({"further": further} if further else {})


def _fitting(rows: list[dict[str, Any]], left: int) -> Iterator[dict[str, Any]]:
    for row in rows:
        left -= len(encode(row)) + 1
        if left < 0:
            return
        yield row


def _further(core: Core, peer: Peer) -> list[dict[str, Any]]:
    """Return the agents of other peers, if this one may reach those systems through us and sees all of ours.

    What a hub announced of third systems is not passed on, so nothing is announced in a circle.
    """
    if not peer.relays_to or peer.exposure != "all":
        return []
    return [
        {"agentId": name, "status": route.status, "systemId": route.system}
        for name, route in outbox.announced_agents(core)
        if not route.by and not same_name(route.system, peer.system)
    ]


def shown(core: Core, peer: Peer) -> list[Agent]:
    """Return the agents that are announced to a peer."""
    ours = [agent for agent in core_agents.registered_agents(core) if _is_ours(agent)]
    return [agent for agent in ours if is_shown(peer, agent.card) and is_routable(agent.presence)]


def has(core: Core, peer: Peer, name: str) -> Agent | None:
    """Return our agent of this name that the peer may write to, or None."""
    held = None if AT in name else find_record(core, CARD, mailbox_named(core, name) or name)
    if held is None:
        return None
    agent = core_agents.agent_of(core, held, core.now())
    is_able = _is_ours(agent) and is_reachable(peer, agent.card) and agent.presence.warmth is not Warmth.GONE
    return agent if is_able else None


SLICE = 1000  # changes that are read at once


class CardWatch:
    """A look at whether cards of agents have changed since the last look."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._cursor: Cursor | None = None  # none before the first look

    def have_changed(self) -> bool:
        since = "" if self._cursor is None else str(self._cursor)
        try:
            found = GetChanges(since=since, limit=SLICE).run(self._core, OWNER)
        except (Resync, Invalid):
            self._cursor = current_cursor(self._core, OWNER)
            return True
        self._cursor = found.cursor
        # A full slice may hide a card behind it: one look too many costs less than an agent that nobody sees.
        return any(change.kind == CARD for change in found.changes) or len(found.changes) == SLICE


def _is_ours(agent: Agent) -> bool:
    """Return whether it is an agent of this room, and no guest by a link."""
    return agent.card.principal != LINK_NAME and GUEST not in agent.card.metadata


def note(core: Core, system: str, params: Any) -> bool:
    """Record what a peer announces of its agents and of those behind it, in place of what it announced before.

    A name that another peer announced first stays that one's while it is believed. Return whether anything is new.
    """
    peer = peers.peer(core, system)
    if peer is None or not isinstance(params, dict) or not isinstance(params.get("agents"), list):
        return False
    # Outside of the commit: what a peer writes may be long, and other writers wait for a plan.
    result = _read(core, peer, params)

    def plan() -> tuple[list[Write], bool]:
        now, is_new = core.now().wall, False
        until = now + timedelta(seconds=core.limits.federation_table_ttl)
        held = records_of(core, ROUTE)
        routes = {key: convert(record.value, Route) for key, record in held.items()}
        writes: list[Write] = []
        for key, route in result.items():
            before = routes.get(key)
            is_same = before is not None and replace(before, until=until) == replace(route, until=until)
            # What was announced a moment ago need not be written again.
            if before is not None and is_same and before.until - now > (until - now) * 0.9:
                continue
            # First come, first believed: a peer cannot draw away mail for another peer's agent by announcing its
            # name.
            if before is None or same_name(before.teller, system) or before.until <= now:
                is_new = is_new or not is_same
                value = to_plain(replace(route, until=until))
                writes.append(put_record(ROUTE, key, value, held.get(key), durable=False))
        # An announcement lists all agents. One that is missing is gone, unless it was found by asking for its
        # name.
        theirs = [key for key, one in routes.items() if same_name(one.teller, system) and not one.is_found]
        gone = [key for key in theirs if key not in result]
        writes += [put_record(ROUTE, key, None, held[key], durable=False) for key in gone]
        return writes, is_new or bool(gone)

    return commit(core, plan)


def _read(core: Core, peer: Peer, params: dict[str, Any]) -> dict[str, Route]:
    """Return the announced routes by folded name.

    A peer may announce agents of another system only if it speaks for that system, and we have no link to it.
    """
    found: dict[str, Route] = {}
    further = params.get("further")
    for row in (*params["agents"], *(further if isinstance(further, list) else ()))[:MOST]:
        name = row.get("agentId", row.get("id")) if isinstance(row, dict) else row
        status = row.get("status") if isinstance(row, dict) else None
        at = row.get("systemId") if isinstance(row, dict) else None
        try:
            name = check_remote_agent(name, "agentId")
            system = peer.system if at is None else check_name(at, "systemId")
        except Invalid:
            continue
        is_itself = same_name(system, peer.system)
        is_nearer = peers.is_ours(core, system) or peers.peer(core, system) is not None
        if not is_itself and (is_nearer or not speaks_for(peer, system)):
            continue
        route = Route(
            system=peer.system if is_itself else system,
            until=_NEVER,
            status=status[:40] if isinstance(status, str) else "",
            name=name,
            by="" if is_itself else peer.system,
        )
        found.setdefault(fold(name), route)
    return found


# -- mounted folders
#
# Agents of the room that has mounted a folder stand in the directory of the mounted room as `ann@home`, and so in
# its registry, where its design has one. A program that writes to one of them puts the letter into its folder, as
# for any other agent.

EVERY = 20.0  # seconds between two heartbeats of an agent that is present; a registry believes one for a minute


def show(core: Core, host: str, agents: Sequence[Agent]) -> None:
    """Show these agents of the host, and no others; none, if it does not mount this room any more."""
    moment = core.now()
    wanted = {at_system(agent.card.id, host): agent for agent in agents}
    make_folders(core, wanted)

    def plan() -> tuple[list[Write], None]:
        cards = records_of(core, CARD)
        beats = records_of(core, BEAT)
        # Unmounted since: show nothing, else guests would stay for ever.
        shown = {} if peers.peer(core, host) is None else wanted
        writes: list[Write] = []
        for name, agent in shown.items():
            writes += _put(CARD, name, _card(name, host, agent, cards.get(name)), cards.get(name))
            beat = _beat(agent, beats.get(name), moment)
            writes += _put(BEAT, name, beat, beats.get(name))
        # Guests that are shown no more: another program would go on writing to them.
        for name in [name for name, held in cards.items() if _is_of(host, held) and name not in shown]:
            writes += _put(CARD, name, None, cards[name]) + _put(BEAT, name, None, beats.get(name))
        return writes, None

    commit(core, plan)


def _card(name: str, host: str, agent: Agent, held: Record | None) -> Card:
    """Return the card of a guest: what the agent says of itself, as far as that is true in the mounted room."""
    since = agent.card.registered_at if held is None else convert(held.value, Card).registered_at
    return Card(
        id=name,
        registered_at=since,
        display_name=agent.card.display_name,
        description=agent.card.description,
        capabilities=agent.card.capabilities,
        metadata={GUEST: {"of": host}},
        principal=GUEST,
    )


def _beat(agent: Agent, held: Record | None, moment: Moment) -> Heartbeat:
    """Return a heartbeat: a new one at most every EVERY seconds, and none for an agent that has left."""
    left = agent.presence.words.nanobot == Status.OFFLINE
    before = None if held is None else convert(held.value, Heartbeat)
    is_young = before is not None and before.boot == moment.boot and moment.steady < before.steady + EVERY
    if before is not None and before.left == left and (left or is_young):
        return before
    wall, steady = moment.wall, moment.steady
    return Heartbeat(at=wall, steady=steady, boot=moment.boot, active_at=wall, poll_interval=EVERY, left=left)


def _is_of(host: str, held: Record) -> bool:
    guest = convert(held.value, Card).metadata.get(GUEST)
    return isinstance(guest, dict) and guest.get("of") == host


def _put(kind: str, key: str, value: Card | Heartbeat | None, held: Record | None) -> list[Write]:
    if held is None and value is None:
        return []
    if held is not None and value is not None and convert(held.value, type(value)) == value:
        return []
    plain: Any = None if value is None else to_plain(value)
    return [put_record(kind, key, plain, held, durable=kind == CARD)]
