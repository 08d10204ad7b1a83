"""The layout of the nanobot mailbox channel: `<agent>/inbox/<ms>_<from>_<suffix>.msg.json`, and `processed/`.

The format has no subject: the first text part carries it as its first line, and our key (inside `metadata`) says
so.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

from ....errors import Invalid
from ....model.codec import to_plain
from ....model.delivery import SETTLED, State
from ....model.message import FIRST_HOPS
from ....model.names import check_id
from . import base, paths
from .base import OWN, FileState, Layout

if TYPE_CHECKING:
    from ....model.delivery import Delivery
    from ....model.message import Message
    from .base import Plain, Where


_NAME = re.compile(r"(\d{9,16})_")
_OURS = re.compile(r"msg_\d{10,16}_.*_[0-9a-f]{8}")
_FIELDS = frozenset(
    [
        "id",
        "from",
        "to",
        "timestamp",
        "type",
        "ttl",
        "trace",
        "task",
        "content",
        "callback",
        "reply_to",
        "metadata",
    ]
)
_TASK_STATES = {"canceled": "failed", "input_required": "working"}  # states that the design does not have
_MILLISECONDS = 100_000_000_000  # below this, a number in a file name counts seconds


class Nanobot(paths.NanobotPaths, Layout):
    kinds: ClassVar[dict[str, str]] = {kind: kind for kind in ("message", "task", "task_update")}
    other_kind = "message"

    def fresh_id(self, sender: str, nanoseconds: int, chance: int) -> str:
        return f"msg_{nanoseconds // 1_000_000}_{self.signature(sender)}_{chance:08x}"

    def file_name(self, message: Message, order: int) -> str:
        sender = self.signature(message.sender)
        if _our_form(message.id, sender):
            return f"{message.id[4:]}{self.ending}"
        return f"{order // 1000}_{sender}_{base_name(message.id)}{self.ending}"

    # -- a letter

    def write(self, message: Message, mailbox: str) -> Plain:
        fields: Plain = {
            "id": message.id,
            "from": message.sender,
            "to": mailbox,
            "timestamp": base.text_of(message.created_at),
            "type": self.kind_word(message),
            "ttl": message.hops,
            "trace": list(message.trace),
        }
        if (task := message.task) is not None:
            fields["task"] = to_plain(task) | {"state": _TASK_STATES.get(task.state, task.state)}
        parts = [part.to_json() for part in message.parts]
        fields["content"] = {"parts": _with_subject(parts, message.subject)}
        if message.callback is not None:
            fields["callback"] = message.callback
        fields["reply_to"] = message.in_reply_to
        fields["metadata"] = {**message.metadata}
        return base.with_unknown(fields, message.extra, _FIELDS)

    def read(self, fields: Plain, where: Where) -> Plain:
        own = self.own(fields)
        sender = base.sender_in(fields["from"])
        parts, subject = _without_subject(_parts(fields.get("content")), own.get("subject"))
        written = base.time_or_none(fields.get("timestamp")) or time_in_name(where)
        plain: Plain = {
            "id": _id(fields.get("id"), where),
            "sender": sender,
            "recipients": [{"address": where.mailbox, "kind": "to"}],
            "created_at": written,
            "kind": base.kind_in(fields.get("type"), "message"),
            "subject": subject,
            "parts": parts,
            "hops": _hops(fields.get("ttl")),
            "trace": base.texts_in(fields.get("trace")),
            "extra": base.unknown_in(fields, _FIELDS),
        }
        if isinstance(task := fields.get("task"), dict) and isinstance(task.get("id"), str):
            plain["task"] = _task(task)
        if isinstance(callback := fields.get("callback"), dict) and callback:
            plain["callback"] = callback
        if isinstance(reply_to := fields.get("reply_to"), str) and reply_to:
            plain["in_reply_to"] = reply_to
        if isinstance(metadata := fields.get("metadata"), dict):
            plain["metadata"] = {name: value for name, value in metadata.items() if name != OWN}
        return plain

    def own(self, fields: Plain) -> Plain:
        metadata = fields.get("metadata")
        found = metadata.get(OWN) if isinstance(metadata, dict) else None
        return found if isinstance(found, dict) else {}

    def set_own(self, fields: Plain, own: Plain) -> None:
        metadata = fields.get("metadata")
        metadata = {**metadata} if isinstance(metadata, dict) else {}
        metadata.pop(OWN, None)
        fields["metadata"] = metadata | ({OWN: own} if own else {})

    def dump(self, fields: Plain) -> bytes:
        return json.dumps(fields, ensure_ascii=False).encode()

    # -- its state

    def place(self, delivery: Delivery) -> str:
        return "processed" if delivery.state in SETTLED else super().place(delivery)

    def read_state(self, fields: Plain, place: str) -> FileState:
        found = super().read_state(fields, place)
        if place == "processed" and found.state is State.UNREAD:
            return FileState(State.DONE, reason=self.move_reason(fields))
        return found


def base_name(id: str) -> str:
    """Return a foreign id in a form that fits the end of a file name."""
    return re.sub(r"[^A-Za-z0-9.-]", "-", id)[-80:]


def time_in_name(where: Where) -> datetime:
    """Return the time in a file name, in milliseconds or seconds, else the modification time."""
    found = _NAME.match(where.name)
    if found is None:
        return where.written
    number = int(found.group(1))
    try:
        return datetime.fromtimestamp(number / (1 if number < _MILLISECONDS else 1000), UTC)
    except (ValueError, OverflowError):
        return where.written


def _our_form(id: str, sender: str) -> bool:
    return _OURS.fullmatch(id) is not None and id[id.index("_", 4) : -8] == f"_{sender}_"


def _id(value: Any, where: Where) -> str:
    """Return the id in a file; without one, an id from the file name."""
    try:
        return check_id(value, "id")
    except Invalid:
        return f"msg_{re.sub(r'[^A-Za-z0-9._:-]', '-', where.name.removesuffix('.msg.json'))}"[:180]


def _parts(content: Any) -> list[Plain]:
    """Return the parts in a file; other programs may write plain text or unknown kinds of parts."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    found = content.get("parts") if isinstance(content, dict) else None
    return [_part(part) for part in found] if isinstance(found, list) else []


def _part(part: Any) -> Plain:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, dict):
        kind, needs = part.get("type"), {"text": "text", "file": "path"}
        if kind == "data" and "data" in part:
            return part
        if kind in needs and isinstance(part.get(needs[kind]), str):
            return part
        if isinstance(kind, str) and (kind.startswith("x-") or kind in {"event", "reference"}):
            return part
    return {"type": "x-foreign", "value": part}


def _with_subject(parts: list[Plain], subject: str) -> list[Plain]:
    """Return the parts with the subject as the first line of the first text part."""
    if not subject:
        return parts
    if parts and parts[0]["type"] == "text":
        return [parts[0] | {"text": f"{subject}\n{parts[0]['text']}"}, *parts[1:]]
    return [{"type": "text", "text": subject}, *parts]


def _without_subject(parts: list[Plain], subject: Any) -> tuple[list[Plain], str]:
    """Return parts and subject apart, where our key says that there is a subject."""
    if not isinstance(subject, str) or not parts or parts[0]["type"] != "text":
        return parts, ""
    text = parts[0]["text"]
    if text == subject:
        return parts[1:], subject
    if text.startswith(f"{subject}\n"):
        return [parts[0] | {"text": text[len(subject) + 1 :]}, *parts[1:]], subject
    return parts, ""


def _hops(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000 else FIRST_HOPS


def _task(task: Plain) -> Plain:
    known = {name: task[name] for name in ("id", "state", "reason") if isinstance(task.get(name), str)}
    deadline = base.time_or_none(task.get("deadline"))
    return known if deadline is None else known | {"deadline": base.text_of(deadline)}


LAYOUT = Nanobot()
