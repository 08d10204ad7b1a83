"""MAP's methods as verbs: their parameters and results. Checks, docs and the matrix of rights are made of them.

Methods about the connection itself are carried out by it (`connection.MapConnection`).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import UNSET

from ..core.verb import LOCAL, given, verb
from ..federation import methods
from ..formats.errors import NoSuchMethod
from ..formats.map import SUBSCRIBE_ACK, spellings
from ..room import room_of
from ..server.mail import MAIL
from ..server.requests import ForeignVerb, Milliseconds, SessionVerb, time_of
from . import agents, routing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.verb import V, Verb


MAP: dict[str, type[Verb]] = {}
_OBJECT = dict[str, Any]
_WHO = "the agent; without it, the one that this connection registered"
_SCOPE = "the scope"
_SUBSCRIPTION = "from map/subscribe"
_KEPT = "stored and shown"
_IGNORED = "accepted and ignored"
_LIMIT = "how many at most; 1000 at most"
_CURSOR = "continue after this one: the last answer's nextCursor"
_FILTER = "only what matches all of it"
_REASON = "why; ignored"
_METADATA = "anything; shown as it was given"
_CREDENTIAL = "the token that `postroom tokens create` printed"
_METHOD = "api-key or bearer; none, if the server runs with `--map open`"
_AGENT = "agent (id, name, state, role, scopes, parent, ownerId, metadata and so on)"
_CHANGED = f"{_AGENT}, previousState"
_DONE = f"{_AGENT}, success"


def _map(name: str, result: str, **declared: Any) -> Callable[[V], V]:
    return verb(name, result, registry=MAP, strict=False, **declared)


class AgentVerb(ForeignVerb, kw_only=True):
    """A request about an agent of the connection."""

    whose: ClassVar[str | None] = "agent_id"

    agent_id: Annotated[str | None, _WHO] = None


class DescribedVerb(AgentVerb, kw_only=True):
    """A request with what an agent says of itself, and may change."""

    visibility: Annotated[str | None, _KEPT] = None
    capabilities: Annotated[_OBJECT | None, _KEPT] = None
    environment: Annotated[_OBJECT | None, _KEPT] = None
    permission_overrides: Annotated[_OBJECT | None, _KEPT] = None
    capability_descriptor: Annotated[_OBJECT | None, _KEPT] = None
    persistent_identity: Annotated[_OBJECT | None, _KEPT] = None
    relationships: Annotated[list[Any] | None, _KEPT] = None
    metadata: Annotated[_OBJECT | None, _METADATA] = None
    state: Annotated[str | None, "its state; by default idle"] = None
    owner: Annotated[str | None, "set by the session to its participant, whatever a caller gives"] = None


class RegisteredVerb(DescribedVerb, kw_only=True):
    """A request that registers an agent."""

    name: Annotated[
        str | None, "a name for people; without an id, also the id, if it is a valid name of a mailbox"
    ] = None
    description: Annotated[str | None, "what it is"] = None
    role: Annotated[str | None, "what it does: messages can be sent to a role"] = None
    scopes: Annotated[list[Any] | None, "the teams it is in"] = None
    is_here: Annotated[bool, LOCAL] = False  # does this connection have the agent already?


@_map(
    "map/connect",
    "protocolVersion, sessionId, participantId, capabilities, systemInfo, reconnected,"
    " ownedAgents, reclaimedAgents, resumeToken, principal; or authRequired (methods,"
    " required)",
    action="agents",
)
class Connect(SessionVerb, kw_only=True):
    """Open the session and say who you are; the first call on a connection."""

    protocol_version: Annotated[Any, "1"] = None
    participant_type: Annotated[str, "agent, client, system or gateway"]
    participant_id: Annotated[str | None, _IGNORED] = None
    name: Annotated[str | None, "a name for people"] = None
    capabilities: Annotated[_OBJECT | None, "`delivery: {acks: true}` says that map/message.ack will come"] = None
    session_id: Annotated[str | None, _IGNORED] = None
    resume_token: Annotated[str | None, "from an earlier connect or disconnect: brings its agents back"] = None
    auth: Annotated[_OBJECT | None, "method and credential, as in map/authenticate"] = None

    def serve(self, session: Any) -> Any:
        return session.connect(given(self))


@_map(
    "map/authenticate",
    "success, sessionId, participantId, principal; or success: false and error (code, message)",
    action="agents",
)
class Authenticate(SessionVerb, kw_only=True):
    """Show a token: from now on this connection acts for its agent, or as an operator."""

    method: Annotated[str, _METHOD]
    credential: Annotated[str | None, _CREDENTIAL] = None
    metadata: Annotated[_OBJECT | None, _IGNORED] = None

    def serve(self, session: Any) -> Any:
        return session.authenticate(given(self))


@_map("map/auth/refresh", "success, principal; or success: false and error", action="agents")
class Refresh(SessionVerb, kw_only=True):
    """Replace the token by another one of the same agent."""

    method: Annotated[str, _METHOD]
    credential: Annotated[str | None, _CREDENTIAL] = None

    def serve(self, session: Any) -> Any:
        return session.refresh(given(self))


@_map("map/disconnect", "success, resumeToken, session (id, closedAt)", action="agents")
class Disconnect(SessionVerb, kw_only=True):
    """End the session; its agents are away, and their mail waits."""

    reason: Annotated[str | None, _REASON] = None

    def serve(self, session: Any) -> Any:
        return session.disconnect(given(self))


@_map("map/subscribe", "subscriptionId, cursor", action="agents")
class Subscribe(SessionVerb, kw_only=True):
    """Subscribe to events, as map/event notifications on this connection."""

    filter: Annotated[_OBJECT | None, _FILTER] = None
    options: Annotated[_OBJECT | None, _IGNORED] = None
    replay_from: Annotated[str | None, "a cursor, or the id of an event: first the events after it"] = None
    since: Annotated[str | None, "like replay_from"] = None

    def serve(self, session: Any) -> Any:
        return session.subscribe(given(self))


@_map("map/unsubscribe", "subscription (id, closedAt)", action="agents")
class Unsubscribe(SessionVerb, kw_only=True):
    """End a subscription."""

    subscription_id: Annotated[str, _SUBSCRIPTION]

    def serve(self, session: Any) -> Any:
        return session.unsubscribe(given(self))


@_map(SUBSCRIBE_ACK, "success", action="agents")
class SubscribeAck(SessionVerb, kw_only=True):
    """A notification: events up to here came."""

    subscription_id: Annotated[str, _SUBSCRIPTION]
    up_to_sequence: Annotated[int, "the last sequenceNumber"]

    def serve(self, session: Any) -> Any:
        return session.subscribe_ack(given(self))


@_map("map/message.ack", "success, acked (ids)", action="agents")
class MessageAck(SessionVerb, kw_only=True):
    """Messages were received: they are not sent again. An extension, for `delivery: {acks: true}` in map/connect.

    The answer to map/ping is the receipt of clients that do not say so.
    """

    message_ids: Annotated[str | list[str], "ids of messages"]

    def serve(self, session: Any) -> Any:
        ids = self.message_ids
        return session.message_ack({"message_ids": [ids] if isinstance(ids, str) else ids})


@_map("map/send", "messageId, delivered (the mailboxes it is in)", action="send")
class Send(ForeignVerb, kw_only=True, rename={"from_": "from"}):
    """Send a message: a durable letter to one or many."""

    whose: ClassVar[str | None] = "from"

    to: Annotated[
        Any,
        "a name, agent, agents, scope, role (within), parent, children, ancestors, descendants,"
        " siblings, broadcast, agentId, participant, system and agent; or a list of these;"
        " without it, the sender of the letter in meta.inReplyTo",
    ] = None
    payload: Annotated[Any, "any JSON"] = UNSET
    meta: Annotated[
        _OBJECT | None, "priority, correlationId, ttlMs, mail.conversationId and anything else; arrives unchanged"
    ] = None
    from_: Annotated[str | None, "the agent of this connection that sends it, where it has several"] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return routing.send(room_of(core, principal), given(self))


@_map("map/replay", "events (eventId, timestamp, event), hasMore", action="wait", slow=True, writes=False)
class Replay(ForeignVerb, kw_only=True):
    """Past events."""

    after_event_id: Annotated[str | None, "only events after this one"] = None
    from_timestamp: Annotated[datetime | Milliseconds | None, "only from this time on"] = None
    to_timestamp: Annotated[datetime | Milliseconds | None, "only up to this time"] = None
    filter: Annotated[_OBJECT | None, _FILTER] = None
    limit: Annotated[int | None, _LIMIT] = None

    def run(self, core: Core, principal: Principal) -> Any:
        ends = {"from_timestamp": self.from_timestamp, "to_timestamp": self.to_timestamp}
        times = {name: time_of(value, name) for name, value in ends.items() if value is not None}
        return routing.replay(room_of(core, principal), given(self) | times)


@_map("map/agents/register", _AGENT, action="register")
class Register(RegisteredVerb, kw_only=True):
    """Register an agent, or register it again: its mail is sent to this connection."""

    parent: Annotated[str | None, "the parent agent"] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.register(room_of(core, principal), given(self))


@_map(
    "map/agents/spawn",
    f"{_AGENT}; messageId of the first message, or error: why it was refused",
    action="register",
)
class Spawn(RegisteredVerb, kw_only=True):
    """Register a child of an agent, on the same connection."""

    parent: Annotated[str, "the parent agent"]
    initial_message: Annotated[Any, "its first message: payload and meta, or a payload"] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.spawn(room_of(core, principal), given(self) | {agents.IS_HERE: self.is_here})


@_map("map/agents/unregister", _DONE, action="register")
class Unregister(AgentVerb, kw_only=True):
    """Unregister an agent; its mail waits for an agent of its name."""

    reason: Annotated[str | None, _REASON] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.unregister(room_of(core, principal), given(self))


@_map("map/agents/update", _CHANGED, action="register")
class Update(DescribedVerb, kw_only=True):
    """Change the state or metadata of an agent."""

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.update(room_of(core, principal), given(self))


@_map("map/agents/stop", f"{_CHANGED}, stopping", action="register")
class Stop(AgentVerb, kw_only=True):
    """Stop an agent; it comes back by registering."""

    reason: Annotated[str | None, _REASON] = None
    force: Annotated[bool | None, _IGNORED] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.stop(room_of(core, principal), given(self))


@_map("map/agents/suspend", f"{_CHANGED}, suspended", action="register")
class Suspend(AgentVerb, kw_only=True):
    """Suspend an agent: its mail waits until it is resumed."""

    reason: Annotated[str | None, _REASON] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.suspend(room_of(core, principal), given(self))


@_map("map/agents/resume", f"{_CHANGED}, resumed", action="register")
class Resume(AgentVerb, kw_only=True):
    """Resume an agent."""

    context: Annotated[Any, _IGNORED] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.resume(room_of(core, principal), given(self))


@_map("map/agents/list", "agents, nextCursor", action="agents", many=True, writes=False)
class ListAgents(ForeignVerb, kw_only=True):
    """List the registered agents."""

    filter: Annotated[_OBJECT | None, "states, roles, scopes, parent, ownerId, hasChildren"] = None
    limit: Annotated[int | None, _LIMIT] = None
    cursor: Annotated[str | None, _CURSOR] = None
    states: Annotated[str | list[str] | None, "like filter.states"] = None
    roles: Annotated[str | list[str] | None, "like filter.roles"] = None
    scopes: Annotated[str | list[str] | None, "like filter.scopes"] = None
    state: Annotated[str | None, "one state"] = None
    role: Annotated[str | None, "one role"] = None
    scope: Annotated[str | None, "one scope"] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.list_agents(room_of(core, principal), given(self))


@_map(
    "map/agents/get",
    f"{_AGENT}; parent, children, siblings, ancestors, descendants where they are asked for",
    action="agents",
    many=True,
    writes=False,
)
class GetAgent(ForeignVerb, kw_only=True):
    """One agent."""

    agent_id: Annotated[str, "the agent"]
    include: Annotated[_OBJECT | None, "parent, children, siblings, ancestors, descendants, maxDepth"] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.get_agent(room_of(core, principal), given(self))


@_map("map/structure/graph", "nodes (agents), edges (from, to, type)", action="agents", many=True, writes=False)
class Graph(ForeignVerb, kw_only=True):
    """The tree of parents and children."""

    root_agent_id: Annotated[str | None, "only this agent and its descendants"] = None
    depth: Annotated[int | None, "how many levels down"] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.graph(room_of(core, principal), given(self))


@_map("map/scopes/create", "scope (id, name, memberCount and its other fields)", action="register")
class CreateScope(AgentVerb, kw_only=True):
    """Make a scope."""

    scope_id: Annotated[str | None, "its id; by default made of its name"] = None
    name: Annotated[str | None, "a name for people"] = None
    description: Annotated[str | None, "what it is for"] = None
    parent: Annotated[str | None, "another scope"] = None
    join_policy: Annotated[Any, _KEPT] = None
    auto_join_roles: Annotated[Any, _KEPT] = None
    visibility: Annotated[Any, _KEPT] = None
    message_visibility: Annotated[Any, _KEPT] = None
    send_policy: Annotated[Any, _KEPT] = None
    persistent: Annotated[Any, _KEPT] = None
    auto_delete: Annotated[Any, _KEPT] = None
    metadata: Annotated[_OBJECT | None, _METADATA] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.create(room_of(core, principal), given(self))


@_map("map/scopes/delete", "scope, success", action="register")
class DeleteScope(AgentVerb, kw_only=True):
    """Delete a scope that you made: all members leave it."""

    scope_id: Annotated[str, _SCOPE]

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.delete(room_of(core, principal), given(self))


@_map("map/scopes/join", "scope, agent, success", action="register")
class JoinScope(AgentVerb, kw_only=True):
    """Join a scope: messages to it come to the agent."""

    scope_id: Annotated[str, _SCOPE]

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.join(room_of(core, principal), given(self))


@_map("map/scopes/leave", "scope, agent, success", action="register")
class LeaveScope(AgentVerb, kw_only=True):
    """Leave a scope."""

    scope_id: Annotated[str, _SCOPE]

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.leave(room_of(core, principal), given(self))


@_map("map/scopes/get", "scope", action="agents", many=True, writes=False)
class GetScope(ForeignVerb, kw_only=True):
    """One scope."""

    scope_id: Annotated[str, _SCOPE]

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.get(room_of(core, principal), given(self))


@_map("map/scopes/list", "scopes, nextCursor", action="agents", many=True, writes=False)
class ListScopes(ForeignVerb, kw_only=True):
    """All scopes."""

    filter: Annotated[_OBJECT | None, _FILTER] = None
    parent: Annotated[str | None, "only below this one"] = None
    limit: Annotated[int | None, _LIMIT] = None
    cursor: Annotated[str | None, _CURSOR] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.list_all(room_of(core, principal), given(self))


@_map("map/scopes/members", "members (ids), nextCursor", action="agents", many=True, writes=False)
class ListMembers(ForeignVerb, kw_only=True):
    """The members of a scope."""

    scope_id: Annotated[str, _SCOPE]
    limit: Annotated[int | None, _LIMIT] = None
    cursor: Annotated[str | None, _CURSOR] = None

    def run(self, core: Core, principal: Principal) -> Any:
        return agents.members(room_of(core, principal), given(self))


MAP |= methods.FEDERATION
SPELT: dict[str, type[Verb]] = {spelling: cls for name, cls in MAP.items() for spelling in spellings(name)}


def for_map(name: str) -> type[Verb]:
    """Return the verb of this name, in either spelling; `mail/*` of conversations are methods of MAP, too."""
    found = SPELT.get(name) or MAIL.get(name)
    if found is None:
        raise NoSuchMethod(f"Method not found: {name[:200]}", field="method")
    return found
