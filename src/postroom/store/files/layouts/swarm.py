"""The layout of the agent-swarm mailbox (ADR-003): `<agent>/inbox/MSG-*.json`, and `archive/`.

The field `status` holds every state of a letter. Times are written local and without a zone, as in the design;
times with a zone are read, too.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from ....errors import Invalid
from ....model.delivery import State
from ....model.message import DEFAULT_SCOPE
from ....model.names import check_id, check_party, check_scope
from . import base, paths
from .base import FileState, Layout

if TYPE_CHECKING:
    from datetime import datetime

    from ....model.delivery import Delivery
    from ....model.message import Message
    from .base import Plain, Where


_FIELDS = frozenset(
    [
        "id",
        "from_agent",
        "to_agent",
        "swarm_name",
        "type",
        "subject",
        "body",
        "payload",
        "priority",
        "created_at",
        "expires_at",
        "status",
        "read_at",
        "completed_at",
        "reply_to",
        "thread_id",
        "context",
        "attachments",
        "tags",
    ]
)
_KINDS = ("request", "response", "notification", "handoff", "escalation")
_STATES = {
    "processing": State.CLAIMED,
    "completed": State.DONE,
    "archived": State.DONE,
    "failed": State.DEAD,
}


class Swarm(paths.SwarmPaths, Layout):
    kinds: ClassVar[dict[str, str]] = {kind: kind for kind in _KINDS} | {"task": "request"}
    other_kind = "notification"
    addressee = "to_agent"

    def folder(self, mailbox: str) -> str:
        return "user" if base.is_the_human(mailbox) else super().folder(mailbox)

    def fresh_id(self, sender: str, nanoseconds: int, chance: int) -> str:  # noqa: ARG002 - these ids are random
        return f"MSG-{(nanoseconds ^ (chance << 16)) & 0xFFFF_FFFF_FFFF:012x}"

    def file_name(self, message: Message, order: int) -> str:  # noqa: ARG002 - names hold no time here
        return f"{message.id}{self.ending}" if message.id.startswith("MSG-") else f"MSG-{message.id}{self.ending}"

    # -- a letter

    def write(self, message: Message, mailbox: str) -> Plain:
        body = message.text
        fields: Plain = {
            "id": message.id,
            "from_agent": _their_name(message.sender),
            "to_agent": _their_name(mailbox),
            "swarm_name": None if message.scope == DEFAULT_SCOPE else message.scope,
            "type": self.kind_word(message),
            "subject": message.subject or base.first_words(body),
            "body": body,
            "payload": _payload(message),
            "priority": int(message.priority),
            "created_at": local(message.created_at),
            "expires_at": local(message.expires_at),
            "status": "unread",
            "read_at": None,
            "completed_at": None,
            "reply_to": message.in_reply_to,
            "thread_id": message.thread_id,
            "context": message.context or {},
            "attachments": list(message.attachments),
            "tags": list(message.tags),
        }
        return base.with_unknown(fields, message.extra, _FIELDS)

    def dump(self, fields: Plain) -> bytes:
        return json.dumps(fields, indent=2).encode()

    def read(self, fields: Plain, where: Where) -> Plain:
        sender = base.sender_in(fields["from_agent"])
        body, payload, context = fields.get("body"), fields.get("payload"), fields.get("context")
        written = base.time_or_none(fields.get("created_at"), naive_is_local=True) or where.written
        parts: list[Plain] = [{"type": "text", "text": body if isinstance(body, str) else json.dumps(body)}]
        if isinstance(payload, dict) and payload:
            parts.append({"type": "data", "data": payload})
        plain: Plain = {
            "id": _id(fields.get("id"), where),
            "sender": sender,
            "recipients": [{"address": self._addressee(fields.get("to_agent"), where), "kind": "to"}],
            "created_at": written,
            "kind": base.kind_in(fields.get("type"), self.other_kind),
            "subject": base.line_in(fields.get("subject")),
            "parts": parts,
            "trace": [sender],
            "attachments": [*dict.fromkeys(base.texts_in(fields.get("attachments")))],
            "tags": [*dict.fromkeys(base.texts_in(fields.get("tags")))],
            "extra": base.unknown_in(fields, _FIELDS),
        }
        if (priority := base.priority_in(fields.get("priority"))) is not None:
            plain["priority"] = priority
        if (scope := _scope(fields.get("swarm_name"))) is not None:
            plain["scope"] = scope
        if (expires := base.time_or_none(fields.get("expires_at"), naive_is_local=True)) is not None:
            plain["expires_at"] = base.text_of(expires)
        if isinstance(context, dict) and context:
            plain["context"] = context
        for theirs, ours in (("reply_to", "in_reply_to"), ("thread_id", "thread_id")):
            if isinstance(value := fields.get(theirs), str) and value:
                plain[ours] = value
        return plain

    def _addressee(self, value: Any, where: Where) -> str:
        """Return the recipient. A folder name cannot tell `swarm/agent` from `swarm_agent`; the letter can."""
        try:
            name = check_party(value, "to_agent")
        except Invalid:
            return where.mailbox
        return name if self.folder(name) == self.folder(where.mailbox) else where.mailbox

    # -- its state

    def place(self, delivery: Delivery) -> str:
        return "archive" if delivery.archived_at is not None else super().place(delivery)

    def visible_state(self, delivery: Delivery) -> State:
        return delivery.state

    def changes_content(self, before: Delivery, after: Delivery) -> bool:
        return _status(before) != _status(after) or super().changes_content(before, after)

    def read_state_differs(self, delivery: Delivery, found: FileState) -> bool:
        is_open = found.state is delivery.state is State.UNREAD
        return is_open and (found.read_at is None) != (_status(delivery) == "unread")

    def write_state(self, fields: Plain, delivery: Delivery) -> None:
        super().write_state(fields, delivery)
        # Programs of the design read the status alone; place and stamps follow it.
        fields["status"] = _status(delivery)
        fields["read_at"] = local(delivery.read_at)
        fields["completed_at"] = local(delivery.acked_at)

    def read_state(self, fields: Plain, place: str) -> FileState:
        found = super().read_state(fields, place)
        status = fields.get("status")
        state = _STATES.get(status, State.UNREAD) if isinstance(status, str) else State.UNREAD
        read_at = base.time_or_none(fields.get("read_at"), naive_is_local=True)
        if status == "unread":  # the status counts: the letter was read, and marked unread again
            read_at = None
        done_at = base.time_or_none(fields.get("completed_at"), naive_is_local=True)
        if found.state is not State.UNREAD:
            return found._replace(read_at=read_at)
        if state is State.DEAD:
            return FileState(state, read_at=read_at, reason="failed")
        put_away = place == "archive" and state is State.DONE
        reason = self.move_reason(fields) if state is State.DONE else None
        archived_at = done_at if put_away else None
        return FileState(state, read_at=read_at, acked_at=done_at, archived_at=archived_at, reason=reason)


def local(time: datetime | None) -> str | None:
    """Return a time as in the design: local, without a zone. At the ends of the calendar it stays UTC."""
    if time is None:
        return None
    # The first and last day of the calendar have no local time in some zones.
    with suppress(OverflowError, ValueError, OSError):
        time = time.astimezone()
    return base.plain_text_of(time.replace(tzinfo=None))


def _status(delivery: Delivery) -> str:
    if delivery.state is State.DONE:
        return "completed" if delivery.archived_at is None else "archived"
    if delivery.state is State.UNREAD:
        return "unread" if delivery.read_at is None or delivery.is_back else "read"
    return {State.CLAIMED: "processing", State.DEAD: "failed", State.QUEUED: "unread"}[delivery.state]


def _their_name(name: str) -> str:
    return "user" if base.is_the_human(name) else name


def _payload(message: Message) -> Plain:
    """Return the first data part, if it is an object."""
    for part in message.parts:
        if part.type == "data":
            data: Any = part.get("data")
            return data if isinstance(data, dict) else {}
    return {}


def _id(value: Any, where: Where) -> str:
    try:
        return check_id(value, "id")
    except Invalid:
        return re.sub(r"[^A-Za-z0-9._:-]", "-", where.name.removesuffix(".json"))[:180]


def _scope(value: Any) -> str | None:
    try:
        return None if value in {None, "", DEFAULT_SCOPE} else check_scope(value, "swarm_name")
    except (Invalid, TypeError):
        return None


LAYOUT = Swarm()
