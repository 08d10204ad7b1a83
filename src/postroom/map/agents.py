"""MAP's methods for agents: register, change, leave; list, relatives.

An agent's id is the name of its mailbox. State, role and parent stand on its card (`formats.map`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace

from ..core import agents as core_agents
from ..core.agents import agent_of, registered_agent, registered_agents, registration
from ..core.core import find_record
from ..core.names import is_known
from ..core.verb import perform, set_parameters, snake
from ..errors import IllegalMove, Invalid, NameTaken, NotAllowed, UnknownAgent
from ..formats.inbox import present
from ..formats.map import (
    FIRST_STATE,
    GUEST,
    KEPT,
    OPEN_STATES,
    REGISTER,
    SPAWN,
    STATES,
    STOPPED,
    SUSPENDED,
    UNREGISTER,
    agent_record,
    children_of,
    has_gone,
    holder_of,
    owner_of,
    role_of,
    state_of,
)
from ..model.agent import MAP as EXTRA
from ..model.agent import map_fields, parent_of
from ..model.names import check_agent
from ..model.record import CARD
from ..model.values import as_list, check_count
from ..policy.routing import is_routable
from ..server.requests import ForeignVerb
from .methods import IGNORED, KEPT_AS_GIVEN, METADATA, REASON, AgentVerb, JsonObject, PagedVerb, map_method
from .routing import above, below, listed_agents

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..core.core import Core
    from ..model.agent import Agent, Card


BEAT_EVERY = 60.0  # seconds between two heartbeats of an agent that is connected
_AGENT = "agent (id, name, state, role, scopes, parent, ownerId, metadata and so on)"
_CHANGED = f"{_AGENT}, previousState"


# -- register, change, leave


class CardVerb(AgentVerb, kw_only=True):
    """A request that writes the card of an agent. It asks first: others learn nothing of the agent."""

    def owners(self, _core: Core, principal: Principal) -> list[str | None]:
        return [self.named() or principal.agent]


class DescribedVerb(CardVerb, kw_only=True):
    """A request with what an agent says of itself, and may change."""

    visibility: Annotated[str | None, KEPT_AS_GIVEN] = None
    capabilities: Annotated[JsonObject | None, KEPT_AS_GIVEN] = None
    environment: Annotated[JsonObject | None, KEPT_AS_GIVEN] = None
    permission_overrides: Annotated[JsonObject | None, KEPT_AS_GIVEN] = None
    capability_descriptor: Annotated[JsonObject | None, KEPT_AS_GIVEN] = None
    persistent_identity: Annotated[JsonObject | None, KEPT_AS_GIVEN] = None
    relationships: Annotated[list[Any] | None, KEPT_AS_GIVEN] = None
    metadata: Annotated[JsonObject | None, METADATA] = None
    state: Annotated[str | None, "its state; by default idle"] = None
    owner: Annotated[str | None, "set by the session to its participant, whatever a caller gives"] = None

    def kept(self) -> dict[str, Any]:
        """Return the fields that are stored as they were given."""
        values = set_parameters(self)
        return {word: values[word] for word in KEPT if word in values}


class RegisteredVerb(DescribedVerb, kw_only=True):
    """A request that registers an agent."""

    name: Annotated[
        str | None, "a name for people; without an id, also the id, if it is a valid name of a mailbox"
    ] = None
    description: Annotated[str | None, "what it is"] = None
    role: Annotated[str | None, "what it does: messages can be sent to a role"] = None
    scopes: Annotated[list[Any] | None, "the teams it is in"] = None

    def register(
        self, core: Core, principal: Principal, name: str, parent: str | None, held: Agent | None
    ) -> dict[str, Any]:
        """Write the card of an agent. `held`: the agent of that name as it is now, whose other fields stay."""
        card, state = None if held is None else held.card, self.state
        if state is None:  # a suspended agent stays so until it is resumed
            is_suspended = card is not None and map_fields(card).get("state") == SUSPENDED
            state = SUSPENDED if is_suspended else FIRST_STATE
        words = self.kept() | present(state=_checked_state(state), owner=self.owner, principal=principal.name)
        fields = present(
            display_name=self.name,
            description=self.description,
            scopes=self.scopes,
            metadata=self.metadata,
        )
        extra = {EXTRA: words}
        if card is not None:
            extra = card.extra | {EXTRA: map_fields(card) | words}
            if holder_of(card) != principal.name:  # an agent that takes over the name of a guest is none
                kept = {word: value for word, value in card.metadata.items() if word != GUEST}
                fields = {"metadata": kept, **fields}
        # Before the card is written, because its writer holds the name.
        self._check(core, principal, name, parent, held)
        agent = registration(core, name, {**fields, "extra": extra}).run(core, principal)
        beat = core_agents.RecordHeartbeat(agent_id=name, poll_interval=BEAT_EVERY, active=True)
        perform(core, principal, beat)
        return {"agent": agent_record(agent)}

    def _check(self, core: Core, principal: Principal, name: str, parent: str | None, held: Agent | None) -> None:
        """Refuse a parent below the agent; raise NameTaken if another agent holds the name.

        An agent holds its name while it is here or away; the holder of its own token is that agent. An operator's
        token is no proof of being the agent, else its mail would go to another client: it gets the name once the
        agent is unregistered, not while it is away. A guest by the link of another room gets no name that an agent
        of this room has, however long that is away.
        """
        if parent is not None:
            _check_parent(core, name, parent)
        is_guest = GUEST in (self.metadata or {})
        if held is None:
            is_taken = is_guest and is_known(core, name)
        else:
            is_same = principal.name in {holder_of(held.card), f"agent:{name}"}
            # An operator may take a name whose agent is gone for good, never one that is only away.
            is_given_up = has_gone(held) and principal.token is not None
            is_live = is_routable(held.presence) and not is_given_up
            is_taken = not is_same and (is_live or (is_guest and GUEST not in held.card.metadata))
        if is_taken:
            raise NameTaken(f"{name!r} is held by another agent", field="agent_id", hint="choose another name")


@map_method(REGISTER, _AGENT, action="register")
class Register(RegisteredVerb, kw_only=True):
    """Register an agent, or register it again: its mail is sent to this connection.

    Fields that it leaves out stay as they were.
    """

    parent: Annotated[str | None, "the parent agent"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        name, parent = self.actor(core, principal), self.parent
        held = _find(core, name)
        if parent is not None and (held is None or parent_of(held.card) != parent):
            card = core_agents.card_of(core, check_agent(parent, "parent"))
            if card is not None and holder_of(card) != principal.name:
                raise NotAllowed(f"{parent!r} is another's agent", field="parent")
        return self.register(core, principal, name, parent, held)


@map_method(
    SPAWN,
    f"{_AGENT}; messageId of the first message, or error: why it was refused",
    action="register",
)
class Spawn(RegisteredVerb, kw_only=True):
    """Register a child of an agent, on the same connection."""

    parent: Annotated[str, "the parent agent"]
    initial_message: Annotated[Any, "its first message: payload and meta, or a payload"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        name = self.actor(core, principal)
        return self.register(core, principal, name, check_agent(self.parent, "parent"), _find(core, name))

    def _check(self, core: Core, principal: Principal, name: str, parent: str | None, held: Agent | None) -> None:
        if held is not None and self._is_anothers(principal, held):
            raise NameTaken(f"{name!r} is another's agent", field="agent_id")
        registered_agent(core, parent or "")
        super()._check(core, principal, name, parent, held)

    def _is_anothers(self, principal: Principal, held: Agent) -> bool:
        """Return whether it is another principal's agent, or another parent's unless it stopped.

        An agent of the same participant may be given another parent while it is connected.
        """
        has_stopped = state_of(held) == STOPPED
        if holder_of(held.card) != principal.name and (has_stopped or is_routable(held.presence)):
            return True
        is_own = self.owner is not None and owner_of(held) == self.owner
        return not (has_stopped or is_own) and parent_of(held.card) != self.parent


@map_method(UNREGISTER, f"{_AGENT}, success", action="register")
class Unregister(CardVerb, kw_only=True):
    """Unregister an agent; its mail waits for an agent of its name.

    It is in no scope and in no list until it registers again.
    """

    reason: Annotated[str | None, REASON] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        name = self.actor(core, principal)
        agent = _change_card(core, principal, name, {"scopes": ()}, {"state": STOPPED})
        perform(core, principal, core_agents.Goodbye(agent_id=name))
        return {"agent": agent_record(agent) | {"state": STOPPED, "ownerId": None}, "success": True}


def mark_away(core: Core, principal: Principal, name: str) -> dict[str, Any]:
    """Record that the connection of an agent has ended; it may come back."""
    before = registered_agent(core, name)
    now = perform(core, principal, core_agents.Goodbye(agent_id=name))
    return {"agent": agent_record(now), "previousState": state_of(before)}


@map_method("map/agents/update", _CHANGED, action="register")
class Update(DescribedVerb, kw_only=True):
    """Change the state or metadata of an agent."""

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        words = self.kept() | present(state=self.state)
        return _updated(core, principal, self.actor(core, principal), words, self.metadata)


@map_method("map/agents/stop", f"{_CHANGED}, stopping", action="register")
class StopAgent(CardVerb, kw_only=True):
    """Stop an agent; it comes back by registering."""

    reason: Annotated[str | None, REASON] = None
    force: Annotated[bool | None, IGNORED] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        stopped = _updated(core, principal, self.actor(core, principal), {"state": STOPPED})
        return stopped | {"stopping": True}


@map_method("map/agents/suspend", f"{_CHANGED}, suspended", action="register")
class Suspend(CardVerb, kw_only=True):
    """Suspend an agent: its mail waits until it is resumed."""

    reason: Annotated[str | None, REASON] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        suspended = _updated(core, principal, self.actor(core, principal), {"state": SUSPENDED})
        return suspended | {"suspended": True}


@map_method("map/agents/resume", f"{_CHANGED}, resumed", action="register")
class Resume(CardVerb, kw_only=True):
    """Resume an agent."""

    context: Annotated[Any, IGNORED] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        resumed = _updated(core, principal, self.actor(core, principal), {"state": FIRST_STATE})
        return resumed | {"resumed": True}


def _updated(
    core: Core, principal: Principal, name: str, words: dict[str, Any], metadata: JsonObject | None = None
) -> dict[str, Any]:
    before = registered_agent(core, name)
    if "state" in words:
        state = _checked_state(words["state"])
        if map_fields(before.card).get("state") == STOPPED and state != STOPPED:  # an agent that stopped stays so
            raise IllegalMove(f"{name!r} has stopped", field="agent", hint="register the agent again")
    fields = {} if metadata is None else {"metadata": before.card.metadata | metadata}
    agent = _change_card(core, principal, name, fields, words)
    return {"agent": agent_record(agent), "previousState": state_of(before)}


# -- list and relatives


@map_method("map/agents/list", "agents, nextCursor", action="agents", many=True, writes=False)
class ListAgents(PagedVerb, kw_only=True):
    """List the registered agents."""

    filter: Annotated[JsonObject | None, "states, roles, scopes, parent, ownerId, hasChildren"] = None
    states: Annotated[str | list[str] | None, "like filter.states"] = None
    roles: Annotated[str | list[str] | None, "like filter.roles"] = None
    scopes: Annotated[str | list[str] | None, "like filter.scopes"] = None
    state: Annotated[str | None, "one state"] = None
    role: Annotated[str | None, "one role"] = None
    scope: Annotated[str | None, "one scope"] = None

    def run(self, core: Core, _principal: Principal) -> dict[str, Any]:
        agents = {agent.card.id: agent for agent in listed_agents(core)}
        children, wanted = children_of(agents.values()), self._wanted()
        shown, more = self.page(id for id, agent in agents.items() if _suits(agent, wanted, children))
        return {"agents": [agent_record(agents[id], children.get(id, ())) for id in shown], **more}

    def _wanted(self) -> dict[str, Any]:
        """Return the conditions of `filter`; the SDK's server reads them outside of it, too."""
        words = {snake(name): value for name, value in (self.filter or {}).items() if value is not None}
        for several in ("states", "roles", "scopes"):
            value, one = words.get(several, getattr(self, several)), getattr(self, several.removesuffix("s"))
            if value is not None:
                words[several] = list(as_list(value, several))
                if not all(isinstance(text, str) for text in words[several]):
                    raise Invalid("must be a list of texts", field=several)
            if one is not None:
                words[several] = [one]
        for name in ("parent", "owner_id"):
            if not isinstance(words.get(name, ""), str):
                raise Invalid("must be text", field=name)
        return words


@map_method(
    "map/agents/get",
    f"{_AGENT}; parent, children, siblings, ancestors, descendants where they are asked for",
    action="agents",
    many=True,
    writes=False,
)
class GetAgent(ForeignVerb, kw_only=True):
    """One agent."""

    agent_id: Annotated[str, "the agent"]
    include: Annotated[JsonObject | None, "parent, children, siblings, ancestors, descendants, maxDepth"] = None

    def run(self, core: Core, _principal: Principal) -> dict[str, Any]:
        name = check_agent(self.agent_id, "agent_id")
        agents = {agent.card.id: agent for agent in registered_agents(core, gone=True)}
        if name not in agents:
            raise UnknownAgent(f"{name!r} is not registered", field="agent_id")
        children, include = children_of(agents.values()), self.include or {}
        parents = {one.card.id: parent_of(one.card) for one in agents.values()}
        mine, depth = parents[name], include.get("maxDepth")
        if depth is not None:
            check_count(depth, "maxDepth")
        relatives: dict[str, list[str]] = {
            "children": children.get(name, []),
            "siblings": [one for one in children.get(mine or "", []) if one != name],
            "ancestors": list(above(parents, name, depth)),
            "descendants": list(below(children, name, depth)),
        }
        result: dict[str, Any] = {
            word: [agent_record(agents[one]) for one in names if one in agents]
            for word, names in relatives.items()
            if include.get(word)
        }
        if include.get("parent") and mine in agents:
            result["parent"] = agent_record(agents[mine])
        return {"agent": agent_record(agents[name], children.get(name, ()))} | result


@map_method(
    "map/structure/graph", "nodes (agents), edges (from, to, type)", action="agents", many=True, writes=False
)
class Graph(ForeignVerb, kw_only=True):
    """The tree of parents and children."""

    root_agent_id: Annotated[str | None, "only this agent and its descendants"] = None
    depth: Annotated[int | None, "how many levels down"] = None

    def run(self, core: Core, _principal: Principal) -> dict[str, Any]:
        agents = {agent.card.id: agent for agent in listed_agents(core)}
        children, root = children_of(agents.values()), self.root_agent_id
        if root is not None and root not in agents:
            raise UnknownAgent(f"{root!r} is not registered", field="root_agent_id")
        names = agents if root is None else [root, *below(children, root, self.depth)]
        nodes = [name for name in names if name in agents]
        edges = [
            {"from": parent, "to": name, "type": "parent-child"}
            for name in nodes
            if (parent := parent_of(agents[name].card)) in nodes
        ]
        return {"nodes": [agent_record(agents[name], children.get(name, ())) for name in nodes], "edges": edges}


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


def _find(core: Core, name: str) -> Agent | None:
    """Return a registered agent, or None."""
    held = find_record(core, CARD, name)
    return None if held is None else agent_of(core, held, core.now())


def _change_card(
    core: Core, principal: Principal, name: str, fields: dict[str, Any], words: dict[str, Any]
) -> Agent:
    """Change an existing card. It counts as a heartbeat only if the agent does it itself, not an operator."""

    def change(card: Card) -> Card:
        return replace(card, **fields, extra=card.extra | {EXTRA: map_fields(card) | words})

    core_agents.UpdateCard(agent_id=name, change=change).run(core, principal)
    if principal.agent != name:
        return registered_agent(core, name)
    return perform(core, principal, core_agents.RecordHeartbeat(agent_id=name, active=True))


def _check_parent(core: Core, name: str, parent: str) -> None:
    """Refuse a parent that is a descendant of the agent."""
    seen: set[str] = set()
    step: str | None = check_agent(parent, "parent")
    # Cards may hold a cycle, which must not stop us here.
    while step is not None and step not in seen:
        if step == name:
            raise Invalid(f"{name!r} would be above itself", field="parent")
        seen.add(step)
        card = core_agents.card_of(core, step)
        step = None if card is None else parent_of(card)


def _checked_state(state: str) -> str:
    is_own = state.startswith(OPEN_STATES) and len(state) <= 64
    if state not in STATES and not is_own:
        raise IllegalMove(
            f"{state[:64]!a} is not a state",
            field="state",
            hint=f"{', '.join(STATES)}, or a word of your own that begins with x-",
        )
    return state
