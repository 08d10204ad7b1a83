"""The MAP codec: method names, addresses, messages, agents and scopes, and error codes.

Nothing here knows which agents exist: the room `map` looks them up.

Method names have two spellings. The SDK writes `map/agents/list`, agentic-mesh `map/agents.list`: the slash
after a noun becomes a dot. `_OTHERWISE` holds the names that differ in more than that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from ..core.presentation import persons_notice
from ..errors import (
    Busy,
    Conflict,
    IdTaken,
    IllegalMove,
    Invalid,
    Missing,
    NameTaken,
    NotAllowed,
    PostroomError,
    QuotaFull,
    Refused,
    TooFast,
    UnknownAgent,
)
from ..model.agent import MAP_STATES, Warmth, map_fields, parent_of
from ..model.codec import blake2b, encode, note_in, to_plain
from ..model.message import MAP_NOTE, content_of, is_any, is_broadcast, is_typed, payload_to_parts
from ..model.names import BROADCAST, PEOPLE, check_id, check_scope
from ..model.thread import conversation_of, letter_of_turn
from ..model.values import check_label, check_line, object_in, text_in
from .errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    PARSE_ERROR,
    NoSuchMethod,
    mail_problem,
    number_in,
)
from .errors import details as all_details
from .inbox import milliseconds, present

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from ..model.agent import Agent, Card, ScopeCard
    from ..model.message import Message
    from .errors import (
        Numbers,
    )


VERSION = 1  # of the protocol
SOFTWARE = "postroom"  # the software name by which a server is recognized as a post room
LINK_NAME = "map link"  # the principal of the agents of a linked server in the directory
MESSAGE = "map/message"  # a notification
PING = "map/ping"  # sent to a participant; any answer will do, even that there is no such method
SUBSCRIBE_ACK, MESSAGE_ACK = "map/subscribe.ack", "map/message.ack"
CONNECT, AUTHENTICATE, REFRESH, DISCONNECT = (
    "map/connect",
    "map/authenticate",
    "map/auth/refresh",
    "map/disconnect",
)
REGISTER, SPAWN, UNREGISTER = "map/agents/register", "map/agents/spawn", "map/agents/unregister"
SEND, REPLAY = "map/send", "map/replay"
# Methods between systems: connect, send a letter, announce agents, look up an agent, disconnect.
MEET, ROUTE, ANNOUNCE, FIND, PART = (
    "map/federation/connect",
    "map/federation/route",
    "map/federation/announce",
    "map/federation/find",
    "map/federation/disconnect",
)
FEDERATION = frozenset({MEET, ROUTE, ANNOUNCE, FIND, PART})
GATEWAY = "gateway"  # the kind of participant that another system is
PARTICIPANTS = ("agent", "client", "system", GATEWAY)
_PREFIX = "map/"
_NO_NAME = re.compile(r"[^A-Za-z0-9._/-]+")
_OTHERWISE = {REPLAY: "map/events.replay"}

# Events of agents and scopes, in the spelling of the SDK's server; the SDK's constants say `agent_registered`.
AGENT_REGISTERED, AGENT_UNREGISTERED = "agent.registered", "agent.unregistered"
AGENT_CHANGED, AGENT_UPDATED = "agent.state.changed", "agent.updated"
SCOPE_CREATED, SCOPE_DELETED = "scope.created", "scope.deleted"
SCOPE_JOINED, SCOPE_LEFT = "scope.member.joined", "scope.member.left"
MESSAGE_DELIVERED = "message.delivered"

# States of an agent. A stopped agent returns only by registering.
STATES = tuple(MAP_STATES)
OPEN_STATES = ("x-", "custom:")  # prefixes of custom states
GUEST = "map_guest"  # key in an agent's metadata: it comes through the link of another room
FIRST_STATE, SUSPENDED, STOPPED = "idle", "suspended", "stopped"


def cleaned(name: Any) -> str:
    """Return the nearest valid name of a mailbox: `Ann Lee` → `Ann-Lee`."""
    if not isinstance(name, str):
        raise Invalid("must be text", field="name")
    return _NO_NAME.sub("-", name).strip("-._/")[:128]


def dotted(name: str) -> str:
    """Return a method name in the spelling of agentic-mesh: `map/agents/list` → `map/agents.list`."""
    if name in _OTHERWISE:
        return _OTHERWISE[name]
    noun, slash, verb = name.removeprefix(_PREFIX).partition("/")
    return f"{_PREFIX}{noun}.{verb}" if slash and name.startswith(_PREFIX) else name


def spellings(name: str) -> tuple[str, ...]:
    """Return every spelling of a method name, the SDK's first."""
    return tuple(dict.fromkeys((name, dotted(name))))


# Addresses: every form of `to` that the SDK, its server and agent-inbox write, as one value

KIN = ("parent", "children", "ancestors", "descendants", "siblings")
_GROUPS = ("all", "agents")
MOST = 10_000  # addresses in one list
_HINT = (
    "a name, {agent}, {agents}, {agentId}, {participant}, {scope}, {role, within}, {parent|children|ancestors|"
    "descendants|siblings: true}, {broadcast: true}, {participants: all|agents}, {system, agent, scope}, or a "
    "list of these"
)


class Role(Struct, frozen=True, order=True):
    """All agents with a role, in one scope or anywhere."""

    name: str
    within: str | None = None


class Kin(Struct, frozen=True, order=True):
    """The relatives of the sender in the tree of agents."""

    relation: str
    depth: int | None = None  # levels of the tree; None: all


class Remote(Struct, frozen=True, order=True):
    """An agent at a named system, which may be this one; without an agent, every agent that it exposes."""

    system: str
    agent: str = ""
    scope: str = ""


class MapAddress(Struct, frozen=True, kw_only=True):
    """The addressees in a `to`."""

    agents: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ()
    roles: tuple[Role, ...] = ()
    kin: tuple[Kin, ...] = ()
    remote: tuple[Remote, ...] = ()
    everyone: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it names agents only, so that nothing has to be looked up."""
        return not (self.scopes or self.roles or self.kin or self.remote or self.everyone)


def read_address(to: Any) -> MapAddress:
    """Return the address in a `to` of any form."""
    # The form that nearly every message has, before all the others are tried.
    if isinstance(to, dict) and len(to) == 1 and isinstance(name := to.get("agent"), str):  # the usual case
        return _of_name(name)
    if not isinstance(to, list):
        return _one(to)
    if not to or len(to) > MOST:
        raise Invalid(f"a list of {len(to)}; 1 to {MOST}", field="to", hint=_HINT)
    return _joined([_one(each) for each in to])


def _one(to: Any) -> MapAddress:
    if isinstance(to, str):
        return _of_name(to)
    if not isinstance(to, dict):
        raise Invalid("names nobody", field="to", hint=_HINT)
    if isinstance(system := to.get("system"), str):
        return _at(system, to)
    for word in ("agent", "agentId", "agent_id", "participant"):
        if to.get(word) is not None:
            return _of_name(_text(to, word))
    if isinstance(names := to.get("agents"), list):
        return _joined([_of_name(name) if isinstance(name, str) else _one(None) for name in names])
    return _of_group(to)


def _at(system: str, to: dict[str, Any]) -> MapAddress:
    """Return the address in `{system, agent}`, `{system, agents}` or `{system}`, with or without a scope there."""
    names = to.get("agents", [_text(to, "agent") if to.get("agent") is not None else ""])
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise Invalid("must be names", field="to.agents", hint=_HINT)
    scope = "" if to.get("scope") is None else _text(to, "scope")
    return MapAddress(remote=tuple(Remote(system, name, scope) for name in names))


def _of_group(to: dict[str, Any]) -> MapAddress:
    if to.get("scope") is not None:
        return MapAddress(scopes=(_text(to, "scope"),))
    if to.get("role") is not None:
        within = to.get("within")
        return MapAddress(roles=(Role(_text(to, "role"), None if within is None else _text(to, "within")),))
    if to.get("broadcast") is True or to.get("participants") in _GROUPS:
        return MapAddress(everyone=True)
    for relation in KIN:
        if to.get(relation) is True:
            return MapAddress(kin=(Kin(relation, _depth(to)),))
    raise Invalid("names nobody", field="to", hint=_HINT)


def _of_name(text: str) -> MapAddress:
    """Return the address in `bob`, `agent:bob`, `scope:team`, `bob@system`, `bob@system/scope` or `@system`."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "scope" and rest:
        return MapAddress(scopes=(rest,))
    name = rest if colon and kind == "agent" else text
    agent, at, place = name.partition("@")
    if at and place:
        system, _, scope = place.partition("/")
        return MapAddress(remote=(Remote(system, agent, scope),))
    if not name:
        raise Invalid("names nobody", field="to", hint=_HINT)
    return MapAddress(agents=(name,))


def _joined(some: list[MapAddress]) -> MapAddress:
    def each(field: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(one for address in some for one in getattr(address, field)))

    names = ("agents", "scopes", "roles", "kin", "remote")
    found = MapAddress(everyone=any(address.everyone for address in some), **{name: each(name) for name in names})
    if found == MapAddress():
        raise Invalid("names nobody", field="to", hint=_HINT)
    return found


def _text(to: dict[str, Any], word: str) -> str:
    value = to.get(word)
    if not isinstance(value, str) or not value:
        raise Invalid("must be text", field=f"to.{word}", hint=_HINT)
    return value


def _depth(to: dict[str, Any]) -> int | None:
    depth = to.get("depth")
    if depth is None:
        return None
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
        raise Invalid("must be a whole number from 1 on", field="to.depth")
    return depth


# A MAP message as a letter, and any letter as a MAP message:
#
# | in `meta` | field of the letter |
# |---|---|
# | priority, else agent-inbox's importance | priority |
# | ttlMs | expires: that long from now |
# | mail.conversationId, else conversationId | conversation_id: it is a turn of that conversation |
# | threadTag, else correlationId, if it is a valid label | thread_tag |
# | subject | subject |
# | scope | scope |
# | inReplyTo, mail.inReplyTo, or correlationId of a result | in_reply_to, if its sender knows that letter |
#
# All of `meta` is also the letter's metadata, so nothing is lost, and readers over other protocols see it. The
# form of `to` and of the payload is stored in the letter's `extra`, under `map`.

PRIORITIES = ("low", "normal", "high", "urgent")
LONGEST_TTL = 10 * 365 * 24 * 3600 * 1000  # milliseconds
Shape = Literal["content", "bare", "none"]


class MessageForm(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The form of the MAP message from which a letter was made."""

    to: Any = None  # as it was written; None: `{agent}` alone, the usual form
    shape: Shape = "content"  # the payload: an object with a type, any other JSON, or missing
    has_meta: bool = False


def letter_fields(params: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the letter, without `to` and `in_reply_to`, which have to be looked up."""
    meta, has_payload = object_in(params, "meta"), "payload" in params
    payload, to = params.get("payload"), params.get("to")
    shape: Shape = "none" if not has_payload else "content" if is_typed(payload) else "bare"
    # The form is kept, so that the SDK gets back what its own client sent.
    note = MessageForm(to=None if _is_plain(to) else to, shape=shape, has_meta="meta" in params)
    fields: dict[str, Any] = {
        "body": payload_to_parts(payload) if has_payload else [],
        "extra": {MAP_NOTE: to_plain(note)},
    }
    return fields | _of_meta(meta) | ({"metadata": meta} if meta else {})


def once_key(id: str, to: Any) -> str:
    """Return the idempotency key of a message with an id of its sender, so that a repeated send is recognized."""
    return f"map-{blake2b(encode([id, to]), digest_size=16).hexdigest()}"


def answered(params: dict[str, Any]) -> str | None:
    """Return the id of the letter that a message may answer. Its sender may not know that letter."""
    meta = object_in(params, "meta")
    value = meta.get("inReplyTo") or object_in(meta, "mail").get("inReplyTo")
    if value is None and meta.get("isResult") is True:
        value = meta.get("correlationId")
    if not isinstance(value, str):
        return None
    return _valid_or_none(lambda: check_id(letter_of_turn(value), "in_reply_to"))


def map_letter(message: Message, people: Collection[str] = PEOPLE) -> dict[str, Any]:
    """Return the `message` of a `map/message`; `people` holds the folded names of people, whose letters say so."""
    note = note_of(message)
    if note is None:
        return map_message(message, people)
    plain: dict[str, Any] = {
        "id": message.id,
        "from": message.sender,
        "to": {"agent": message.recipients[0].address} if note.to is None else note.to,
        "timestamp": milliseconds(message.created_at),
    }
    if note.shape != "none":
        plain["payload"] = payload_of(message, note.shape)
    if note.has_meta:
        plain["meta"] = message.metadata
    # Beside `meta`, in which the sender writes what it likes.
    return plain | present(notice=persons_notice(message, people))


def map_message(message: Message, people: Collection[str] = PEOPLE) -> dict[str, Any]:
    """Return any letter as a MAP message, in words that clients of agent-inbox know, too."""
    meta = present(
        messageId=message.id,
        senderId=message.sender,
        conversationId=conversation_of(message),
        threadTag=message.thread_tag,
        inReplyTo=message.in_reply_to,
        importance=message.priority.name.lower(),
        priority=message.priority.name.lower(),
        subject=message.subject or None,
        scope=message.scope,
    )
    return {
        "id": message.id,
        "from": message.sender,
        "to": _shown_to(message),
        "payload": content_of(message.parts),
        "timestamp": milliseconds(message.created_at),
        "meta": meta,
    } | present(notice=persons_notice(message, people))


def _shown_to(message: Message) -> dict[str, Any]:
    """Return the addressees without bcc, under the field of agent-inbox and that of MAP's clients."""
    shown = [r.address for r in message.recipients if r.kind != "bcc"]
    # MAP's `to` holds one scope; a letter to several names the first.
    scopes = [address.removeprefix(BROADCAST) for address in shown if is_broadcast(address)]
    if scopes:
        return {"scope": scopes[0]}
    names = [address for address in shown if not is_any(address)]
    return {"agentId": names[0], "agent": names[0]} if len(names) == 1 else {"agents": names}


def payload_of(message: Message, shape: Shape) -> Any:
    """Return the payload in its original form."""
    content = content_of(message.parts)
    if shape == "content":
        return content
    return content.get("text" if content.get("type") == "text" else "data")


def note_of(message: Message) -> MessageForm | None:
    """Return the note of a letter from a MAP session; None for others."""
    return note_in(message, MAP_NOTE, MessageForm)


def _is_plain(to: Any) -> bool:
    """Return whether a `to` names one local mailbox and nothing else."""
    name = to.get("agent") if isinstance(to, dict) and len(to) == 1 else None
    return isinstance(name, str) and ":" not in name and "@" not in name


def _of_meta(meta: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a letter in `meta`.

    Priority, expiry and conversation must be valid. An invalid label is only carried along in the metadata.
    """
    if not meta:
        return {}
    mail = meta.get("mail")
    if mail is not None and not isinstance(mail, dict):
        raise Invalid("must be an object", field="meta.mail")
    conversation = (mail or {}).get("conversationId") or meta.get("conversationId")
    fields = {
        "priority": _priority(meta),
        "expires": _ttl(meta),
        "conversation_id": None if conversation is None else check_id(conversation, "meta.mail.conversationId"),
        "thread_tag": _first(meta, ("threadTag", "correlationId"), lambda v: check_label(v, "thread_tag", 200)),
        "subject": _first(meta, ("subject",), lambda value: check_line(value, "subject", 1000)),
        "scope": _first(meta, ("scope",), lambda value: check_scope(value, "scope")),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _priority(meta: dict[str, Any]) -> str | None:
    for word in ("priority", "importance"):
        value = meta.get(word)
        if value is None:
            continue
        if value not in PRIORITIES:
            raise Invalid(
                f"{str(value)[:80]!a} is not a priority", field=f"meta.{word}", hint=", ".join(PRIORITIES)
            )
        return str(value)
    return None


def _ttl(meta: dict[str, Any]) -> float | None:
    value = meta.get("ttlMs")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST_TTL:
        raise Invalid("must be milliseconds above 0", field="meta.ttlMs")
    return value / 1000


def _first(meta: dict[str, Any], words: tuple[str, ...], check: Callable[[Any], str]) -> str | None:
    for word in words:
        if meta.get(word) is not None:
            return _valid_or_none(lambda: check(meta[word]))  # noqa: B023 - called at once
    return None


def _valid_or_none(check: Callable[[], str]) -> str | None:
    try:
        return check()
    except PostroomError:
        return None


def request(id: Any, method: str, /, **params: Any) -> dict[str, Any]:
    """Return a JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


# Letters over the link to another MAP server. `meta` says everything in the protocol's words and in agent-inbox's,
# flat. The SDK's own server drops it; so there a payload that is an object carries the same once more, under
# `_meta`, and where a message comes without `meta`, that counts.

ORIGIN = "id"  # in the MAP note of a letter: its id at the server
BESIDE = "_meta"  # the copy of `meta` in a payload
_LETTER_FIELDS = (
    "body", "priority", "expires", "conversation_id", "thread_tag", "subject", "metadata", "extra",
)  # fmt: skip


class Incoming(Struct, frozen=True, kw_only=True):
    """A message from the server, in our terms."""

    id: str  # the server's
    key: str  # of idempotency: the same whenever it comes again
    speaker: str  # the sender according to the server: the id of an agent or a session
    to: Any
    meta: dict[str, Any]
    fields: dict[str, Any]  # of the letter
    answers: str | None  # a letter's id, if its sender knows that one
    at: int  # milliseconds

    @property
    def origin(self) -> str:
        """The id that its sender gave it."""
        return text_in(self.meta, "messageId") or self.id

    @property
    def says_from(self) -> Any:
        """The sender according to the message itself, where the server names no agent."""
        return self.meta.get("senderId")

    @property
    def target(self) -> str | None:
        """The recipient according to agent-inbox's `meta`."""
        return text_in(self.meta, "targetAgent")


def encode_send(
    message: Message,
    *,
    system: str,
    to: str,
    title: str,
    expires_in: float | None,
    answers: Message | None,
    beside: bool,
) -> dict[str, Any]:
    """Return a letter as the parameters of `map/send`, for the agent whose id is `to` and whose name is `title`.

    `answers`: the letter it answers; `beside`: the server drops `meta`, which therefore is in the payload, too.
    """
    note = note_of(message)
    meta = _sent_meta(message) | present(
        priority=message.priority.name.lower(),
        ttlMs=None if expires_in is None else max(int(expires_in * 1000), 1),
        mail=_sent_mail(message),
        messageId=message.id,
        senderId=message.sender,
        sourceSystem=system,
        targetAgent=title,
        subject=message.subject or None,
        threadTag=message.thread_tag or None,
        inReplyTo=message.in_reply_to if answers is None else origin_of(answers) or answers.id,
    )
    payload = content_of(message.parts) if note is None else payload_of(message, note.shape)
    if beside and isinstance(payload, dict):
        payload = payload | {BESIDE: meta}
    return {"to": {"agent": to}, "payload": payload, "meta": meta}


def correlation_of(meta: Mapping[str, Any]) -> str | None:
    """Return the correlation id in `meta`, or None."""
    return text_in(meta, "correlationId")


def _sent_meta(message: Message) -> dict[str, Any]:
    """Return the letter's metadata, with our own values where it has none."""
    params = {name: value for name, value in message.metadata.items() if value is not None}
    ours = {"correlationId": message.thread, "timestamp": milliseconds(message.created_at)}
    importance = params.get("importance")
    if not isinstance(importance, str) or importance not in PRIORITIES:
        params["importance"] = message.priority.name.lower()
    return message.metadata | ours | params


def _sent_mail(message: Message) -> dict[str, Any] | None:
    if message.conversation_id is None:
        return None
    return object_in(message.metadata, "mail") | {"conversationId": message.conversation_id}


def origin_of(message: Message) -> str | None:
    """Return the id of a letter at the server that it came from, by which its sender knows it."""
    return text_in(message.extra.get(MAP_NOTE), ORIGIN)


def decode_message(message: Mapping[str, Any]) -> Incoming | None:
    """Return what is in a MAP message that came; None: it is none."""
    payload, meta = _payload_and_meta(message)
    to = message.get("to")
    if to is None and payload is None:
        return None
    params = {"to": to, "payload": payload} | ({"meta": meta} if meta else {})
    try:
        fields = letter_fields(params)
    except Invalid:  # a value in its meta is not valid here: it is kept as metadata only
        fields = letter_fields({"to": to, "payload": payload}) | {"metadata": meta}
    at = message.get("timestamp")
    return Incoming(
        id=str(message.get("id") or ""),
        key=_message_key(message, meta),
        speaker=str(message.get("from") or ""),
        to=to,
        meta=meta,
        fields={name: value for name, value in fields.items() if name in _LETTER_FIELDS},
        answers=answered(params),
        at=int(at) if isinstance(at, int | float) and 0 < at < 1e15 else 0,
    )


def _payload_and_meta(message: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the payload and its meta, which may be part of the payload."""
    payload, meta = message.get("payload"), message.get("meta")
    if not isinstance(payload, dict) or not isinstance(beside := payload.get(BESIDE), dict):
        return payload, object_in(message, "meta")
    rest = {name: value for name, value in payload.items() if name != BESIDE}
    return rest, meta if isinstance(meta, dict) else beside


def _message_key(message: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    """Return the sender's own id, which is the same for a repetition; else the server's; else a hash of it."""
    # A repetition gets a new id from the server, but carries the sender's own (G3).
    if id := text_in(meta, "messageId") or text_in(message, "id"):
        return id
    params = {name: message.get(name) for name in ("from", "to", "payload", "timestamp")}
    return blake2b(encode(params), digest_size=16).hexdigest()


# Agents and scopes. The MAP fields for which a card has none of its own (role, parent, state, visibility and the
# like, and the participant to which an agent belongs) are in the card's `extra`, under `map`. So they survive a
# restart and are part of an export. The scopes of an agent are the card's own.

# Fields that are stored as the participant sent them.
KEPT = ("role", "parent", "visibility", "capabilities", "environment", "permission_overrides",
        "capability_descriptor", "persistent_identity", "relationships")  # fmt: skip
_CAMEL = {"permission_overrides": "permissionOverrides", "capability_descriptor": "capabilityDescriptor",
          "persistent_identity": "persistentIdentity"}  # fmt: skip


def role_of(card: Card) -> str | None:
    """Return the role of an agent, from its MAP fields or from the metadata that agent-inbox's `notify` sets."""
    return text_in(map_fields(card), "role") or text_in(card.metadata, "role")


def state_of(agent: Agent) -> str:
    """Return the state of an agent: its own while it is active or if it stopped, else that of its presence."""
    state = map_fields(agent.card).get("state")
    is_valid = agent.presence.warmth is Warmth.ACTIVE or state == STOPPED
    return state if isinstance(state, str) and is_valid else agent.presence.words.map


def has_gone(agent: Agent) -> bool:
    """Return whether an agent was unregistered and has not returned. One that only stopped has not signed off."""
    return agent.presence.left and map_fields(agent.card).get("state") == STOPPED


def owner_of(agent: Agent) -> str | None:
    """Return the participant on whose connection an agent is; None if it is on none."""
    is_here = agent.presence.warmth is Warmth.ACTIVE and not agent.presence.left
    return text_in(map_fields(agent.card), "owner") if is_here else None


def holder_of(card: Card) -> str:
    """Return the principal that registered an agent.

    The card's own `principal` may be an operator that stopped or suspended the agent.
    """
    return text_in(map_fields(card), "principal") or card.principal


def agent_record(agent: Agent, children: Sequence[str] = ()) -> dict[str, Any]:
    card, fields = agent.card, map_fields(agent.card)
    kept = {_CAMEL.get(name, name): fields[name] for name in KEPT if name in fields}
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
    """Return the children of each parent."""
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


# Errors, in the codes of MAP's SDK: `{code, message, data: {category, retryable, details}}`

AUTH_REQUIRED, DENIED, NO_METHOD, BAD_CREDENTIALS = 1000, 1003, 1005, 1006
NO_ADDRESS, NO_AGENT, NO_SCOPE, NOT_DELIVERED = 2000, 2001, 2002, 2003
EXISTS, BAD_STATE, TERMINATED = 3000, 3001, 3003
EXHAUSTED, TOO_FAST, OVER_QUOTA = 4000, 4001, 4002
NO_SYSTEM = 5001

_CATEGORIES = {1: "auth", 2: "routing", 3: "agent", 4: "resource", 5: "federation", 10: "mail"}  # by thousands
NUMBERS: Numbers = (
    (NoSuchMethod, None, METHOD_NOT_FOUND),
    (NotAllowed, "auth", AUTH_REQUIRED),
    (NotAllowed, "token", BAD_CREDENTIALS),
    (NotAllowed, "method", NO_METHOD),
    (NotAllowed, None, DENIED),
    (Invalid, None, INVALID_PARAMS),
    (UnknownAgent, None, NO_AGENT),
    (Missing, "scope", NO_SCOPE),
    (Missing, "system", NO_SYSTEM),
    (Missing, "to", NO_ADDRESS),
    (Missing, None, NOT_FOUND),
    (NameTaken, None, EXISTS),
    (IdTaken, "scope_id", EXISTS),
    (IllegalMove, "agent", TERMINATED),
    (IllegalMove, None, BAD_STATE),
    (QuotaFull, None, OVER_QUOTA),
    (TooFast, None, TOO_FAST),
    (Busy, None, EXHAUSTED),
    (Refused, None, NOT_DELIVERED),
    (Conflict, None, BAD_STATE),
)
_PROTOCOL = frozenset({PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, NOT_FOUND})
_RETRY_SOON = 1000  # milliseconds after which a retry may succeed, if nothing better is known


def number_of(error: PostroomError) -> int:
    return number_in(NUMBERS, error, error.field) or INTERNAL_ERROR


def retry_after_ms(error: PostroomError) -> int:
    return _RETRY_SOON if error.retry_after is None else round(error.retry_after * 1000)


def category_of(number: int) -> str:
    if number in _PROTOCOL:
        return "protocol"
    return _CATEGORIES.get(number // 1000, "internal")


def map_error(error: PostroomError, *, of_mail: bool = False) -> dict[str, Any]:
    """Return the error object of a reply. `of_mail`: use the codes of conversations."""
    special = mail_problem(error) if of_mail else None
    number = number_of(error) if special is None else special["code"]
    data: dict[str, Any] = {"category": category_of(number), "retryable": error.temporary}
    if error.temporary:
        data["retryAfterMs"] = retry_after_ms(error)
    return {"code": number, "message": str(error), "data": data | {"details": all_details(error)}}


def failure(id: Any, number: int, why: str) -> dict[str, Any]:
    """Return the reply to a request that could not be understood."""
    error = {"code": number, "message": why, "data": {"category": category_of(number), "retryable": False}}
    return {"jsonrpc": "2.0", "id": id, "error": error}
