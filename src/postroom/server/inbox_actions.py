"""The actions of agent-inbox, with its requests and replies, and what its own callers send and it drops.

Beyond it: what is wrong is told and nothing of it is written; nothing is marked as read but what was returned.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from ..core import inbox, outbox
from ..core.authorize import OWNER
from ..core.peers import system_id
from ..errors import Invalid, PostroomError, UnknownAgent
from ..formats.inbox import agent_record, far_agent_record, message_record
from ..model.codec import to_plain
from ..model.message import payload_to_parts
from ..model.names import check_agent, is_scope_only
from ..model.query import Query
from .table import LIMIT, Method, Param, box_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..formats.inbox import MessageRecord
    from ..model.delivery import Delivery
    from ..model.query import Found
    from ..room import Room


DEFAULT = "default"  # agent and scope of whoever names none
# Their name of a field → ours, with its parameter.
_FIELDS = {
    "scope": "scope", "thread_tag": "thread_tag", "in_reply_to": "in_reply_to", "importance": "priority",
    "meta": "metadata", "subject": "subject", "conversation_id": "conversation_id", "kind": "kind", "key": "key",
    "expires": "expires", "at": "at", "tags": "tags", "priority": "priority", "data": "data",
}  # fmt: skip
_THEIRS = {"priority": "importance", "metadata": "meta", "mailbox": "from", "sender": "from"}  # fields in errors

# -- mail


def _send(room: Room, params: dict[str, Any]) -> Any:
    """What is said in the words of our own `send` is understood, too. One name and plain text go on as they are:
    to look at lists and parts takes an eighth of the steps of the whole call.
    """
    fields = {} if _FIELDS.keys().isdisjoint(params) else _fields_of(params)
    named = params.get("to")
    to: dict[str, Any] = {"to": named} if named is None or isinstance(named, str) else _recipients(named)
    for kind in ("cc", "bcc"):
        if kind in params:
            to[kind] = [*to.get(kind, ()), *_recipients(params[kind])["to"]]
    body = params.get("payload")
    if "payload" not in params:
        if "body" not in params and "data" not in params:
            raise Invalid("is missing", field="payload", hint="text, an object with a `type`, or any JSON")
        body = params.get("body")
    elif not isinstance(body, str):
        body = payload_to_parts(body)
    if "in_reply_to" not in fields:
        fields.setdefault("scope", room._default_scope)
    try:
        return {"messageId": room.mailbox(_writer(room, params)).send(body=body, **to, **fields).id}
    except PostroomError as refused:
        refused.field = _THEIRS.get(refused.field or "", refused.field)
        raise


def _fields_of(params: dict[str, Any]) -> dict[str, Any]:
    fields = {_FIELDS[theirs]: value for theirs, value in params.items() if theirs in _FIELDS}
    if "priority" in params:
        fields["priority"] = params["priority"]  # before `importance`, whichever was said first
    return fields


def _sender(params: dict[str, Any]) -> str | None:
    """In whichever words it is said."""
    named: str | None = params.get("agent_id") or params.get("from")
    return named


def _writer(room: Room, params: dict[str, Any]) -> str:
    """Who writes it: without a name, the caller's agent, else the service itself, by the name of its system."""
    return _sender(params) or room.principal.agent or system_id(room._core, OWNER, room.settings.system)


def _recipients(to: Any) -> dict[str, Any]:
    """By kind. A list may mix names and objects."""
    found: dict[str, list[Any]] = {"to": []}
    for one in to if isinstance(to, list) else [to]:
        kind, name = ("to", one) if isinstance(one, str) else _recipient(one)
        found.setdefault(kind, []).append(name)
    return found


def _recipient(one: Any) -> tuple[str, Any]:
    params = dict(one) if isinstance(one, dict) else {}
    kind = params.pop("kind", "to")
    if not isinstance(kind, str) or kind not in {"to", "cc", "bcc"} or not params:
        hint = (
            'a name, {"agent", "system"}, or a list of these or of {"agent_id": NAME, "kind": "to" | "cc" | "bcc"}'
        )
        raise Invalid("names nobody", field="to", hint=hint)
    return kind, params.get("agent_id", params)


def _check_inbox(room: Room, params: dict[str, Any]) -> Any:
    """In the order they came. Only what is returned is marked as read."""
    name = params.get("agent_id") or room.principal.agent or _reader(params)
    if "agent_id" not in params and is_scope_only(name):
        return {"messages": []}  # nobody is called like that
    found = inbox.check(
        room._core,
        room.principal,
        room.mailbox(name).name,
        filter=inbox.as_filter({"since": params["since"]} if "since" in params else {}),
        limit=params.get("limit"),
        unread_only=params.get("unread_only", False),
        peek=not params.get("clear", False),
        order="age",
    )
    return {"messages": _records(room, found, name)}


def _reader(params: dict[str, Any]) -> str:
    named: str = params.get("agent_id") or params.get("scope") or DEFAULT
    return named


def _records(room: Room, found: Sequence[Found], reader: str) -> list[MessageRecord]:
    """Each letter with all its recipients; how it is with the others is asked only where there are any."""
    others: dict[str, list[Delivery]] = {}
    if room.principal.operator and (several := [f.message.id for f in found if _went_to_others(f)]):
        for one in room._core.store.find(Query(message_ids=tuple(several))):
            others.setdefault(one.message.id, []).append(one.delivery)
    return [message_record(f.message, others.get(f.message.id) or [f.delivery], reader) for f in found]


def _went_to_others(found: Found) -> bool:
    """Was it sent to several, or to a group and not to this mailbox by name?"""
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
    for one in room._core.store.find(Query(message_ids=ids)) if ids else ():
        if me is None or one.delivery.mailbox == me:
            deliveries.setdefault(one.message.id, []).append(one.delivery)
    # Read inside the house, too: as plain values.
    records = [to_plain(message_record(letter, deliveries.get(letter.id, ()), me)) for letter in letters]
    return {"threadTag": tag, "count": len(records), "messages": records}


# -- agents


def _list_agents(room: Room, params: dict[str, Any]) -> Any:
    rows = [agent_record(agent) for agent in room.agents(scope=params.get("scope"))]
    if params.get("include_federated") and "scope" not in params:  # of others nobody knows the team
        rows += [far_agent_record(*one) for one in outbox.told_of(room._core, room.principal)]
    return {"count": len(rows), "agents": rows}


def _register_agent(room: Room, params: dict[str, Any]) -> Any:
    scopes = params.get("scopes") or ([params["scope"]] if "scope" in params else None)
    result = {"display_name": params.get("name"), "program": params.get("program"), "model": params.get("model"),
            "scopes": scopes, "metadata": params.get("metadata")}  # fmt: skip
    upsert(room, box_of(room, params).name, result)
    return {}


def _notify(room: Room, params: dict[str, Any]) -> Any:
    """Agents come and go; whatever else happens is nothing to us."""
    event, name = params["event"], _whom(params)
    agent = event.get("agent") if isinstance(event.get("agent"), dict) else {}
    if event.get("type") == "agent.spawn":
        if not name:
            raise Invalid("is missing", field="event.agent.agentId")
        result = {"display_name": agent.get("name"), "scopes": agent.get("scopes") or [room._default_scope],
                "metadata": _metadata(agent)}  # fmt: skip
        upsert(room, name, result)
    elif event.get("type") == "agent.done" and name:
        with suppress(UnknownAgent):  # who was never here has left
            room.mailbox(name).leave()
    return {}


def _whom(params: dict[str, Any]) -> str | None:
    """Who came or went."""
    event = params["event"]
    agent = event.get("agent")
    name: str | None = event.get("agentId") or (agent.get("agentId") if isinstance(agent, dict) else None)
    return name


def _metadata(agent: dict[str, Any]) -> dict[str, Any] | None:
    result = agent.get("metadata") or {}
    if not isinstance(result, dict):
        raise Invalid("must be an object", field="event.agent.metadata")
    return result | ({"role": agent["role"]} if agent.get("role") else {}) or None


def upsert(room: Room, name: str, result: dict[str, Any]) -> None:
    """An agent's card with these fields; what is not said stays as it was."""
    try:
        before = asdict(room.agent(name).card)
    except UnknownAgent:
        before = {}
    kept = {field: before[field] for field in _CARD if field in before}
    room.mailbox(name).register(**kept | {field: value for field, value in result.items() if value is not None})


_CARD = ("display_name", "description", "capabilities", "program", "model", "scopes", "allow_from",
         "max_concurrent_tasks", "metadata")  # fmt: skip

_LONGEST_WORD = 200
_IN_A_WORD = frozenset(map(chr, range(33, 127)))


def _ping(_room: Room, _said: dict[str, Any]) -> Any:
    return {"pid": os.getpid()}


def _emit(_room: Room, params: dict[str, Any]) -> Any:
    """Whoever carries out calls publishes it to those who listen."""
    result = params["event"]
    if "agent_id" in params:
        check_agent(params["agent_id"], "agent_id")
    kind = result.get("type") if isinstance(result, dict) else None
    if isinstance(kind, str) and kind:
        _check_word(kind)
    return {}


def _check_word(kind: str) -> None:
    """A type that looks like another, by letters of another script or by some that nobody sees, is none."""
    if len(kind) > _LONGEST_WORD or not kind.isascii() or not kind[0].isalnum() or not set(kind) <= _IN_A_WORD:
        hint = "letters, digits and signs of ASCII without spaces, such as build.done"
        raise Invalid(f"{kind[:100]!a} is no plain word", field="event.type", hint=hint)


def _row(name: str, about: str, run: Any, *params: Param, result: str, **more: Any) -> Method:
    return Method(name=name, about=about, run=run, params=params, result=result, strict=False, **more)


AGENT = Param("agent_id", "text", f"whose; without it the token's agent, else the scope, else {DEFAULT!r}")
SCOPE = Param("scope", "text", f"when nothing is said, that of the service: INBOX_SCOPE, else {DEFAULT!r}")
ROWS = (
    _row("ping", "is anybody there?", _ping, result="pid", action="agents", writes=False),
    _row(
        "send",
        "send a letter",
        _send,
        Param("from", "text", "the sender; without it the token's agent, else the service by its system's name"),
        Param(
            "to",
            "any",
            "a name, {agent, system, scope}, or a list of these or of {agent_id, kind}; without it, the sender of"
            " the letter in inReplyTo",
        ),
        Param("payload", "json", "text, an object with a `type`, or any JSON"),
        SCOPE,
        Param("thread_tag", "text", "a label for the thread"),
        Param("in_reply_to", "text", "the letter it answers: its scope, subject and importance hold unless said"),
        Param("importance", "text", "low, normal, high or urgent"),
        Param("meta", "object", "anything else"),
        Param("subject", "text", "one line"),
        Param("conversation_id", "text", "the conversation it belongs to"),
        Param("kind", "text", "an open word"),
        Param("key", "text", "the same key again sends nothing twice"),
        Param("expires", "when", "not offered after this"),
        Param("at", "when", "not delivered before this"),
        Param("tags", "list", "labels"),
        Param("agent_id", "text", "the same as from, in our own words"),
        Param("body", "any", "the same as payload, in our own words: text, or a list of parts"),
        Param("priority", "any", "the same as importance"),
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
        Param("unread_only", "flag", "false when nothing is said"),
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
        Param("agent_id", "text", "who looks; an operator who says nobody sees all of them"),
        SCOPE,
        result="threadTag, count, messages",
        many=True,
        action="threads",
        whose="agent_id",
        writes=False,
    ),
    _row(
        "list_agents",
        "who is registered",
        _list_agents,
        Param("scope", "text", "only of this scope"),
        Param("include_federated", "flag", "those that other systems told of too, where no scope is said"),
        result="count, agents",
        many=True,
        action="agents",
        writes=False,
    ),
    _row(
        "register_agent",
        "say who you are; what is not said stays as it was",
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
        speaker=_whom,
    ),
    _row(
        "emit",
        "tell those who subscribed to this scope",
        _emit,
        Param("event", "any", "what happened", required=True),
        Param("meta", "object", "about it"),
        Param("agent_id", "text", "who tells it"),
        SCOPE,
        result="nothing more",
        action="send",
        whose="agent_id",
    ),
)
