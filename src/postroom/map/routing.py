"""`map/send`, from an address to a durable letter, and `map/replay`, past events.

A letter follows the rules of all letters.

Roles, relatives and broadcasts mean every agent that is registered and not gone, present or away: mail for those
away waits. Scopes stay addresses of the room itself.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import UNSET
from msgspec.structs import replace

from ..core import agents as core_agents
from ..core import messages, outbox
from ..core.authorize import OWNER
from ..core.core import values_of
from ..core.inbox import GetChanges, current_cursor
from ..core.messages import Receipt
from ..core.names import is_known, mailbox_named
from ..core.peers import all_peers, system_id
from ..core.verb import perform, set_parameters
from ..errors import IdTaken, Invalid, Missing, Resync, UnknownAgent, UnknownMessage
from ..formats.events import map_event, number_of
from ..formats.map import (
    LINK_NAME,
    REPLAY,
    SEND,
    answered,
    children_of,
    cleaned,
    has_gone,
    letter_fields,
    once_key,
    read_address,
    role_of,
)
from ..model.agent import parent_of
from ..model.message import same_name
from ..model.names import BROADCAST, check_agent, check_scope, format_address, parse_address
from ..model.record import MAP_LINK
from ..model.values import check_count
from ..server.events import LoadedChanges, check_filter, events, wanted
from ..server.requests import ForeignVerb, Milliseconds, OwnWork, time_of
from .methods import FILTER, LIMIT, JsonObject, map_method

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..formats.map import Kin, MapAddress, Remote
    from ..model.agent import Agent
    from ..model.record import Cursor


def recipients(core: Core, sender: str, address: MapAddress) -> list[str]:
    """Return the addresses of a letter: names, and `broadcast:` for scopes that have another member."""
    agents = [_id_of(core, name) for name in address.agents]
    if address.is_plain:
        return agents
    found = [*agents, *_near(core, address)]
    if address.roles or address.kin or address.everyone:
        here = listed_agents(core)
        found += [name for name in _looked_up(here, sender, address) if not same_name(name, sender)]
        if not found and not address.scopes:
            raise Missing("no agent matches this address", field="to")
    inhabited = [scope for scope in address.scopes if _has_others(core, scope, sender)]
    return [*dict.fromkeys(found), *(BROADCAST + scope for scope in inhabited)]


def _id_of(core: Core, name: str) -> str:
    """Return the id of an agent that is addressed by a display name no mailbox can have (`Ann Lee`)."""
    id = cleaned(name)
    if id == name:
        return name
    card = core_agents.card_of(core, id)
    return id if card is not None and card.display_name == name else name


def listed_agents(core: Core) -> list[Agent]:
    """Return the registered agents, without those that are gone or unregistered."""
    return [agent for agent in core_agents.registered_agents(core) if not has_gone(agent)]


def reached(core: Core, sender: str, addressed: Sequence[str]) -> list[str]:
    """Return the mailboxes behind addresses."""
    names = [name for name in addressed if not name.startswith(BROADCAST)]
    for address in addressed:
        if address.startswith(BROADCAST):
            scope = address.removeprefix(BROADCAST)
            names += [name for name in core_agents.members_of(core, scope) if not same_name(name, sender)]
    return list(dict.fromkeys(names))


def _near(core: Core, address: MapAddress) -> Iterator[str]:
    """Return the addresses of agents of a named system.

    It is this one, a linked MAP server, or one that a peer leads to.
    """
    own = system_id(core) if address.remote else ""
    links = values_of(core, MAP_LINK, dict[str, Any]) if address.remote else {}
    linked = {link.get("system") for link in links.values()} - {"", None}
    for one in address.remote:
        if one.system not in {own, *linked} or not one.agent:
            yield _far(core, own, one)
            continue
        name = check_agent(one.agent, "to")
        if one.system not in linked:
            yield name
        elif one.system == own:
            yield _here_or_there(core, own, name)
        else:
            yield _there(core, one.system, name)


def _far(core: Core, own: str, one: Remote) -> str:
    """Return the address of an agent that a peer leads to; the outbox has the rest of the rules."""
    place = parse_address({"agent": one.agent, "system": one.system, "scope": one.scope}, "to")
    is_led_to = outbox.peer_towards(core, all_peers(core), place.system) is not None
    if not is_led_to and not same_name(place.system, own):
        raise Missing(f"there is no system {one.system!a} here", field="system", hint="postroom peers")
    return format_address(place)


def _there(core: Core, system: str, name: str) -> str:
    """Return the mailbox of a MAP server's agent, also of one that is not listed yet; never one of ours."""
    mailbox = check_agent(f"{system}/{name}", "to")
    mailbox = mailbox_named(core, mailbox) or mailbox
    card = core_agents.card_of(core, mailbox)
    if card is not None and card.principal != LINK_NAME:
        raise UnknownAgent(
            f"{name!r} of {system!r} cannot be reached", field="to", hint=f"{mailbox!r} is an agent of this room"
        )
    return mailbox


def _here_or_there(core: Core, system: str, name: str) -> str:
    """Return an agent of ours, else of the MAP server: both systems have the same name."""
    if is_known(core, name):
        return name
    mailbox = _there(core, system, name)
    if core_agents.card_of(core, mailbox) is None:
        raise UnknownAgent(f"nobody is called {name!r}, here or at the MAP server", field="to")
    return mailbox


def _has_others(core: Core, scope: str, sender: str) -> bool:
    """Return whether the scope has another member than the sender; Missing if there is no such scope."""
    members = core_agents.members_of(core, check_scope(scope, "to.scope"))
    if not members:
        core_agents.find_scope(core, scope)
    return any(not same_name(name, sender) for name in members)


def _looked_up(agents: Sequence[Agent], sender: str, address: MapAddress) -> Iterator[str]:
    for role in address.roles:
        for agent in agents:
            if role_of(agent.card) == role.name and role.within in {None, *agent.card.scopes}:
                yield agent.card.id
    for kin in address.kin:
        yield from _kin(agents, sender, kin)
    if address.everyone:
        yield from (agent.card.id for agent in agents)


def _kin(agents: Sequence[Agent], sender: str, kin: Kin) -> Iterator[str]:
    parents = {agent.card.id: parent_of(agent.card) for agent in agents}
    if sender not in parents:
        raise UnknownAgent(f"{sender!r} is not registered", field="from", hint="map/agents/register first")
    if kin.relation in {"parent", "ancestors"}:
        yield from above(parents, sender, 1 if kin.relation == "parent" else kin.depth)
    elif kin.relation == "siblings":
        mine = parents[sender]
        yield from (name for name, parent in parents.items() if parent == mine and mine and name != sender)
    else:
        yield from below(children_of(agents), sender, 1 if kin.relation == "children" else kin.depth)


def above(parents: dict[str, str | None], name: str, depth: int | None) -> Iterator[str]:
    """Yield ancestors, from the parent upwards; a cycle is walked once."""
    seen = {name}
    step = parents.get(name)
    while step is not None and step not in seen and (depth is None or len(seen) <= depth):
        seen.add(step)
        yield step
        step = parents.get(step)


def below(children: dict[str, list[str]], name: str, depth: int | None) -> Iterator[str]:
    """Yield descendants, level by level; a cycle is walked once."""
    # Cards say who their parent is, so a cycle is only two registrations away.
    seen, level, far = {name}, [name], 0
    while level and (depth is None or far < depth):
        level = [child for one in level for child in children.get(one, ()) if child not in seen]
        level = list(dict.fromkeys(level))
        seen.update(level)
        far += 1
        yield from level


# -- methods

MOST_REPLAYED = 1000
SLICE = 500  # changes that are read at once
MOST_LOOKED_AT = 20_000  # changes in one call; a caller that wants more calls again


@map_method(SEND, "messageId, delivered (the mailboxes it is in)", action="send")
class Send(ForeignVerb, kw_only=True, rename={"from_": "from"}):
    """Send a message: a durable letter to one or many.

    The event `message.delivered` reports when each has read it. A message to a scope with no other member is
    accepted and delivered to nobody, as by the SDK's own server.
    """

    whose: ClassVar[str | None] = "from"

    to: Annotated[
        Any,
        "a name, agent, agents, scope, role (within), parent, children, ancestors, descendants,"
        " siblings, broadcast, agentId, participant, system and agent; or a list of these;"
        " without it, the sender of the letter in meta.inReplyTo",
    ] = None
    payload: Annotated[Any, "any JSON"] = UNSET
    meta: Annotated[
        JsonObject | None,
        "priority, correlationId, ttlMs, mail.conversationId and anything else; arrives unchanged",
    ] = None
    from_: Annotated[str | None, "the agent of this connection that sends it, where it has several"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        sender, params = self.actor(core, principal), set_parameters(self)
        to = None if self.to is None else recipients(core, sender, read_address(self.to))
        fields, answers, own_id = letter_fields(params), answered(params), (self.meta or {}).get("messageId")
        if isinstance(own_id, str) and own_id:  # what a sender with ids of its own sends again is one letter
            fields["key"] = once_key(own_id, self.to)
        if answers is not None:
            with suppress(UnknownMessage):  # only a letter that its sender sent or got
                messages.known_letter(core, sender, answers)
                fields["in_reply_to"] = answers
        # The id names nothing, but the caller wants one.
        if to is not None and not to:
            return {"messageId": core.ids.message(), "delivered": []}
        try:
            named = to[0] if to and len(to) == 1 else to
            sent = perform(core, principal, messages.Send(agent_id=sender, to=named, **fields))
        except IdTaken:  # sent again, with another timestamp in its meta
            # Clients of the SDK repeat a message with a new timestamp, which is other content to us. The first one
            # counts.
            first = messages.sent_before(core, sender, fields["key"]) if "key" in fields else None
            if first is None:
                raise
            sent = Receipt(message=first, repeated=True)
        addressed = [one.address for one in sent.message.recipients] if to is None else to
        return {"messageId": sent.id, "delivered": list(sent.routed) or reached(core, sender, addressed)}


@map_method(REPLAY, "events (eventId, timestamp, event), hasMore", action="wait", slow=True, writes=False)
class Replay(OwnWork, kw_only=True):
    """Past events that the caller may see, the oldest first.

    Only events of letters and conversations are kept; those of agents and scopes are published once.
    """

    after_event_id: Annotated[str | None, "only events after this one"] = None
    from_timestamp: Annotated[datetime | Milliseconds | None, "only from this time on"] = None
    to_timestamp: Annotated[datetime | Milliseconds | None, "only up to this time"] = None
    filter: Annotated[JsonObject | None, FILTER] = None
    limit: Annotated[int | None, LIMIT] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        filter, id = check_filter(self.filter), self.after_event_id
        limit = min(check_count(100 if self.limit is None else self.limit, "limit"), MOST_REPLAYED)
        first = time_of(self.from_timestamp, "from_timestamp")
        last = time_of(self.to_timestamp, "to_timestamp")
        number = 0 if id is None else number_of(id)
        if number is None:
            raise Invalid(
                "is not an event id", field="after_event_id", hint="an eventId from map/event or map/replay"
            )
        now = current_cursor(core, OWNER)
        # One before its number: further events of the same change may follow it.
        cursor = _earliest(core, now) if id is None else replace(now, number=number - 1)
        results: list[dict[str, Any]] = []
        is_past = id is None
        # Bounded: a filter that matches nothing would otherwise read the whole history for one call.
        for _ in range(MOST_LOOKED_AT // SLICE):
            found = GetChanges(since=str(cursor), limit=SLICE).run(core, OWNER)
            for event in events(principal, LoadedChanges(core, found.changes)):
                # Several events may share the number of one change: go on right behind the one that was named.
                if not is_past and event.number <= number:
                    is_past = event.id == id
                    continue
                in_time = (first is None or event.timestamp >= first) and (last is None or event.timestamp <= last)
                if in_time and wanted(event, filter):
                    results.append(map_event(event, filter.spelt))
            cursor = found.cursor
            if not found.changes or len(results) > limit:
                break
        shown = [{"eventId": one["id"], "timestamp": one["timestamp"], "event": one} for one in results[:limit]]
        return {"events": shown, "hasMore": len(results) > limit}


def _earliest(core: Core, now: Cursor) -> Cursor:
    """Return the earliest cursor that the store still has, by bisection: a store only says whether it has one."""
    low, high = 0, now.number
    while low < high:
        middle = (low + high) // 2
        try:
            GetChanges(since=str(replace(now, number=middle)), limit=1).run(core, OWNER)
            high = middle
        except Resync:
            low = middle + 1
    return replace(now, number=high)
