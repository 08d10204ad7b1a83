"""Who of ours a peer is told of, and whom it tells us of: the table by which bare names are found elsewhere.

What a peer says of its agents is believed for a while, and said anew before that is over. On the desk's threads.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .. import service
from ..errors import Invalid
from ..model.card import Warmth
from ..model.codec import convert, encode, to_plain
from ..model.names import AT, check_remote_agent, fold
from ..model.peer import Route
from ..model.record import CARD, ROUTE
from ..policy.presence import is_routable
from ..policy.trust import is_reachable, is_shown, strategy_of
from ..service.records import put_record
from ..wire.map_names import GUEST, LINK_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..model.card import Agent
    from ..model.peer import Peer
    from ..model.record import Record
    from ..room import Room
    from ..service.office import Office
    from ..store.base import Write

MOST = 10_000  # agents of one peer


def exposure(room: Room, peer: Peer) -> dict[str, Any]:
    """What a peer is told: `{agents: [{agentId, status, scopes}]}`; of more than fit into one frame, the first.
    Whoever is not told of is written to by its name and system.
    """
    rows: list[dict[str, Any]] = []
    left = room.settings.max_message_bytes
    for agent in shown(room, peer)[:MOST]:
        card = agent.card
        row = {"agentId": card.id, "status": agent.presence.words.map, "scopes": list(card.scopes)}
        left -= len(encode(row)) + 1
        if left < 0:
            break
        rows.append(row)
    return {"agents": rows}


def shown(room: Room, peer: Peer) -> list[Agent]:
    """Those that it is told of."""
    return [agent for agent in _ours(room) if is_shown(peer, agent.card) and is_routable(agent.presence)]


def has(room: Room, peer: Peer, name: str) -> str | None:
    """How an agent of ours is that this peer may write to; None: there is none of the name for it."""
    office = room._office
    spelt = None if AT in name else office.store.spelling(name)
    found = () if spelt is None else office.store.records(CARD, spelt)
    agents = [service.directory.agent_of(office, record, office.now()) for record in found]
    able = [one for one in agents if _is_ours(one) and is_reachable(peer, one.card)]
    return next((one.presence.words.map for one in able if one.presence.warmth is not Warmth.GONE), None)


def _ours(room: Room) -> list[Agent]:
    return [agent for agent in room.agents() if _is_ours(agent)]


def _is_ours(agent: Agent) -> bool:
    """Not, if it is a guest here."""
    return agent.card.principal != LINK_NAME and GUEST not in agent.card.metadata


def note(office: Office, system: str, said: Any) -> None:
    """What a peer told of its agents stands in the table; of others that it told before, nothing more. A name that
    another peer told of first stays that one's while it is believed.
    """
    told = _read(said)
    if told is None:
        return

    def plan() -> Sequence[Write]:
        now = office.now().wall
        until = now + timedelta(seconds=strategy_of(office.limits).believes)
        held = {record.key: record for record in office.store.records(ROUTE)}
        routes = {key: convert(record.value, Route) for key, record in held.items()}
        writes: list[Write] = []
        for key, status in told.items():
            before = routes.get(key)
            if before is not None and _is_fresh(before, system, status, now, until):
                continue
            if before is None or before.system == system or before.until <= now:
                writes += _put(key, Route(system=system, until=until, status=status), held.get(key))
        gone = [key for key, route in routes.items() if route.system == system and key not in told]
        return [*writes, *(put_record(ROUTE, key, None, held[key], durable=False) for key in gone)]

    office.store.commit(plan)


def _is_fresh(route: Route, system: str, status: str, now: datetime, until: datetime) -> bool:
    """Was the same said a moment ago? Then it need not be written again."""
    is_young = route.until - now > (until - now) * 0.9
    return (route.system, route.status) == (system, status) and is_young


def _put(key: str, route: Route, held: Record | None) -> list[Write]:
    return [put_record(ROUTE, key, to_plain(route), held, durable=False)]


def _read(said: Any) -> dict[str, str] | None:
    """By folded name, how each is. None: nothing was said."""
    rows = said.get("agents") if isinstance(said, dict) else None
    if not isinstance(rows, list):
        return None
    found: dict[str, str] = {}
    for row in rows[:MOST]:
        name = row.get("agentId", row.get("id")) if isinstance(row, dict) else row
        try:
            key = fold(check_remote_agent(name, "agentId"))
        except Invalid:
            continue
        status = row.get("status") if isinstance(row, dict) else None
        found[key] = status[:40] if isinstance(status, str) else ""
    return found
