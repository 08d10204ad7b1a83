"""From what a caller says to a checked letter. Any value may come in; only a sound letter goes out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import Invalid, TooLarge
from ..model.codec import convert, encode, to_plain
from ..model.message import (
    DEFAULT_SCOPE,
    Message,
    Priority,
    Recipient,
    RecipientKind,
    TaskNote,
    is_any,
    is_broadcast,
)
from ..model.names import ANY, BROADCAST, check_agent, check_id, check_kind, check_scope, fold
from ..model.parts import Part, check_part, text
from ..model.task import check_state
from ..model.thread import general_scope
from ..model.values import check_json, check_label, check_line, check_object, check_text, check_time
from ..policy.limits import Limits
from .files import enclose
from .given import listed, quoted
from .office import POSTMASTER, Office

LONGEST_SUBJECT = 1000
MOST_TAGS = 256
_PRIORITIES: dict[str | int, Priority] = {
    word: priority for priority in Priority for word in (priority.name.lower(), priority.value)
}


class Draft(Struct, kw_only=True):
    """What a caller said. Nothing in it is checked yet."""

    sender: Any = None  # filled in by the mailbox it is sent from
    to: Any = ()
    cc: Any = ()
    bcc: Any = ()
    body: Any = None  # text, a part, or a list of them
    data: Any = None  # becomes a data part after the body
    subject: Any = ""
    kind: Any = "message"
    priority: Any = Priority.NORMAL
    scope: Any = None
    expires: Any = None  # a time, a timedelta, or seconds from now
    at: Any = None  # deliver later: a time, a timedelta, or seconds from now
    thread_tag: Any = None
    conversation_id: Any = None
    in_reply_to: Any = None
    task: Any = None
    callback: Any = None
    context: Any = None
    attachments: Any = ()
    tags: Any = ()
    metadata: Any = None
    extra: Any = None
    key: Any = None
    id: Any = None  # only for letters that came from outside with one
    exclude: Any = ()  # of a broadcast
    relays: Any = False  # it passes on the letter it answers


# What a caller may say of a letter by name; the rest is filled in by the verbs.
FIELDS = tuple(n for n in Draft.__struct_fields__ if n not in {"sender", "to", "body", "exclude", "relays"})


def check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse a field no letter has, before anything is made of it."""
    unknown = fields.keys() - set(FIELDS) if fields else ()
    if unknown:
        raise Invalid("a letter has no such field", field=min(unknown), hint=", ".join(FIELDS))


def compose(office: Office, draft: Draft, now: datetime) -> Message:
    """A sound letter, or an error that names the field."""
    limits, depth = office.limits, office.limits.max_depth
    sender = check_agent(draft.sender, "sender")
    return Message(
        id=office.ids.message() if draft.id is None else check_id(draft.id, "id"),
        sender=sender,
        recipients=check_recipients(draft, limits),
        created_at=now,
        kind="message" if draft.kind == "message" else check_kind(draft.kind, "kind"),
        subject=check_line(draft.subject, "subject", LONGEST_SUBJECT) if draft.subject else _empty(draft.subject),
        parts=_parts(office, draft),
        priority=draft.priority if type(draft.priority) is Priority else check_priority(draft.priority),
        scope=DEFAULT_SCOPE if draft.scope is None else check_scope(draft.scope, "scope"),
        expires_at=check_when(draft.expires, "expires", now),
        thread_tag=None if draft.thread_tag is None else check_label(draft.thread_tag, "thread_tag", 200),
        conversation_id=None if draft.conversation_id is None else _conversation(draft.conversation_id),
        in_reply_to=_id(draft.in_reply_to, "in_reply_to"),
        hops=limits.hops,
        trace=(sender,),
        task=None if draft.task is None else check_task(draft.task, depth),
        callback=None if draft.callback is None else check_object(draft.callback, "callback", depth),
        context=None if draft.context is None else check_object(draft.context, "context", depth),
        attachments=() if draft.attachments == () else _texts(draft.attachments, "attachments", 4096),
        tags=() if draft.tags == () else _texts(draft.tags, "tags", 128),
        metadata={} if draft.metadata is None else check_object(draft.metadata, "metadata", depth),
        extra={} if draft.extra is None else check_object(draft.extra, "extra", depth),
        key=None if draft.key is None else check_label(draft.key, "key", 200),
    )


def seal(message: Message, limits: Limits) -> bytes:
    """The letter as JSON, if it is not too large."""
    encoded = encode(message)
    if len(encoded) > limits.max_message_bytes:
        size = f"the letter is {len(encoded)} bytes, the limit is {limits.max_message_bytes}"
        raise TooLarge(size, field="body")
    return encoded


def check_recipients(draft: Draft, limits: Limits) -> tuple[Recipient, ...]:
    """Everyone once, under the most open of the ways they are named: to, then cc, then bcc."""
    recipients: dict[str, Recipient] = {}
    named: tuple[tuple[RecipientKind, Any], ...] = (("to", draft.to), ("cc", draft.cc), ("bcc", draft.bcc))
    for kind, addresses in named:
        if addresses == ():
            continue
        for address in listed(addresses, kind):
            checked = _address(address, kind)
            recipients.setdefault(checked, Recipient(checked, kind))
            if len(recipients) > limits.max_recipients:
                raise TooLarge(f"more than {limits.max_recipients} recipients", field=kind)
    if not recipients:
        raise Invalid("nobody is named", field="to", hint="an agent's name, or a list of them")
    return tuple(recipients.values())


def check_priority(value: Any, field: str = "priority") -> Priority:
    """Priority.HIGH, "high" or 3."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        found = _PRIORITIES.get(value.lower() if isinstance(value, str) else value)
        if found is not None:
            return found
    words = ", ".join(priority.name.lower() for priority in Priority)
    raise Invalid(f"{quoted(value)} is not a priority", field=field, hint=words)


def check_when(value: Any, field: str, now: datetime) -> datetime | None:
    """An aware time, a timedelta from now, or seconds from now."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return check_time(value, field)
    if isinstance(value, bool) or not isinstance(value, (int, float, timedelta)):
        raise Invalid(f"must be a time or seconds, not {type(value).__name__}", field=field)
    try:
        return now + (value if isinstance(value, timedelta) else timedelta(seconds=value))
    except (OverflowError, ValueError):
        raise Invalid(f"{quoted(value)} is out of range", field=field) from None


def check_task(value: Any, depth: int) -> TaskNote:
    try:
        plain = to_plain(value) if isinstance(value, TaskNote) else value
        note = convert(check_object(plain, "task", depth), TaskNote)
    except (msgspec.ValidationError, TypeError) as broken:
        raise Invalid(str(broken), field="task", hint="id, state, deadline, reason") from None
    check_id(note.id, "task.id")
    check_state(note.state, "task.state")
    if note.deadline is not None:
        check_time(note.deadline, "task.deadline")
    return note


def _address(address: Any, field: RecipientKind) -> str:
    if isinstance(address, str) and is_broadcast(address):
        if field == "bcc":
            raise Invalid("a broadcast cannot be hidden", field=field)
        return BROADCAST + check_scope(address.removeprefix(BROADCAST), field)
    if isinstance(address, str) and is_any(address):
        wanted = [check_label(word.strip(), field) for word in address.removeprefix(ANY).split(",")]
        return ANY + ",".join(dict.fromkeys(wanted))
    name = check_agent(address, field)
    if fold(name) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} takes no mail", field=field)
    return name


def _parts(office: Office, draft: Draft) -> tuple[Part, ...]:
    limits = office.limits
    if type(draft.body) is str and draft.data is None:  # most letters
        return (text(check_text(draft.body, "body[0]")),)
    given = pieces(draft.body)
    if draft.data is not None:
        given.append({"type": "data", "data": check_json(draft.data, "data", limits.max_depth - 1)})
    if len(given) > limits.max_parts:
        raise TooLarge(f"{len(given)} parts, the limit is {limits.max_parts}", field="body")
    checked = [check_part(part, f"body[{i}]", limits.max_depth) for i, part in enumerate(given)]
    for i, part in enumerate(checked):
        if part.type == "file":
            checked[i] = enclose(part, office.file_root, limits.max_message_bytes, f"body[{i}]")
    return tuple(checked)


def pieces(body: Any) -> list[Any]:
    """What a body is made of: nothing, one piece, or several."""
    if body is None:
        return []
    if isinstance(body, (str, Part, dict)):
        return [body]
    if isinstance(body, (list, tuple)):
        return list(body)
    raise Invalid(f"must be text, a part or a list of parts, not {type(body).__name__}", field="body")


def _texts(value: Any, field: str, longest: int) -> tuple[str, ...]:
    texts = () if value is None else listed(value, field)
    if len(texts) > MOST_TAGS:
        raise TooLarge(f"{len(texts)} of them, the limit is {MOST_TAGS}", field=field)
    check = check_label if field == "tags" else check_text
    return tuple(dict.fromkeys(check(item, field, longest) for item in texts))


def _conversation(value: Any) -> str:
    id = check_id(value, "conversation_id")
    if general_scope(id) is not None:
        raise Invalid(f"{id!a} is a scope's catch-all, which needs no naming", field="conversation_id")
    return id


def _empty(subject: Any) -> str:
    """None or "" is no subject; any other empty thing is not text."""
    return "" if subject is None else check_text(subject, "subject")


def _id(value: Any, field: str) -> str | None:
    return None if value is None else check_id(value, field)
