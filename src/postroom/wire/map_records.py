"""Agents and scopes as MAP writes them down, from the cards and records of the room.

What MAP says of an agent and a card has no word for lies in the card's `extra`, under `map`: role, parent, state,
visibility, capabilities and the like, and which participant it belongs to. So it outlives a restart, and travels
with an export. Membership of scopes is the card's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..model.card import Warmth, map_says, parent_of
from .inbox_records import milliseconds, present
from .map_names import FIRST_STATE, STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..model.card import Agent, Card
    from ..model.scope import ScopeCard

# What a participant says of an agent, and is kept as it was said.
KEPT = ("role", "parent", "visibility", "capabilities", "environment", "permission_overrides",
        "capability_descriptor", "persistent_identity", "relationships")  # fmt: skip
_CAMEL = {"permission_overrides": "permissionOverrides", "capability_descriptor": "capabilityDescriptor",
          "persistent_identity": "persistentIdentity"}  # fmt: skip


def role_of(card: Card) -> str | None:
    """Also as agent-inbox's `notify` says it."""
    role = map_says(card).get("role") or card.metadata.get("role")
    return role if isinstance(role, str) else None


def state_of(agent: Agent) -> str:
    """As it said itself while it is here; else as the table of words has it. Who said that it stops, has."""
    said = map_says(agent.card).get("state")
    is_kept = agent.presence.warmth is Warmth.ACTIVE or said == STOPPED
    return said if isinstance(said, str) and is_kept else agent.presence.words.map


def has_gone(agent: Agent) -> bool:
    """Was it unregistered, and has not come back? Who only stopped has not said goodbye."""
    return agent.presence.left and map_says(agent.card).get("state") == STOPPED


def owner_of(agent: Agent) -> str | None:
    """The participant whose connection it is on; None: on none."""
    owner = map_says(agent.card).get("owner")
    is_here = agent.presence.warmth is Warmth.ACTIVE and not agent.presence.left
    return owner if is_here and isinstance(owner, str) else None


def holder_of(card: Card) -> str:
    """The principal that registered it. An operator that stops or suspends it writes its card, and is not that."""
    holder = map_says(card).get("principal")
    return holder if isinstance(holder, str) else card.principal


def agent_record(agent: Agent, children: Sequence[str] = ()) -> dict[str, Any]:
    card, said = agent.card, map_says(agent.card)
    kept = {_CAMEL.get(name, name): said[name] for name in KEPT if name in said}
    seen = agent.presence.last_active_at
    record = present(
        id=card.id,
        name=card.display_name or card.id,
        description=card.description or None,
        state=state_of(agent),
        role=role_of(card),
        scopes=list(card.scopes),
        visibility="public",
        metadata=card.metadata,
        children=list(children) or None,
        lifecycle=present(
            createdAt=milliseconds(card.registered_at), lastActiveAt=None if seen is None else milliseconds(seen)
        ),
    )
    return record | kept | {"ownerId": owner_of(agent)}


def children_of(agents: Iterable[Agent]) -> dict[str, list[str]]:
    """By parent."""
    found: dict[str, list[str]] = {}
    for agent in agents:
        parent = parent_of(agent.card)
        if parent is not None:
            found.setdefault(parent, []).append(agent.card.id)
    return found


def scope_record(scope: ScopeCard, members: Sequence[str]) -> dict[str, Any]:
    return {
        "name": scope.id,
        **scope.says,
        "id": scope.id,
        "createdAt": milliseconds(scope.created_at),
        "memberCount": len(members),
    } | present(createdBy=scope.created_by or None)


def first_state(said: dict[str, Any]) -> str:
    """Of an agent that registers."""
    state = said.get("state")
    return state if isinstance(state, str) and state else FIRST_STATE
