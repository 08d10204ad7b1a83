"""The names of MAP's methods, in both spellings, and its words for states, participants and events.

The SDK writes `map/agents/list`, agentic-mesh `map/agents.list`: the slash after a noun becomes a dot. Both are
made of one name here. Where a name is another word altogether, `_OTHERWISE` says which.
"""

from __future__ import annotations

import re
from typing import Any

from ..errors import Invalid
from ..model.card import MAP_STATES

VERSION = 1  # of the protocol
SOFTWARE = "postroom"  # in what a server says of itself: it is one of ours
LINK_NAME = "map link"  # the principal by which the agents of a linked server are in the directory
MESSAGE, EVENT = "map/message", "map/event"  # what is told unasked
PING = "map/ping"  # asked of a participant; any answer will do, also that there is no such method
SUBSCRIBE_ACK, MESSAGE_ACK = "map/subscribe.ack", "map/message.ack"
CONNECT, AUTHENTICATE, REFRESH, DISCONNECT = (
    "map/connect",
    "map/authenticate",
    "map/auth/refresh",
    "map/disconnect",
)
REGISTER, SPAWN, UNREGISTER = "map/agents/register", "map/agents/spawn", "map/agents/unregister"
SEND, REPLAY = "map/send", "map/replay"
# Between systems: they meet, a letter goes, who is there is told, somebody is sought, they part.
MEET, ROUTE, ANNOUNCE, FIND, PART = (
    "map/federation/connect",
    "map/federation/route",
    "map/federation/announce",
    "map/federation/find",
    "map/federation/disconnect",
)
FEDERATION = frozenset({MEET, ROUTE, ANNOUNCE, FIND, PART})
GATEWAY = "gateway"  # the participant that a system is
PARTICIPANTS = ("agent", "client", "system", GATEWAY)
_PREFIX = "map/"
_NO_NAME = re.compile(r"[^A-Za-z0-9._/-]+")
_OTHERWISE = {REPLAY: "map/events.replay"}

# What happens to agents and scopes, as the SDK's server calls it; its constants say `agent_registered`.
AGENT_REGISTERED, AGENT_UNREGISTERED = "agent.registered", "agent.unregistered"
AGENT_CHANGED, AGENT_UPDATED = "agent.state.changed", "agent.updated"
SCOPE_CREATED, SCOPE_DELETED = "scope.created", "scope.deleted"
SCOPE_JOINED, SCOPE_LEFT = "scope.member.joined", "scope.member.left"
MESSAGE_DELIVERED = "message.delivered"

# How an agent says it is. Whoever has stopped comes back by registering, and not otherwise.
STATES = tuple(MAP_STATES)
OPEN_STATES = ("x-", "custom:")  # so begin words of one's own
GUEST = "map_guest"  # in the metadata of an agent: it comes by the link of another room
FIRST_STATE, SUSPENDED, STOPPED = "idle", "suspended", "stopped"


def cleaned(name: Any) -> str:
    """The nearest name that a mailbox can have: `Ann Lee` → `Ann-Lee`."""
    if not isinstance(name, str):
        raise Invalid("must be text", field="name")
    return _NO_NAME.sub("-", name).strip("-._/")[:128]


def dotted(name: str) -> str:
    """`map/agents/list` → `map/agents.list`, as agentic-mesh writes it."""
    if name in _OTHERWISE:
        return _OTHERWISE[name]
    noun, slash, verb = name.removeprefix(_PREFIX).partition("/")
    return f"{_PREFIX}{noun}.{verb}" if slash and name.startswith(_PREFIX) else name


def spellings(name: str) -> tuple[str, ...]:
    """Every way to write a name, the SDK's first."""
    return tuple(dict.fromkeys((name, dotted(name))))
