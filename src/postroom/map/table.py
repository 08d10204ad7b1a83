"""The table of MAP's methods: their parameters and results. Checks, docs and the matrix of rights are made of it.

Methods about the connection itself are carried out by it (`connection.MapConnection`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..federation import methods
from ..formats.errors import NoSuchMethod
from ..formats.map import SUBSCRIBE_ACK, spellings
from ..server.mail import MAIL
from ..server.table import Method, Param, verb_of
from . import agents, routing

if TYPE_CHECKING:
    from ..core.verb import Verb


_WHO = Param("agent_id", "text", "the agent; without it, the one that this connection registered")
_NEEDED = Param("agent_id", "text", "the agent", required=True)
_SCOPE = Param("scope_id", "text", "the scope", required=True)
_LIMIT = Param("limit", "count", "how many at most; 1000 at most")
_CURSOR = Param("cursor", "text", "continue after this one: the last answer's nextCursor")
_FILTER = Param("filter", "object", "only what matches all of it")
_REASON = Param("reason", "text", "why; ignored")
_METADATA = Param("metadata", "object", "anything; shown as it was given")
_CREDENTIAL = Param("credential", "text", "the token that `postroom tokens create` printed")
_METHOD = Param("method", "text", "api-key or bearer; none, if the server runs with `--map open`", required=True)
_OF_AGENT = (
    Param("name", "text", "a name for people; without an id, also the id, if it is a valid name of a mailbox"),
    Param("description", "text", "what it is"),
    Param("role", "text", "what it does: messages can be sent to a role"),
    Param("scopes", "list", "the teams it is in"),
    Param("visibility", "text", "stored and shown"),
    Param("capabilities", "object", "stored and shown"),
    Param("environment", "object", "stored and shown"),
    Param("permission_overrides", "object", "stored and shown"),
    Param("capability_descriptor", "object", "stored and shown"),
    Param("persistent_identity", "object", "stored and shown"),
    Param("relationships", "list", "stored and shown"),
    _METADATA,
    Param("state", "text", "its state; by default idle"),
    Param("owner", "text", "set by the session to its participant, whatever a caller gives"),
)
_AGENT = "agent (id, name, state, role, scopes, parent, ownerId, metadata and so on)"
_CHANGED = f"{_AGENT}, previousState"
_DONE = f"{_AGENT}, success"


def _row(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    fields = {"strict": False, "action": "register", **more}
    return Method(name=f"map/{name}", about=about, run=run, params=params, result=result, **fields)


def _own(name: str, about: str, run: Any, *params: Param, result: str = _AGENT, **more: Any) -> Method:
    return _row(name, about, run, *params, result=result, whose="agent_id", **more)


def _query(name: str, about: str, run: Any, *params: Param, result: str) -> Method:
    return _row(name, about, run, *params, result=result, action="agents", writes=False, many=True)


def _session(name: str, about: str, verb: str, *params: Param, result: str) -> Method:
    def run(session: Any, args: dict[str, Any]) -> Any:
        return getattr(session, verb)(args)

    return _row(name, about, run, *params, result=result, action="agents", of_session=True)


ROWS: tuple[Method, ...] = (
    _session(
        "connect",
        "open the session and say who you are; the first call on a connection",
        "connect",
        Param("protocol_version", "any", "1"),
        Param("participant_type", "text", "agent, client, system or gateway", required=True),
        Param("participant_id", "text", "accepted and ignored"),
        Param("name", "text", "a name for people"),
        Param("capabilities", "object", "`delivery: {acks: true}` says that map/message.ack will come"),
        Param("session_id", "text", "accepted and ignored"),
        Param("resume_token", "text", "from an earlier connect or disconnect: brings its agents back"),
        Param("auth", "object", "method and credential, as in map/authenticate"),
        result="protocolVersion, sessionId, participantId, capabilities, systemInfo, reconnected, ownedAgents, "
        "reclaimedAgents, resumeToken, principal; or authRequired (methods, required)",
    ),
    _session(
        "authenticate",
        "show a token: from now on this connection acts for its agent, or as an operator",
        "authenticate",
        _METHOD,
        _CREDENTIAL,
        Param("metadata", "object", "accepted and ignored"),
        result="success, sessionId, participantId, principal; or success: false and error (code, message)",
    ),
    _session(
        "auth/refresh",
        "replace the token by another one of the same agent",
        "refresh",
        _METHOD,
        _CREDENTIAL,
        result="success, principal; or success: false and error",
    ),
    _session("disconnect", "end the session; its agents are away, and their mail waits", "disconnect", _REASON,
             result="success, resumeToken, session (id, closedAt)"),
    _session(
        "subscribe",
        "subscribe to events, as map/event notifications on this connection",
        "subscribe",
        _FILTER,
        Param("options", "object", "accepted and ignored"),
        Param("replay_from", "text", "a cursor, or the id of an event: first the events after it"),
        Param("since", "text", "like replay_from"),
        result="subscriptionId, cursor",
    ),
    _session("unsubscribe", "end a subscription", "unsubscribe",
             Param("subscription_id", "text", "from map/subscribe", required=True),
             result="subscription (id, closedAt)"),
    _session(SUBSCRIBE_ACK.removeprefix("map/"), "a notification: events up to here came", "subscribe_ack",
             Param("subscription_id", "text", "from map/subscribe", required=True),
             Param("up_to_sequence", "count", "the last sequenceNumber", required=True), result="success"),
    _session("message.ack", "messages were received: they are never sent again. An extension, for clients with "
             "`delivery: {acks: true}` in map/connect; of others the answer to map/ping is the receipt",
             "message_ack", Param("message_ids", "texts", "ids of messages", required=True),
             result="success, acked (ids)"),
    _row(
        "send",
        "send a message: a durable letter to one or many",
        routing.send,
        Param("to", "any", "a name, agent, agents, scope, role (within), parent, children, ancestors, descendants,"
              " siblings, broadcast, agentId, participant, system and agent; or a list of these; without it, the"
              " sender of the letter in meta.inReplyTo"),
        Param("payload", "json", "any JSON"),
        Param("meta", "object", "priority, correlationId, ttlMs, mail.conversationId and anything else; arrives "
              "unchanged"),
        Param("from", "text", "the agent of this connection that sends it, where it has several"),
        result="messageId, delivered (the mailboxes it is in)",
        action="send",
        whose="from",
    ),
    _row(
        "replay",
        "past events",
        routing.replay,
        Param("after_event_id", "text", "only events after this one"),
        Param("from_timestamp", "time", "only from this time on"),
        Param("to_timestamp", "time", "only up to this time"),
        _FILTER,
        _LIMIT,
        result="events (eventId, timestamp, event), hasMore",
        action="wait",
        slow=True,
        writes=False,
    ),
    _own("agents/register", "register an agent, or register it again: its mail is sent to this connection",
         agents.register, _WHO, Param("parent", "text", "the parent agent"), *_OF_AGENT),
    _own("agents/spawn", "register a child of an agent, on the same connection", agents.spawn, _WHO,
         Param("parent", "text", "the parent agent", required=True), *_OF_AGENT,
         Param("initial_message", "any", "its first message: payload and meta, or a payload"),
         result=f"{_AGENT}; messageId of the first message, or error: why it was refused"),
    _own("agents/unregister", "unregister an agent; its mail waits for an agent of its name", agents.unregister,
         _WHO, _REASON, result=_DONE),
    _own("agents/update", "change the state or metadata of an agent", agents.update, _WHO,
         *(param for param in _OF_AGENT if param.name not in {"name", "description", "role", "scopes"}),
         result=_CHANGED),
    _own("agents/stop", "stop an agent; it comes back by registering", agents.stop, _WHO, _REASON,
         Param("force", "flag", "accepted and ignored"), result=f"{_CHANGED}, stopping"),
    _own("agents/suspend", "suspend an agent: its mail waits until it is resumed", agents.suspend, _WHO, _REASON,
         result=f"{_CHANGED}, suspended"),
    _own("agents/resume", "resume an agent", agents.resume, _WHO,
         Param("context", "any", "accepted and ignored"), result=f"{_CHANGED}, resumed"),
    _query("agents/list", "list the registered agents", agents.list_agents,
           Param("filter", "object", "states, roles, scopes, parent, ownerId, hasChildren"), _LIMIT, _CURSOR,
           Param("states", "texts", "like filter.states"), Param("roles", "texts", "like filter.roles"),
           Param("scopes", "texts", "like filter.scopes"), Param("state", "text", "one state"),
           Param("role", "text", "one role"),
           Param("scope", "text", "one scope"), result="agents, nextCursor"),
    _query("agents/get", "one agent", agents.get_agent, _NEEDED,
           Param("include", "object", "parent, children, siblings, ancestors, descendants, maxDepth"),
           result=f"{_AGENT}; parent, children, siblings, ancestors, descendants where they are asked for"),
    _query("structure/graph", "the tree of parents and children", agents.graph,
           Param("root_agent_id", "text", "only this agent and its descendants"),
           Param("depth", "count", "how many levels down"),
           result="nodes (agents), edges (from, to, type)"),
    _own("scopes/create", "make a scope", agents.create, _WHO,
         Param("scope_id", "text", "its id; by default made of its name"),
         Param("name", "text", "a name for people"),
         Param("description", "text", "what it is for"), Param("parent", "text", "another scope"),
         *(Param(word, "any", "stored and shown") for word in agents.SCOPE_FIELDS[3:-1]), _METADATA,
         result="scope (id, name, memberCount and its other fields)"),
    _own("scopes/delete", "delete a scope that you made: all members leave it", agents.delete, _WHO, _SCOPE,
         result="scope, success"),
    _own("scopes/join", "join a scope: messages to it come to the agent", agents.join, _WHO, _SCOPE,
         result="scope, agent, success"),
    _own("scopes/leave", "leave a scope", agents.leave, _WHO, _SCOPE, result="scope, agent, success"),
    _query("scopes/get", "one scope", agents.get, _SCOPE, result="scope"),
    _query("scopes/list", "all scopes", agents.list_all, _FILTER,
           Param("parent", "text", "only below this one"), _LIMIT, _CURSOR, result="scopes, nextCursor"),
    _query("scopes/members", "the members of a scope", agents.members, _SCOPE, _LIMIT, _CURSOR,
           result="members (ids), nextCursor"),
)  # fmt: skip
MAP: dict[str, type[Verb]] = {row.name: verb_of(row) for row in ROWS} | methods.FEDERATION
SPELT: dict[str, type[Verb]] = {spelling: cls for name, cls in MAP.items() for spelling in spellings(name)}


def for_map(name: str) -> type[Verb]:
    """Return the verb of this name, in either spelling; `mail/*` of conversations are methods of MAP, too."""
    found = SPELT.get(name) or MAIL.get(name)
    if found is None:
        raise NoSuchMethod(f"Method not found: {name[:200]}", field="method")
    return found
