"""The layout of the Gastown chipset: `mail/<agent>/<time>-<from>.json` with sorted keys, and `archive/` below it.

The format has no id: the file name is the id.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

from ....model.delivery import State
from ....model.message import Priority
from . import base, paths
from .base import FileState, Layout

if TYPE_CHECKING:
    from ....model.delivery import Delivery
    from ....model.message import Message
    from .base import Plain, Where


_FIELDS = frozenset(["from", "to", "type", "subject", "body", "timestamp", "read", "priority"])
_OURS = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{9}Z-.+"
)  # nine digits: only Postroom gives such names, each once
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT)(\d\d)-(\d\d)-(\d\d)(\.\d+)?(Z|[+-]\d\d-?\d\d)?")
_WORDS = {Priority.LOW: "low", Priority.NORMAL: "normal", Priority.HIGH: "urgent", Priority.URGENT: "urgent"}
_KINDS = ("work_assignment", "completion_report", "merge_notification", "health_escalation", "coordination")


class Chipset(paths.ChipsetPaths, Layout):
    kinds: ClassVar[dict[str, str]] = {kind: kind for kind in _KINDS}
    other_kind = "coordination"

    def is_unmistakable(self, name: str) -> bool:
        return self.may_hold(name) and _STAMP.match(name) is not None

    def fresh_id(self, sender: str, nanoseconds: int, chance: int) -> str:
        micros, nanos = divmod(nanoseconds, 1000)
        return f"{_stamp(micros)}{(nanos + chance) % 1000:03}Z-{self.signature(sender)}"

    def file_name(self, message: Message, order: int) -> str:
        sender = self.signature(message.sender)
        # The name is the id of a reader without our key, so our own ids become the name.
        if _OURS.fullmatch(message.id) and message.id.endswith(f"-{sender}"):
            return f"{message.id}{self.ending}"
        return f"{_stamp(order)}{_three_digits(message.id)}Z-{sender}{self.ending}"

    # -- a letter

    def write(self, message: Message, mailbox: str) -> Plain:
        body = message.text
        fields: Plain = {
            "from": message.sender,
            "to": mailbox,
            "type": self.kind_word(message),
            "subject": message.subject or base.first_words(body),
            "body": body,
            "timestamp": base.text_of(message.created_at),
            "read": False,
            "priority": _WORDS[message.priority],
        }
        return base.with_unknown(fields, message.extra, _FIELDS)

    def read(self, fields: Plain, where: Where) -> Plain:
        sender = base.sender_in(fields["from"])
        body = fields.get("body")
        written = base.time_or_none(fields.get("timestamp")) or time_in_name(where)
        plain: Plain = {
            "id": _id(where),
            "sender": sender,
            "recipients": [{"address": where.mailbox, "kind": "to"}],
            "created_at": written,
            "kind": base.kind_in(fields.get("type"), self.other_kind),
            "subject": base.line_in(fields.get("subject")),
            "parts": [{"type": "text", "text": body if isinstance(body, str) else json.dumps(body)}],
            "trace": [sender],
            "extra": base.unknown_in(fields, _FIELDS),
        }
        if (priority := base.priority_in(fields.get("priority"))) is not None:
            plain["priority"] = priority
        return plain

    def dump(self, fields: Plain) -> bytes:
        return json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n"

    # -- its state

    def place(self, delivery: Delivery) -> str:
        put_away = delivery.state is State.DEAD or delivery.archived_at is not None
        return "archive" if put_away else super().place(delivery)

    def changes_content(self, before: Delivery, after: Delivery) -> bool:
        done = (before.state is State.DONE) != (after.state is State.DONE)
        return done or super().changes_content(before, after)

    def write_state(self, fields: Plain, delivery: Delivery) -> None:
        super().write_state(fields, delivery)
        fields["read"] = delivery.state is State.DONE

    def read_state(self, fields: Plain, place: str) -> FileState:
        found = super().read_state(fields, place)
        if found.state is State.UNREAD and fields.get("read") is True:
            return FileState(State.DONE, is_put_away=place == "archive", reason=self.move_reason(fields))
        return found


def time_in_name(where: Where) -> datetime:
    """Return the time at the beginning of a file name, else the modification time."""
    found = _STAMP.match(where.name)
    if found is None:
        return where.written
    day, hour, minute, second, fraction, _zone = found.groups()
    time = base.time_or_none(f"{day}{hour}:{minute}:{second}{(fraction or '')[:7]}Z")
    return where.written if time is None else time


def _id(where: Where) -> str:
    """Return an id from the file name. Other programs may use one name in several mailboxes; Postroom does not."""
    stem = re.sub(r"[^A-Za-z0-9._:-]", "-", where.name.removesuffix(".json"))
    if _OURS.fullmatch(stem):
        return stem[:200]
    mailbox = re.sub(r"[^A-Za-z0-9._:-]", "_", where.mailbox)
    return f"{stem[:120]}.{mailbox[-70:]}"


def _stamp(microseconds: int) -> str:
    """Return a time as in file names: with dashes, and six digits of a second."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H-%M-%S}.{rest:06}"


def _three_digits(id: str) -> str:
    """Return three more digits from an id, so that letters of one moment get different names."""
    return f"{sum(id.encode()) % 1000:03}"


LAYOUT = Chipset()
