"""Who of ours a peer is told of, and whom it tells us of: the table by which bare names are found elsewhere.

What a peer says of its agents is believed for a while, and said anew before that is over. On the desk's threads.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import Invalid
from ..model.card import Warmth
from ..model.codec import convert, encode, to_plain
from ..model.message import same_name
from ..model.names import AT, check_name, check_remote_agent, fold
from ..model.peer import Route
from ..model.record import CARD, ROUTE
from ..policy.presence import is_routable
from ..policy.trust import is_reachable, is_shown, speaks_for, strategy_of
from ..service.authorize import OWNER
from ..service.records import put_record
from ..wire.map_names import GUEST, LINK_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..model.card import Agent
    from ..model.peer import Peer
    from ..room import Room
    from ..service.office import Office
    from ..store.base import Write

MOST = 10_000  # agents of one peer
_NEVER = datetime.min.replace(tzinfo=UTC)  # until a route is written down, it is not believed


def exposure(room: Room, peer: Peer) -> dict[str, Any]:
    """What a peer is told: `{agents: [{agentId, status, scopes}]}`, and under `further` the agents of other
    systems that it reaches through us, with their `systemId`; of more than fit into one frame, the first. Whoever
    is not told of is written to by its name and system.
    """
    ours = [
        {"agentId": agent.card.id, "status": agent.presence.words.map, "scopes": list(agent.card.scopes)}
        for agent in shown(room, peer)
    ]
    kept = list(_fitting([*ours, *_further(room._office, peer)][:MOST], room.settings.max_message_bytes))
    told, further = kept[: len(ours)], kept[len(ours) :]
    return {"agents": told} | ({"further": further} if further else {})


def _fitting(rows: list[dict[str, Any]], left: int) -> Iterator[dict[str, Any]]:
    for row in rows:
        left -= len(encode(row)) + 1
        if left < 0:
            return
        yield row


def _further(office: Office, peer: Peer) -> list[dict[str, Any]]:
    """Agents that other peers told of themselves, where this one may reach those systems through us and sees all
    of ours. What a hub told of others is not passed on: so nothing is told in a circle.
    """
    if not peer.relays_to or peer.exposure != "all":
        return []
    return [
        {"agentId": name, "status": route.status, "systemId": route.system}
        for name, route in service.elsewhere.told_of(office, OWNER)
        if not route.by and not same_name(route.system, peer.system)
    ]


def shown(room: Room, peer: Peer) -> list[Agent]:
    """Those that it is told of."""
    return [agent for agent in _ours(room) if is_shown(peer, agent.card) and is_routable(agent.presence)]


def has(room: Room, peer: Peer, name: str) -> Agent | None:
    """The agent of ours of this name that this peer may write to; None: there is none for it."""
    office = room._office
    spelt = None if AT in name else office.store.spelling(name)
    found = () if spelt is None else office.store.records(CARD, spelt)
    agents = [service.directory.agent_of(office, record, office.now()) for record in found]
    able = [one for one in agents if _is_ours(one) and is_reachable(peer, one.card)]
    return next((one for one in able if one.presence.warmth is not Warmth.GONE), None)


def _ours(room: Room) -> list[Agent]:
    return [agent for agent in room.agents() if _is_ours(agent)]


def _is_ours(agent: Agent) -> bool:
    """Not, if it is a guest here."""
    return agent.card.principal != LINK_NAME and GUEST not in agent.card.metadata


def note(office: Office, system: str, said: Any) -> bool:
    """What a peer told of its agents, and of those behind it, stands in the table; of others that it told before,
    nothing more. A name that another peer told of first stays that one's while it is believed. Says whether
    anything is new.
    """
    peer = service.peers.peer(office, system)
    if peer is None or not isinstance(said, dict) or not isinstance(said.get("agents"), list):
        return False
    told = _read(office, peer, said)
    is_new = False

    def plan() -> Sequence[Write]:
        nonlocal is_new
        now = office.now().wall
        until = now + timedelta(seconds=strategy_of(office.limits).believes)
        held = {record.key: record for record in office.store.records(ROUTE)}
        routes = {key: convert(record.value, Route) for key, record in held.items()}
        writes: list[Write] = []
        for key, route in told.items():
            before = routes.get(key)
            if before is not None and _is_fresh(before, route, now, until):
                continue
            if before is None or same_name(before.teller, system) or before.until <= now:
                is_new = is_new or before is None or replace(before, until=until) != replace(route, until=until)
                value = to_plain(replace(route, until=until))
                writes.append(put_record(ROUTE, key, value, held.get(key), durable=False))
        theirs = [key for key, one in routes.items() if same_name(one.teller, system) and not one.is_found]
        gone = [key for key in theirs if key not in told]
        is_new = is_new or bool(gone)
        return [*writes, *(put_record(ROUTE, key, None, held[key], durable=False) for key in gone)]

    office.store.commit(plan)
    return is_new


def _is_fresh(before: Route, route: Route, now: datetime, until: datetime) -> bool:
    """Was the same said a moment ago? Then it need not be written again."""
    is_young = before.until - now > (until - now) * 0.9
    return is_young and replace(before, until=until) == replace(route, until=until)


def _read(office: Office, peer: Peer, said: dict[str, Any]) -> dict[str, Route]:
    """By folded name, where each is. Of agents behind it a peer tells only where it speaks for their system, and
    where that system tells us nothing itself.
    """
    found: dict[str, Route] = {}
    further = said.get("further")
    for row in (*said["agents"], *(further if isinstance(further, list) else ()))[:MOST]:
        name = row.get("agentId", row.get("id")) if isinstance(row, dict) else row
        status = row.get("status") if isinstance(row, dict) else None
        at = row.get("systemId") if isinstance(row, dict) else None
        try:
            name = check_remote_agent(name, "agentId")
            system = peer.system if at is None else check_name(at, "systemId")
        except Invalid:
            continue
        is_itself = same_name(system, peer.system)
        if not is_itself and not _may_tell_of(office, peer, system):
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


def _may_tell_of(office: Office, peer: Peer, system: str) -> bool:
    is_nearer = service.identity.is_ours(office, system) or service.peers.peer(office, system) is not None
    return speaks_for(peer, system) and not is_nearer
