"""MAP's methods for agents and scopes: register, change, leave; list, relatives, membership.

An agent's id is the name of its mailbox. State, role and parent stand on its card (`formats.map`). Scope
membership is on the cards, too, so a broadcast of the room reaches it. Policies of scopes (joinPolicy, sendPolicy
and the like) are kept and shown as they were given; the room has one policy: a client that is admitted may
join a scope and write to it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from ..core import agents as core_agents
from ..core.validation import as_list, check_count
from ..core.verb import perform, snake
from ..errors import IllegalMove, Invalid, NameTaken, NotAllowed, UnknownAgent
from ..formats.inbox import present
from ..formats.map import (
    FIRST_STATE,
    GUEST,
    KEPT,
    OPEN_STATES,
    STATES,
    STOPPED,
    SUSPENDED,
    agent_record,
    children_of,
    cleaned,
    has_gone,
    holder_of,
    owner_of,
    role_of,
    scope_record,
    state_of,
)
from ..model.agent import MAP as EXTRA
from ..model.agent import map_fields, parent_of
from ..model.names import check_agent, check_scope
from ..model.record import MEMBER
from ..policy.routing import is_routable
from .routing import above, below, box_of, listed_agents

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..model.agent import Agent, Card, ScopeCard
    from ..room import Room


_CARD = ("display_name", "description", "capabilities", "program", "model", "scopes", "allow_from",
         "max_concurrent_tasks", "metadata")  # fmt: skip
BEAT_EVERY = 60.0  # seconds between two heartbeats of an agent that is connected
MOST = 1000  # rows in one answer

IS_HERE = "is_here"  # set by the connection, never by a caller: it has that agent already

# -- register, change, leave


def register(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    """Register an agent. It may register again at any time; fields that it leaves out stay as they were."""
    if params.get("parent") is not None:
        _check_parents_holder(room, box_of(room, params).name, params["parent"])
    return _register(room, params)


def _register(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    name = box_of(room, params).name
    result = {"display_name": params.get("name"), "description": params.get("description"),
            "scopes": params.get("scopes"), "metadata": params.get("metadata")}  # fmt: skip
    words = {word: params[word] for word in KEPT if word in params}
    words |= present(state=_first_state(room, name, params), owner=params.get("owner"))
    words["principal"] = room.principal.name
    if params.get("parent") is not None:
        _check_parent(room, name, params["parent"])
    # Before the card is written, because its writer holds the name.
    _check_free(room, name, params)
    agent = _write(room, name, result, words)
    room.mailbox(name).heartbeat(poll_interval=BEAT_EVERY, active=True)
    return {"agent": agent_record(agent)}


def spawn(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    """Register a child, which belongs to the same participant; NameTaken, if the agent is another's."""
    parent, name = check_agent(params["parent"], "parent"), check_agent(params["agent_id"], "agent_id")
    with suppress(UnknownAgent):
        held = room.agent(name)
        if not params.get(IS_HERE) and _is_anothers(room, held, parent):
            raise NameTaken(f"{name!r} is another's agent", field="agent_id")
    room.agent(parent)  # or UnknownAgent
    return _register(room, params)


def _is_anothers(room: Room, held: Agent, parent: str) -> bool:
    """Return whether it is another principal's agent, or another parent's unless it stopped."""
    has_stopped = state_of(held) == STOPPED
    if holder_of(held.card) != room.principal.name and (has_stopped or is_routable(held.presence)):
        return True
    return parent_of(held.card) != parent and not has_stopped


def unregister(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    """Remove an agent from its scopes and from lists, until it registers again. Its mail stays and waits."""
    name = box_of(room, params).name
    agent = _change(room, name, {"scopes": ()}, {"state": STOPPED})
    room.mailbox(name).leave()
    return {"agent": agent_record(agent) | {"state": STOPPED, "ownerId": None}, "success": True}


def away(core: Core, principal: Principal, name: str) -> dict[str, Any]:
    """Record that the connection of an agent has ended; it may come back."""
    before = perform(core, principal, core_agents.GetAgent(name=name)).agent
    perform(core, principal, core_agents.Goodbye(agent_id=name))
    now = perform(core, principal, core_agents.GetAgent(name=name)).agent
    return {"agent": agent_record(now), "previousState": state_of(before)}


def update(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    name = box_of(room, params).name
    before = room.agent(name)
    card = before.card
    words = {word: params[word] for word in KEPT if word in params and word not in {"parent", "role"}}
    if "state" in params:
        words["state"] = _stepped(card, params["state"])
    metadata = None if "metadata" not in params else card.metadata | params["metadata"]
    agent = _change(room, name, {} if metadata is None else {"metadata": metadata}, words)
    return {"agent": agent_record(agent), "previousState": state_of(before)}


def stop(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    return update(room, {**params, "state": STOPPED}) | {"stopping": True}


def suspend(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    """Suspend an agent: its mail waits until it is resumed."""
    return update(room, {**params, "state": SUSPENDED}) | {"suspended": True}


def resume(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    return update(room, {**params, "state": FIRST_STATE}) | {"resumed": True}


# -- list and relatives


def list_agents(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    agents = listed_agents(room.core, room.principal)
    children = children_of(agents)
    wanted = _wanted(params)
    rows = [agent for agent in agents if _suits(agent, wanted, children)]
    cursor, limit = params.get("cursor"), min(check_count(params.get("limit", MOST), "limit"), MOST)
    if cursor is not None:
        rows = [agent for agent in rows if agent.card.id > cursor]
    # By id, because the cursor is an id: agents that come meanwhile shift no page.
    rows.sort(key=lambda agent: agent.card.id)
    shown = [agent_record(agent, children.get(agent.card.id, ())) for agent in rows[:limit]]
    return {"agents": shown} | ({"nextCursor": shown[-1]["id"]} if len(rows) > limit else {})


def get_agent(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    name, include = check_agent(params["agent_id"], "agent_id"), params.get("include") or {}
    agents = {agent.card.id: agent for agent in room.agents(gone=True) if agent.registered}
    if name not in agents:
        raise UnknownAgent(f"{name!r} is not registered", field="agent_id")
    children = children_of(agents.values())
    answer: dict[str, Any] = {"agent": agent_record(agents[name], children.get(name, ()))}
    return answer | _relatives(agents, children, name, include)


def graph(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of parents and children, or the part below one agent."""
    agents = {agent.card.id: agent for agent in listed_agents(room.core, room.principal)}
    children = children_of(agents.values())
    root, depth = params.get("root_agent_id"), params.get("depth")
    names: Iterable[str] = agents
    if root is not None:
        if root not in agents:
            raise UnknownAgent(f"{root!r} is not registered", field="root_agent_id")
        names = [root, *below(children, root, depth)]
    nodes = [name for name in names if name in agents]
    edges = [
        {"from": parent, "to": name, "type": "parent-child"}
        for name in nodes
        if (parent := parent_of(agents[name].card)) in nodes
    ]
    return {"nodes": [agent_record(agents[name], children.get(name, ())) for name in nodes], "edges": edges}


def _relatives(
    agents: dict[str, Agent], children: dict[str, list[str]], name: str, include: dict[str, Any]
) -> dict[str, Any]:
    parents = {one.card.id: parent_of(one.card) for one in agents.values()}
    depth = include.get("maxDepth")
    if depth is not None:
        check_count(depth, "maxDepth")
    mine = parents[name]
    found: dict[str, list[str]] = {
        "children": children.get(name, []),
        "siblings": [one for one in children.get(mine or "", []) if one != name],
        "ancestors": list(above(parents, name, depth)),
        "descendants": list(below(children, name, depth)),
    }
    result: dict[str, Any] = {
        word: [agent_record(agents[one]) for one in names if one in agents]
        for word, names in found.items()
        if include.get(word)
    }
    if include.get("parent") and mine in agents:
        result["parent"] = agent_record(agents[mine])
    return result


def _wanted(params: dict[str, Any]) -> dict[str, Any]:
    """Return the conditions of `filter`; the SDK's server reads them outside of it, too."""
    words = {snake(name): value for name, value in (params.get("filter") or {}).items() if value is not None}
    for name in ("states", "roles", "scopes"):
        if name in params or name in words:
            words[name] = _texts(words.get(name, params.get(name)), name)
    for name in ("parent", "owner_id"):
        if not isinstance(words.get(name, ""), str):
            raise Invalid("must be text", field=name)
    for word, several in (("state", "states"), ("role", "roles"), ("scope", "scopes")):
        if word in params:
            words[several] = [params[word]]
    return words


def _texts(value: Any, field: str) -> list[str]:
    texts = list(as_list(value, field))
    if not all(isinstance(one, str) for one in texts):
        raise Invalid("must be a list of texts", field=field)
    return texts


def _suits(agent: Agent, words: dict[str, Any], children: dict[str, list[str]]) -> bool:
    card = agent.card
    return (
        ("states" not in words or state_of(agent) in words["states"])
        and ("roles" not in words or role_of(card) in words["roles"])
        and ("scopes" not in words or bool(set(card.scopes) & set(words["scopes"])))
        and ("parent" not in words or parent_of(card) == words["parent"])
        and ("owner_id" not in words or owner_of(agent) == words["owner_id"])
        and ("has_children" not in words or (card.id in children) == bool(words["has_children"]))
    )


# -- cards


def _change(room: Room, name: str, result: dict[str, Any], words: dict[str, Any]) -> Agent:
    """Change an existing card. It counts as a heartbeat only if the agent does it itself, not an operator."""

    def change(card: Card) -> Card:
        return replace(card, **result, extra=card.extra | {EXTRA: map_fields(card) | words})

    perform(room.core, room.principal, core_agents.UpdateCard(agent_id=name, change=change))
    return room.mailbox(name).heartbeat(active=True) if room.principal.agent == name else room.agent(name)


def _write(room: Room, name: str, result: dict[str, Any], words: dict[str, Any]) -> Agent:
    try:
        card = room.agent(name).card
        before, extra, was = asdict(card), card.extra, map_fields(card)
        if holder_of(card) != room.principal.name:  # an agent that takes over the name of a guest is none
            before["metadata"] = {word: value for word, value in card.metadata.items() if word != GUEST}
    except UnknownAgent:
        before, extra, was = {}, {}, {}
    fields = {field: before[field] for field in _CARD if field in before}
    fields |= {field: value for field, value in result.items() if value is not None}
    return room.mailbox(name).register(**fields, extra=extra | {EXTRA: was | words})


def _check_free(room: Room, name: str, params: dict[str, Any]) -> None:
    """Raise NameTaken if another agent holds the name.

    An agent holds its name while it is here or away; the holder of its own token is that agent. An operator's
    token is no proof of being the agent, else its mail would go to another client: it gets the name once the agent
    is unregistered, not while it is away. A guest by the link of another room gets no name that an agent of this
    room has, however long that is away.
    """
    is_guest = GUEST in (params.get("metadata") or {})
    try:
        held = room.agent(name)
    except UnknownAgent:
        is_taken = is_guest and name in room.core.store.known()
    else:
        is_same = room.principal.name in {holder_of(held.card), f"agent:{name}"}
        is_given_up = has_gone(held) and room.principal.token is not None
        is_live = is_routable(held.presence) and not is_given_up
        is_taken = not is_same and (is_live or (is_guest and GUEST not in held.card.metadata))
    if is_taken:
        raise NameTaken(f"{name!r} is held by another agent", field="agent_id", hint="choose another name")


def _check_parents_holder(room: Room, name: str, parent: str) -> None:
    """Refuse a parent that is the agent of another principal."""
    with suppress(UnknownAgent):
        if parent_of(room.agent(name).card) == parent:  # it is already
            return
    with suppress(UnknownAgent):
        if holder_of(room.agent(check_agent(parent, "parent")).card) != room.principal.name:
            raise NotAllowed(f"{parent!r} is another's agent", field="parent")


def _check_parent(room: Room, name: str, parent: str) -> None:
    """Refuse a parent that is a descendant of the agent."""
    seen: set[str] = set()
    step: str | None = check_agent(parent, "parent")
    # Cards may hold a cycle, which must not stop us here.
    while step is not None and step not in seen:
        if step == name:
            raise Invalid(f"{name!r} would be above itself", field="parent")
        seen.add(step)
        try:
            step = parent_of(room.agent(step).card)
        except UnknownAgent:
            return


def _first_state(room: Room, name: str, params: dict[str, Any]) -> str:
    """Return the state at registration: idle by default, but a suspended agent stays so until it is resumed."""
    if "state" in params:
        return _state(params["state"])
    with suppress(UnknownAgent):
        if map_fields(room.agent(name).card).get("state") == SUSPENDED:
            return SUSPENDED
    return FIRST_STATE


def _stepped(card: Card, state: str) -> str:
    """Return the new state; an agent that has stopped stays so."""
    wanted = _state(state)
    if map_fields(card).get("state") == STOPPED and wanted != STOPPED:
        raise IllegalMove(f"{card.id!r} has stopped", field="agent", hint="it comes back by registering")
    return wanted


def _state(state: str) -> str:
    is_own = state.startswith(OPEN_STATES) and len(state) <= 64
    if state not in STATES and not is_own:
        hint = f"{', '.join(STATES)}, or a word of your own that begins with x-"
        raise IllegalMove(f"{state[:64]!a} is no state", field="state", hint=hint)
    return state


# -- scopes

SCOPE_FIELDS = (
    "name", "description", "parent", "join_policy", "auto_join_roles", "visibility", "message_visibility",
    "send_policy", "persistent", "auto_delete", "metadata",
)  # fmt: skip


def create(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    """Make a scope, with the given id or one that is made of its name."""
    id = params.get("scope_id") or _id_of(params.get("name", ""))
    says = {_camel(word): params[word] for word in SCOPE_FIELDS if word in params}
    scope_id = id or f"scope-{room.core.ids.token()[:12]}"
    made = core_agents.CreateScope(agent_id=_whose(room, params), scope_id=scope_id, says=says)
    return {"scope": _record(room, perform(room.core, room.principal, made).scope)}


def delete(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    id = check_scope(params["scope_id"], "scope_id")
    deleted = core_agents.DeleteScope(agent_id=_whose(room, params), scope_id=id)
    return {"scope": scope_record(perform(room.core, room.principal, deleted).scope, []), "success": True}


def get(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    found = _scope(room, params)
    return {"scope": scope_record(found.scope, found.members)}


def list_all(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    limit, cursor = min(check_count(params.get("limit", MOST), "limit"), MOST), params.get("cursor", "")
    parent = (params.get("filter") or {}).get("parent", params.get("parent"))
    found = [
        scope
        for scope in perform(room.core, room.principal, core_agents.ListScopes()).scopes
        if scope.id > cursor and parent in {None, scope.says.get("parent")}
    ]
    rows = [_record(room, scope) for scope in found[:limit]]
    return {"scopes": rows} | ({"nextCursor": rows[-1]["id"]} if len(found) > limit else {})


def join(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    joined = core_agents.JoinScope(agent_id=box_of(room, params).name, scope_id=params["scope_id"])
    perform(room.core, room.principal, joined)
    return _both(room, params)


def leave(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    id = check_scope(params["scope_id"], "scope_id")
    scope = _scope(room, params).scope
    perform(room.core, room.principal, core_agents.LeaveScope(agent_id=box_of(room, params).name, scope_id=id))
    return _both(room, params, scope)


def members(room: Room, params: dict[str, Any]) -> dict[str, Any]:
    found = _scope(room, params).members
    limit, cursor = min(check_count(params.get("limit", MOST), "limit"), MOST), params.get("cursor", "")
    rows = [name for name in found if name > cursor]
    return {"members": rows[:limit]} | ({"nextCursor": rows[limit - 1]} if len(rows) > limit else {})


def _id_of(name: str) -> str:
    """Return a scope's name as its id, or the nearest id where the name cannot be one: `Team A` → `Team-A`."""
    try:
        return check_scope(name, "name")
    except Invalid:
        return cleaned(name.replace("/", " "))


def _both(room: Room, params: dict[str, Any], scope: ScopeCard | None = None) -> dict[str, Any]:
    scope = scope or _scope(room, params).scope
    agent = room.agent(box_of(room, params).name)
    return {"scope": _record(room, scope), "agent": agent_record(agent), "success": True}


def _scope(room: Room, params: dict[str, Any]) -> core_agents.ScopeWithMembers:
    return perform(room.core, room.principal, core_agents.GetScope(scope_id=params["scope_id"]))


def _record(room: Room, scope: ScopeCard) -> dict[str, Any]:
    return scope_record(scope, room.core.store.keys(MEMBER + scope.id))


def _whose(room: Room, params: dict[str, Any]) -> str:
    name: str = params.get("agent_id") or room.principal.agent or ""
    return name


def _camel(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(part.capitalize() for part in rest)
