"""The actions of agent-inbox, with its requests and replies, including fields that its callers send and it drops.

Unlike agent-inbox, an invalid request is refused and nothing of it is written, and only letters that were returned
are marked as read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..core import inbox, outbox
from ..core.authorize import OWNER
from ..core.peers import system_id
from ..core.verb import perform
from ..errors import Invalid, PostroomError, UnknownAgent
from ..formats.inbox import FIELD_IN_ERRORS, agent_record, far_agent_record, message_record, read_send
from ..model.codec import to_plain
from ..model.names import check_agent, is_scope_only
from ..model.query import Query
from .table import LIMIT, Method, Param, box_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..formats.inbox import MessageRecord
    from ..model.delivery import Delivery
    from ..model.query import Found
    from ..room import Room


DEFAULT = "default"  # agent and scope of a caller that names none

# -- mail


def _send(room: Room, params: dict[str, Any]) -> Any:
    """Send a letter. The parameters of our own `send` are accepted, too."""
    fields = read_send(params)
    if "in_reply_to" not in fields:
        fields.setdefault("scope", room._default_scope)
    try:
        return {"messageId": room.mailbox(_writer(room, params)).send(**fields).id}
    except PostroomError as refused:
        refused.field = FIELD_IN_ERRORS.get(refused.field or "", refused.field)
        raise


def _sender(params: dict[str, Any]) -> str | None:
    """Return the sender that a call names, by either name of the parameter."""
    named: str | None = params.get("agent_id") or params.get("from")
    return named


def _writer(room: Room, params: dict[str, Any]) -> str:
    """Return the sender: the named agent, else the caller's, else the server itself, by the name of its system."""
    return _sender(params) or room.principal.agent or system_id(room.core, OWNER, room.settings.system)


def _check_inbox(room: Room, params: dict[str, Any]) -> Any:
    """Return an agent's letters in the order they came; with `clear`, mark those that are returned as read."""
    name = params.get("agent_id") or room.principal.agent or _reader(params)
    if "agent_id" not in params and is_scope_only(name):
        return {"messages": []}  # no agent can have this name
    check = inbox.Check(
        agent_id=name,
        since=params.get("since"),
        limit=params.get("limit"),
        unread_only=params.get("unread_only", False),
        peek=not params.get("clear", False),
        order="age",
    )
    found = perform(room.core, room.principal, check).letters
    return {"messages": _records(room, found, name)}


def _reader(params: dict[str, Any]) -> str:
    named: str = params.get("agent_id") or params.get("scope") or DEFAULT
    return named


def _records(room: Room, found: Sequence[Found], reader: str) -> list[MessageRecord]:
    """Return each letter with all its recipients. Other deliveries are loaded only where there are any."""
    others: dict[str, list[Delivery]] = {}
    if room.principal.operator and (several := [f.message.id for f in found if _has_other_recipients(f)]):
        for one in room.core.store.find(Query(message_ids=tuple(several))):
            others.setdefault(one.message.id, []).append(one.delivery)
    return [message_record(f.message, others.get(f.message.id) or [f.delivery], reader) for f in found]


def _has_other_recipients(found: Found) -> bool:
    """Return whether a letter was sent to several recipients, or to a group."""
    recipients = found.message.recipients
    return len(recipients) > 1 or recipients[0].address != found.delivery.mailbox


def _read_thread(room: Room, params: dict[str, Any]) -> Any:
    tag, scope = params["thread_tag"], params.get("scope", room._default_scope)
    me = room.principal.agent
    if me is None and "agent_id" in params:
        me = room.mailbox(params["agent_id"]).name
    letters = room.tagged(tag, scope) if me is None else room.mailbox(me).tagged(tag, scope)
    ids = tuple(letter.id for letter in letters)
    deliveries: dict[str, list[Delivery]] = {}
    for one in room.core.store.find(Query(message_ids=ids)) if ids else ():
        if me is None or one.delivery.mailbox == me:
            deliveries.setdefault(one.message.id, []).append(one.delivery)
    # As plain values: the MCP resources read them, too.
    records = [to_plain(message_record(letter, deliveries.get(letter.id, ()), me)) for letter in letters]
    return {"threadTag": tag, "count": len(records), "messages": records}


# -- agents


def _list_agents(room: Room, params: dict[str, Any]) -> Any:
    found = room.agents(scope=params.get("scope"))
    rows = [agent_record(agent) for agent in found if agent.registered]
    if params.get("include_federated") and "scope" not in params:  # the scopes of remote agents are unknown
        rows += [far_agent_record(*one) for one in outbox.announced_agents(room.core, room.principal)]
    return {"count": len(rows), "agents": rows}


def _register_agent(room: Room, params: dict[str, Any]) -> Any:
    scopes = params.get("scopes") or ([params["scope"]] if "scope" in params else None)
    fields = {"display_name": params.get("name"), "program": params.get("program"), "model": params.get("model"),
            "scopes": scopes, "metadata": params.get("metadata")}  # fmt: skip
    upsert(room, box_of(room, params).name, fields)
    return {}


def _notify(room: Room, params: dict[str, Any]) -> Any:
    """Register an agent that was spawned, and note that one has left. Other events are ignored."""
    event, name = params["event"], _agent_in_event(params)
    agent = event.get("agent") if isinstance(event.get("agent"), dict) else {}
    if event.get("type") == "agent.spawn":
        if not name:
            raise Invalid("is missing", field="event.agent.agentId")
        fields = {"display_name": agent.get("name"), "scopes": agent.get("scopes") or [room._default_scope],
                "metadata": _metadata(agent)}  # fmt: skip
        upsert(room, name, fields)
    elif event.get("type") == "agent.done" and name:
        with suppress(UnknownAgent):  # it was never registered
            room.mailbox(name).leave()
    return {}


def _agent_in_event(params: dict[str, Any]) -> str | None:
    """Return the agent that an event is about."""
    event = params["event"]
    agent = event.get("agent")
    name: str | None = event.get("agentId") or (agent.get("agentId") if isinstance(agent, dict) else None)
    return name


def _metadata(agent: dict[str, Any]) -> dict[str, Any] | None:
    metadata = agent.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise Invalid("must be an object", field="event.agent.metadata")
    return metadata | ({"role": agent["role"]} if agent.get("role") else {}) or None


def upsert(room: Room, name: str, fields: dict[str, Any]) -> None:
    """Register an agent with these fields of its card; fields that are None stay as they were."""
    try:
        before = asdict(room.agent(name).card)
    except UnknownAgent:
        before = {}
    kept = {field: before[field] for field in _CARD if field in before}
    room.mailbox(name).register(**kept | {field: value for field, value in fields.items() if value is not None})


_CARD = ("display_name", "description", "capabilities", "program", "model", "scopes", "allow_from",
         "max_concurrent_tasks", "metadata")  # fmt: skip

_MAX_TYPE = 200
_TYPE_CHARACTERS = frozenset(map(chr, range(33, 127)))


def _ping(_room: Room, _params: dict[str, Any]) -> Any:
    return {"pid": os.getpid()}


def _emit(_room: Room, params: dict[str, Any]) -> Any:
    """Check an event. `Caller` publishes it once the call has succeeded."""
    event = params["event"]
    if "agent_id" in params:
        check_agent(params["agent_id"], "agent_id")
    kind = event.get("type") if isinstance(event, dict) else None
    if isinstance(kind, str) and kind:
        _check_type(kind)
    return {}


def _check_type(kind: str) -> None:
    """Refuse a type that could look like another one, by letters of another script or invisible ones (G8)."""
    if len(kind) > _MAX_TYPE or not kind.isascii() or not kind[0].isalnum() or not set(kind) <= _TYPE_CHARACTERS:
        hint = "letters, digits and signs of ASCII without spaces, such as build.done"
        raise Invalid(f"{kind[:100]!a} is no plain word", field="event.type", hint=hint)


def _row(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    return Method(name=name, about=about, run=run, params=params, result=result, strict=False, **more)


AGENT = Param("agent_id", "text", f"which agent; by default the token's, else the scope, else {DEFAULT!r}")
SCOPE = Param("scope", "text", f"by default that of the server: INBOX_SCOPE, else {DEFAULT!r}")
ROWS = (
    _row("ping", "check that the server is there", _ping, result="pid", action="agents", writes=False),
    _row(
        "send",
        "send a letter",
        _send,
        Param("from", "text", "by default the token's agent, else the server by the name of its system"),
        Param(
            "to",
            "any",
            "a name, {agent, system, scope}, or a list of these or of {agent_id, kind}; without it, the sender of"
            " the letter in inReplyTo",
        ),
        Param("payload", "json", "text, an object with a `type`, or any JSON"),
        SCOPE,
        Param("thread_tag", "text", "a label for the thread"),
        Param("in_reply_to", "text", "the letter it answers: by default its scope, subject and importance"),
        Param("importance", "text", "low, normal, high or urgent"),
        Param("meta", "object", "anything else"),
        Param("subject", "text", "one line"),
        Param("conversation_id", "text", "the conversation it belongs to"),
        Param("kind", "text", "an open word"),
        Param("key", "text", "the same key again sends nothing twice"),
        Param("expires", "when", "not offered after this"),
        Param("at", "when", "not delivered before this"),
        Param("tags", "list", "labels"),
        Param("agent_id", "text", "our own name for from"),
        Param("body", "any", "our own name for payload: text, or a list of parts"),
        Param("priority", "any", "our own name for importance"),
        Param("cc", "any", "further recipients"),
        Param("bcc", "any", "recipients that the others do not see"),
        Param("data", "any", "any JSON; becomes a data part"),
        result="messageId",
        action="send",
        whose="from",
        speaker=_sender,
    ),
    _row(
        "check_inbox",
        "an agent's mail, in the order it came",
        _check_inbox,
        AGENT,
        SCOPE,
        Param("unread_only", "flag", "false by default"),
        Param("clear", "flag", "mark what is returned as read"),
        LIMIT,
        Param("since", "time", "only letters written at this time or later"),
        result="messages",
        action="check",
        many=True,
        whose="agent_id",
        speaker=_reader,
    ),
    _row(
        "read_thread",
        "the letters with a thread tag",
        _read_thread,
        Param("thread_tag", "text", "the tag", required=True),
        Param("agent_id", "text", "the agent that reads; an operator without one sees all letters"),
        SCOPE,
        result="threadTag, count, messages",
        many=True,
        action="threads",
        whose="agent_id",
        writes=False,
    ),
    _row(
        "list_agents",
        "registered agents",
        _list_agents,
        Param("scope", "text", "only of this scope"),
        Param("include_federated", "flag", "also agents of other systems, if no scope is given"),
        result="count, agents",
        many=True,
        action="agents",
        writes=False,
    ),
    _row(
        "register_agent",
        "register an agent; fields that are left out stay as they were",
        _register_agent,
        Param("agent_id", "text", "the agent's name"),
        Param("name", "text", "a name for people"),
        Param("program", "text", "what runs it"),
        Param("model", "text", "the model behind it"),
        Param("scope", "text", "the team it is in"),
        Param("scopes", "list", "the teams it is in"),
        Param("metadata", "object", "anything else"),
        result="nothing more",
        action="register",
        whose="agent_id",
    ),
    _row(
        "notify",
        "an agent came (agent.spawn) or went (agent.done)",
        _notify,
        Param("event", "object", "type, and agent or agentId", required=True),
        result="nothing more",
        action="register",
        speaker=_agent_in_event,
    ),
    _row(
        "emit",
        "send an event to those who subscribed to this scope",
        _emit,
        Param("event", "any", "what happened", required=True),
        Param("meta", "object", "about it"),
        Param("agent_id", "text", "the agent that sends it"),
        SCOPE,
        result="nothing more",
        action="send",
        whose="agent_id",
    ),
)
