"""The agent-inbox codec: letters, requests to send one, agents, and the lines of `inbox.jsonl`.

Field names are snake_case, and missing values are left out. The recipients of a letter are those that got it, with
their times. A bcc recipient is shown to the sender and to itself only.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, to_builtins

from ..errors import Invalid
from ..model.agent import MAP_STATES, WORDS, Status
from ..model.codec import encode
from ..model.message import (
    DEFAULT_SCOPE,
    Priority,
    content_of,
    is_any,
    is_broadcast,
    payload_to_parts,
    same_name,
)
from ..model.names import POSTMASTER
from ..model.thread import conversation_of
from ..model.values import check_object, time_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model.agent import Agent
    from ..model.delivery import Delivery
    from ..model.message import Message
    from ..model.peer import Route


_IMPORTANCE = {priority: priority.name.lower() for priority in Priority}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecipientRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A recipient of a letter. A struct is made and encoded in half the time of a dictionary."""

    agent_id: str
    kind: str
    delivered_at: str | None = None
    read_at: str | None = None
    ack_at: str | None = None


class MessageRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """A letter in agent-inbox's form."""

    id: str
    scope: str
    sender_id: str
    recipients: list[RecipientRecord]
    content: dict[str, Any]
    conversation_id: str
    importance: str
    metadata: dict[str, Any]
    created_at: str
    subject: str | None = None
    thread_tag: str | None = None
    in_reply_to: str | None = None


def message_record(message: Message, deliveries: Sequence[Delivery], reader: str | None) -> MessageRecord:
    """Return a letter with its deliveries as `reader` may see it; None is a reader that is no party to it."""
    created = stamp(message.created_at)
    return MessageRecord(
        message.id,
        message.scope,
        message.sender,
        _recipient_records(message, created, deliveries, reader),
        content_of(message.parts),
        conversation_of(message),
        _IMPORTANCE[message.priority],
        message.metadata,
        created,
        message.subject or None,
        message.thread_tag,
        message.in_reply_to,
    )


def _recipient_records(
    message: Message, created: str, deliveries: Sequence[Delivery], reader: str | None
) -> list[RecipientRecord]:
    """Return the recipients in the order of the letter; those it names, if it has no deliveries."""
    if len(deliveries) == 1 and deliveries[0].kind != "bcc":  # the usual case
        return [_recipient_record(deliveries[0], message, created)]
    if not deliveries:
        named = [r for r in message.recipients if not (is_broadcast(r.address) or is_any(r.address))]
        return [RecipientRecord(r.address, r.kind) for r in named if _is_shown(message, r.address, r.kind, reader)]
    order = {r.address: place for place, r in enumerate(message.recipients)}
    got = sorted(deliveries, key=lambda delivery: order.get(delivery.mailbox, len(order)))
    return [_recipient_record(d, message, created) for d in got if _is_shown(message, d.mailbox, d.kind, reader)]


def _recipient_record(delivery: Delivery, message: Message, created: str) -> RecipientRecord:
    # Times are formatted once where they are equal: a list of letters is mostly times.
    delivered, read, acked = delivery.delivered_at, delivery.read_at, delivery.acked_at
    if delivered == message.created_at:  # the usual case
        came: str | None = created
    else:
        came = None if delivered is None else stamp(delivered)
    return RecipientRecord(
        delivery.mailbox,
        delivery.kind,
        came,
        None if read is None else stamp(read),
        None if acked is None else stamp(acked),
    )


def agent_record(agent: Agent) -> dict[str, Any]:
    """Return a row of `list_agents`."""
    card, presence = agent.card, agent.presence
    return present(
        agentId=card.id,
        name=card.display_name or None,
        scope=card.scopes[0] if card.scopes else DEFAULT_SCOPE,
        status=presence.inbox_word,
        program=card.program or None,
        lastActive=stamp(presence.last_active_at or card.registered_at),
        location="local",
    )


def far_agent_record(name: str, route: Route) -> dict[str, Any]:
    """Return a row of `list_agents` for an agent at another system, as that system announced it."""
    words = WORDS[MAP_STATES.get(route.status, Status.IDLE)]
    return {
        "agentId": name,
        "peerId": route.system,
        "scope": DEFAULT_SCOPE,
        "status": words.inbox,
        "location": "federated",
    }


def stamp(time: datetime) -> str:
    """Return a time as `2026-01-31T12:00:00.000Z`."""
    if time.tzinfo is not UTC:
        time = time.astimezone(UTC)
    text: str = to_builtins(time)  # several times as fast as isoformat
    return f"{text[:23]}Z" if "." in text else f"{text[:-1]}.000Z"


def milliseconds(time: datetime) -> int:
    """Return the milliseconds since 1970, MAP's form of a time; truncated, as in `stamp`."""
    return (time - _EPOCH) // timedelta(milliseconds=1)


def present(fields: Mapping[str, Any] | None = None, /, **more: Any) -> dict[str, Any]:
    """Return a dictionary of the fields that are not None."""
    return {name: value for name, value in {**(fields or {}), **more}.items() if value is not None}


def _is_shown(message: Message, name: str, kind: str, reader: str | None) -> bool:
    # A hidden recipient is shown to itself and to the sender alone (G8).
    return kind != "bcc" or (reader is not None and (same_name(reader, name) or reader == message.sender))


# A request to send a letter

_FIELDS = {  # agent-inbox's name of a field -> ours
    "scope": "scope", "thread_tag": "thread_tag", "in_reply_to": "in_reply_to", "importance": "priority",
    "meta": "metadata", "subject": "subject", "conversation_id": "conversation_id", "kind": "kind", "key": "key",
    "expires": "expires", "at": "at", "tags": "tags", "priority": "priority", "data": "data",
}  # fmt: skip
FIELD_IN_ERRORS = {"priority": "importance", "metadata": "meta", "mailbox": "from", "sender": "from"}


def read_send(params: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `Mailbox.send` for a request, by agent-inbox's names or ours; or raise Invalid.

    One name and plain text are passed on as they are: looking at lists and parts takes an eighth of the call.
    """
    fields = (
        {} if _FIELDS.keys().isdisjoint(params) else {_FIELDS[w]: v for w, v in params.items() if w in _FIELDS}
    )
    if "priority" in params:
        fields["priority"] = params["priority"]  # wins over `importance`, in whichever order they came
    to = params.get("to")
    fields |= {"to": to} if to is None or isinstance(to, str) else _recipients(to)
    for kind in ("cc", "bcc"):
        if kind in params:
            fields[kind] = [*fields.get(kind, ()), *_recipients(params[kind])["to"]]
    body = params.get("payload")
    if "payload" not in params:
        if "body" not in params and "data" not in params:
            raise Invalid("is missing", field="payload", hint="text, an object with a `type`, or any JSON")
        body = params.get("body")
    elif not isinstance(body, str):
        body = payload_to_parts(body)
    return fields | {"body": body}


def _recipients(to: Any) -> dict[str, Any]:
    """Return the recipients by kind (to, cc, bcc). A list may mix names and objects."""
    found: dict[str, list[Any]] = {"to": []}
    for one in to if isinstance(to, list) else [to]:
        kind, name = ("to", one) if isinstance(one, str) else _recipient(one)
        found.setdefault(kind, []).append(name)
    return found


def _recipient(one: Any) -> tuple[str, Any]:
    params = dict(one) if isinstance(one, dict) else {}
    kind = params.pop("kind", "to")
    if not isinstance(kind, str) or kind not in {"to", "cc", "bcc"} or not params:
        raise Invalid(
            "names nobody",
            field="to",
            hint='a name, {"agent", "system"}, or a list of these or of'
            ' {"agent_id": NAME, "kind": "to" | "cc" | "bcc"}',
        )
    return kind, params.get("agent_id", params)


# Lines of `inbox.jsonl`, with the fields of both designs that have such files


def entry_of(message: Message, mailbox: str) -> dict[str, Any]:
    """Return a letter for one recipient. It names no other recipient, so no bcc can be seen in it."""
    content = content_of(message.parts)
    entry = {
        "messageId": message.id,
        "from": message.sender,
        "to": mailbox,
        "payload": _payload(content),
        "content": content,
        "subject": message.subject or None,
        "threadTag": message.thread_tag,
        "importance": message.priority.name.lower(),
        "timestamp": stamp(message.created_at),
        "conversationId": conversation_of(message),
    }
    return {name: value for name, value in entry.items() if value is not None or name == "payload"}


DEEPEST = 64  # levels of nesting in an entry of an inbox file


class InboxLine(Struct, frozen=True, kw_only=True):
    """A letter in a line of an inbox file, which any program may have written."""

    id: str = ""
    sender: str
    kind: str = ""
    importance: str = ""
    subject: str = ""
    thread_tag: str = ""
    sent_at: datetime | None = None
    content: Any = ""  # text, or data


_ENTRY = {"messageId": "id", "kind": "kind", "importance": "importance", "subject": "subject",
          "threadTag": "thread_tag"}  # fmt: skip


def read_line(line: bytes) -> InboxLine | None:
    """Return the letter in a line; None if it is none.

    A program that may write the file may write anything, and one line must not keep the others from being shown.
    """
    try:
        # Of any program: depth and types are checked before anything is shown (threat 7).
        entry = check_object(msgspec.json.decode(line), "entry", DEEPEST)
    except (msgspec.DecodeError, UnicodeDecodeError, Invalid, RecursionError):
        return None
    return read_entry(entry)


def read_entry(entry: Mapping[str, Any]) -> InboxLine:
    """Return the letter in an entry, each field of which may be of any type."""
    texts = {ours: str(entry.get(theirs) or "") for theirs, ours in _ENTRY.items()}
    content = entry.get("content", entry.get("payload"))
    return InboxLine(sender=str(entry.get("from")), sent_at=time_in(entry, "timestamp"), content=content, **texts)


def line_of(message: Message, mailbox: str) -> bytes:
    return encode(entry_of(message, mailbox)) + b"\n"


def notice_of(mailbox: str, dropped: int, now: datetime) -> bytes:
    """Return the line that says how many letters a file holds no longer.

    Readers expect `dropped` to come first.
    """
    text = f"{dropped} older letter(s) are not in this file any more; they are in the inbox of {mailbox}"
    entry = {
        "dropped": dropped,
        "from": POSTMASTER,
        "to": mailbox,
        "payload": text,
        "content": {"type": "text", "text": text},
        "importance": "normal",
        "timestamp": stamp(now),
    }
    return encode(entry) + b"\n"


def _payload(content: dict[str, Any]) -> Any:
    """Return the content as `send` takes it: text, data, or an object with a type."""
    if content.keys() == {"type", "text"} and content["type"] == "text":
        return content["text"]
    if content.keys() == {"type", "data"} and content["type"] == "data":
        return content["data"]
    return content
