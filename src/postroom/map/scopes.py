"""MAP's methods for scopes: create, delete, join, leave; list scopes and members.

Membership is on the cards of agents, so a broadcast of the room reaches it. Policies of scopes (joinPolicy,
sendPolicy and the like) are kept and shown as they were given; the room has one policy: a client that is admitted
may join a scope and write to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from ..core import agents as core_agents
from ..core.agents import find_scope, members_of, registered_agent
from ..core.verb import perform, set_parameters
from ..errors import Invalid
from ..formats.map import agent_record, cleaned, scope_record
from ..model.names import check_scope
from ..server.requests import ForeignVerb
from .methods import FILTER, KEPT_AS_GIVEN, METADATA, AgentVerb, JsonObject, PagedVerb, map_method

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..core.core import Core
    from ..model.agent import ScopeCard


_SCOPE = "the scope"


class ScopeVerb(AgentVerb, kw_only=True):
    """A request of an agent about one scope."""

    scope_id: Annotated[str, _SCOPE]


@map_method("map/scopes/create", "scope (id, name, memberCount and its other fields)", action="register")
class CreateScope(AgentVerb, kw_only=True):
    """Make a scope."""

    scope_id: Annotated[str | None, "its id; by default made of its name"] = None
    name: Annotated[str | None, "a name for people"] = None
    description: Annotated[str | None, "what it is for"] = None
    parent: Annotated[str | None, "another scope"] = None
    join_policy: Annotated[Any, KEPT_AS_GIVEN] = None
    auto_join_roles: Annotated[Any, KEPT_AS_GIVEN] = None
    visibility: Annotated[Any, KEPT_AS_GIVEN] = None
    message_visibility: Annotated[Any, KEPT_AS_GIVEN] = None
    send_policy: Annotated[Any, KEPT_AS_GIVEN] = None
    persistent: Annotated[Any, KEPT_AS_GIVEN] = None
    auto_delete: Annotated[Any, KEPT_AS_GIVEN] = None
    metadata: Annotated[JsonObject | None, METADATA] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        says = {
            _camel(name): value
            for name, value in set_parameters(self).items()
            if name not in {"agent_id", "scope_id"}
        }
        id = self.scope_id or _id_of(self.name or "") or f"scope-{core.ids.token()[:12]}"
        whose = self.agent_id or principal.agent or ""
        made = core_agents.CreateScope(agent_id=whose, scope_id=id, says=says)
        return {"scope": _record(core, perform(core, principal, made))}


def _id_of(name: str) -> str:
    """Return a scope's name as its id, or the nearest id where the name cannot be one: `Team A` → `Team-A`."""
    try:
        return check_scope(name, "name")
    except Invalid:
        return cleaned(name.replace("/", " "))


def _camel(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(part.capitalize() for part in rest)


@map_method("map/scopes/delete", "scope, success", action="register")
class DeleteScope(ScopeVerb, kw_only=True):
    """Delete a scope that you made: all members leave it."""

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        id, whose = check_scope(self.scope_id, "scope_id"), self.agent_id or principal.agent or ""
        deleted = perform(core, principal, core_agents.DeleteScope(agent_id=whose, scope_id=id))
        return {"scope": scope_record(deleted, []), "success": True}


@map_method("map/scopes/join", "scope, agent, success", action="register")
class JoinScope(ScopeVerb, kw_only=True):
    """Join a scope: messages to it come to the agent."""

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        name = self.actor(core, principal)
        perform(core, principal, core_agents.JoinScope(agent_id=name, scope_id=self.scope_id))
        return _with_agent(core, find_scope(core, self.scope_id), name)


@map_method("map/scopes/leave", "scope, agent, success", action="register")
class LeaveScope(ScopeVerb, kw_only=True):
    """Leave a scope."""

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        # Looked up first: a scope that nobody created is gone with its last member.
        name, scope = self.actor(core, principal), find_scope(core, self.scope_id)
        perform(core, principal, core_agents.LeaveScope(agent_id=name, scope_id=scope.id))
        return _with_agent(core, scope, name)


@map_method("map/scopes/get", "scope", action="agents", many=True, writes=False)
class GetScope(ForeignVerb, kw_only=True):
    """One scope."""

    scope_id: Annotated[str, _SCOPE]

    def run(self, core: Core, _principal: Principal) -> dict[str, Any]:
        return {"scope": _record(core, find_scope(core, self.scope_id))}


@map_method("map/scopes/list", "scopes, nextCursor", action="agents", many=True, writes=False)
class ListScopes(PagedVerb, kw_only=True):
    """All scopes."""

    filter: Annotated[JsonObject | None, FILTER] = None
    parent: Annotated[str | None, "only below this one"] = None

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        scopes = {scope.id: scope for scope in perform(core, principal, core_agents.ListScopes())}
        parent = (self.filter or {}).get("parent", self.parent)
        shown, more = self.page(id for id, one in scopes.items() if parent in {None, one.says.get("parent")})
        return {"scopes": [_record(core, scopes[id]) for id in shown], **more}


@map_method("map/scopes/members", "members (ids), nextCursor", action="agents", many=True, writes=False)
class ListMembers(PagedVerb, kw_only=True):
    """The members of a scope."""

    scope_id: Annotated[str, _SCOPE]

    def run(self, core: Core, _principal: Principal) -> dict[str, Any]:
        shown, more = self.page(members_of(core, find_scope(core, self.scope_id).id))
        return {"members": shown, **more}


def _with_agent(core: Core, scope: ScopeCard, name: str) -> dict[str, Any]:
    return {"scope": _record(core, scope), "agent": agent_record(registered_agent(core, name)), "success": True}


def _record(core: Core, scope: ScopeCard) -> dict[str, Any]:
    return scope_record(scope, members_of(core, scope.id))
