"""The table of MAP's methods: what may be said to each, what it answers. Checks, docs and the matrix of who may do
what are made of it. Those about the connection itself are carried out by the session (`map_session`).
"""

from __future__ import annotations

from typing import Any

from ..federation import methods
from ..formats.errors import NoSuchMethod
from ..formats.map import SUBSCRIBE_ACK, spellings
from ..server.protocol import MAIL
from ..server.table import Method, Param
from . import agents, routing

_WHO = Param("agent_id", "text", "the agent; without it, the one that this connection registered")
_NEEDED = Param("agent_id", "text", "the agent", required=True)
_SCOPE = Param("scope_id", "text", "the scope", required=True)
_LIMIT = Param("limit", "count", "how many at most; 1000 at most")
_CURSOR = Param("cursor", "text", "go on behind this one: the last answer's nextCursor")
_FILTER = Param("filter", "object", "only what fits all of it")
_REASON = Param("reason", "text", "why; told to nobody")
_METADATA = Param("metadata", "object", "anything; shown as it was said")
_CREDENTIAL = Param("credential", "text", "the token, as `postroom token create` showed it")
_METHOD = Param("method", "text", "api-key or bearer; none, where the post room was opened so", required=True)
_OF_AGENT = (
    Param("name", "text", "a name for people; where no id is said, and a mailbox can be called so, also the id"),
    Param("description", "text", "what it is"),
    Param("role", "text", "what it does: messages can be sent to a role"),
    Param("scopes", "list", "the teams it is in"),
    Param("visibility", "text", "kept and shown"),
    Param("capabilities", "object", "kept and shown"),
    Param("environment", "object", "kept and shown"),
    Param("permission_overrides", "object", "kept and shown"),
    Param("capability_descriptor", "object", "kept and shown"),
    Param("persistent_identity", "object", "kept and shown"),
    Param("relationships", "list", "kept and shown"),
    _METADATA,
    Param("state", "text", "how it is; idle when nothing is said"),
    Param("owner", "text", "said by the session: its participant, whatever a caller says"),
)
_AGENT = "agent (id, name, state, role, scopes, parent, ownerId, metadata and so on)"
_CHANGED = f"{_AGENT}, previousState"
_DONE = f"{_AGENT}, success"


def _row(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    fields = {"strict": False, "action": "register", **more}
    return Method(name=f"map/{name}", about=about, run=run, params=params, result=result, **fields)


def _own(name: str, about: str, run: Any, *params: Param, result: str = _AGENT, **more: Any) -> Method:
    return _row(name, about, run, *params, result=result, whose="agent_id", **more)


def _looks(name: str, about: str, run: Any, *params: Param, result: str) -> Method:
    return _row(name, about, run, *params, result=result, action="agents", writes=False, many=True)


def _session(name: str, about: str, verb: str, *params: Param, result: str) -> Method:
    def run(session: Any, args: dict[str, Any]) -> Any:
        return getattr(session, verb)(args)

    return _row(name, about, run, *params, result=result, action="agents", of_session=True)


ROWS: tuple[Method, ...] = (
    _session(
        "connect",
        "say who you are; the first word on a connection",
        "connect",
        Param("protocol_version", "any", "1"),
        Param("participant_type", "text", "agent, client, system or gateway", required=True),
        Param("participant_id", "text", "taken and not needed"),
        Param("name", "text", "a name for people"),
        Param("capabilities", "object", "`delivery: {acks: true}` says that map/message.ack will come"),
        Param("session_id", "text", "taken and not needed"),
        Param("resume_token", "text", "from an earlier connect or disconnect: its agents come back with it"),
        Param("auth", "object", "method and credential, as in map/authenticate"),
        result="protocolVersion, sessionId, participantId, capabilities, systemInfo, reconnected, ownedAgents, "
        "reclaimedAgents, resumeToken, principal; or authRequired (methods, required)",
    ),
    _session(
        "authenticate",
        "show a token: from now on this connection speaks for its agent, or as an operator",
        "authenticate",
        _METHOD,
        _CREDENTIAL,
        Param("metadata", "object", "taken and not needed"),
        result="success, sessionId, participantId, principal; or success: false and error (code, message)",
    ),
    _session(
        "auth/refresh",
        "show a token once more; one of the same agent",
        "refresh",
        _METHOD,
        _CREDENTIAL,
        result="success, principal; or success: false and error",
    ),
    _session("disconnect", "go; agents of this connection are away, and their mail waits", "disconnect", _REASON,
             result="success, resumeToken, session (id, closedAt)"),
    _session(
        "subscribe",
        "hear of what happens, as map/event notifications on this connection",
        "subscribe",
        _FILTER,
        Param("options", "object", "taken and not needed"),
        Param("replay_from", "text", "a cursor, or the id of an event: first what came after it"),
        Param("since", "text", "the same, in our own word"),
        result="subscriptionId, cursor",
    ),
    _session("unsubscribe", "hear no more of it", "unsubscribe",
             Param("subscription_id", "text", "from map/subscribe", required=True),
             result="subscription (id, closedAt)"),
    _session(SUBSCRIBE_ACK.removeprefix("map/"), "a notification: events up to here were taken", "subscribe_ack",
             Param("subscription_id", "text", "from map/subscribe", required=True),
             Param("up_to_sequence", "count", "the last sequenceNumber", required=True), result="success"),
    _session("message.ack", "messages were taken: they are never handed out again. Our own word, for those who "
             "said `delivery: {acks: true}` when they connected; of others a sign of their connection does",
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
              "as it was said"),
        Param("from", "text", "which agent of this connection sends it, where it has several"),
        result="messageId, delivered (in whose inboxes it lies)",
        action="send",
        whose="from",
    ),
    _row(
        "replay",
        "what happened, once more",
        routing.replay,
        Param("after_event_id", "text", "only what came after this event"),
        Param("from_timestamp", "time", "only from this time on"),
        Param("to_timestamp", "time", "only up to this time"),
        _FILTER,
        _LIMIT,
        result="events (eventId, timestamp, event), hasMore",
        action="wait",
        slow=True,
        writes=False,
    ),
    _own("agents/register", "an agent comes, or comes back: from now on its mail is handed to this connection",
         agents.register, _WHO, Param("parent", "text", "whose child it is"), *_OF_AGENT),
    _own("agents/spawn", "an agent's child comes, on the same connection", agents.spawn, _WHO,
         Param("parent", "text", "whose child it is", required=True), *_OF_AGENT,
         Param("initial_message", "any", "its first message: payload and meta, or a payload"),
         result=f"{_AGENT}; messageId of the first message, or error: why it was refused"),
    _own("agents/unregister", "an agent goes for good; its mail waits for one of its name", agents.unregister,
         _WHO, _REASON, result=_DONE),
    _own("agents/update", "an agent says how it is", agents.update, _WHO,
         *(param for param in _OF_AGENT if param.name not in {"name", "description", "role", "scopes"}),
         result=_CHANGED),
    _own("agents/stop", "an agent stops; it comes back by registering", agents.stop, _WHO, _REASON,
         Param("force", "flag", "taken and not needed"), result=f"{_CHANGED}, stopping"),
    _own("agents/suspend", "an agent is handed no mail for a while; it waits", agents.suspend, _WHO, _REASON,
         result=f"{_CHANGED}, suspended"),
    _own("agents/resume", "an agent goes on", agents.resume, _WHO,
         Param("context", "any", "taken and not needed"), result=f"{_CHANGED}, resumed"),
    _looks("agents/list", "who is registered", agents.list_agents,
           Param("filter", "object", "states, roles, scopes, parent, ownerId, hasChildren"), _LIMIT, _CURSOR,
           Param("states", "texts", "the same, outside of filter"), Param("roles", "texts", "the same"),
           Param("scopes", "texts", "the same"), Param("state", "text", "the same"),
           Param("role", "text", "the same"),
           Param("scope", "text", "the same"), result="agents, nextCursor"),
    _looks("agents/get", "one agent", agents.get_agent, _NEEDED,
           Param("include", "object", "parent, children, siblings, ancestors, descendants, maxDepth"),
           result=f"{_AGENT}; parent, children, siblings, ancestors, descendants where they are asked for"),
    _looks("structure/graph", "who is whose child", agents.graph,
           Param("root_agent_id", "text", "only this one and those below it"),
           Param("depth", "count", "how far below"),
           result="nodes (agents), edges (from, to, type)"),
    _own("scopes/create", "make a scope", agents.create, _WHO,
         Param("scope_id", "text", "its id; else it is made of its name"),
         Param("name", "text", "a name for people"),
         Param("description", "text", "what it is for"), Param("parent", "text", "another scope"),
         *(Param(word, "any", "kept and shown") for word in agents.SAYS[3:-1]), _METADATA,
         result="scope (id, name, memberCount and what was said of it)"),
    _own("scopes/delete", "remove a scope that one made: everybody leaves it", agents.delete, _WHO, _SCOPE,
         result="scope, success"),
    _own("scopes/join", "be in a scope: what is sent to it comes", agents.join, _WHO, _SCOPE,
         result="scope, agent, success"),
    _own("scopes/leave", "be in it no more", agents.leave, _WHO, _SCOPE, result="scope, agent, success"),
    _looks("scopes/get", "one scope", agents.get, _SCOPE, result="scope"),
    _looks("scopes/list", "all scopes", agents.list_all, _FILTER,
           Param("parent", "text", "only below this one"), _LIMIT, _CURSOR, result="scopes, nextCursor"),
    _looks("scopes/members", "who is in a scope", agents.members, _SCOPE, _LIMIT, _CURSOR,
           result="members (ids), nextCursor"),
    *methods.ROWS,
)  # fmt: skip
MAP: dict[str, Method] = {row.name: row for row in ROWS}
SPELT: dict[str, Method] = {spelling: row for row in ROWS for spelling in spellings(row.name)}


def for_map(name: str) -> Method:
    """On a MAP session, in either spelling; `mail/*` of conversations beside it."""
    found = SPELT.get(name) or MAIL.get(name)
    if found is None:
        raise NoSuchMethod(f"Method not found: {name[:200]}", field="method")
    return found
