"""The codec of nanobot's bus: fields of a letter in the metadata of its messages, under keys `mailbox_…`.

Incoming messages have them all. An outgoing message, which any plugin may have written, has those that it sets; it
makes a task or lowers the hops, and nothing else.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import Invalid
from ..model.codec import to_plain
from ..model.names import check_id
from ..store.files.layouts.base import time_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..model.message import Message


TYPE = "mailbox_type"
TASK = "mailbox_task"
TTL = "mailbox_ttl"


class BusFields(Struct, frozen=True, kw_only=True):
    """The fields of a letter that an outgoing message sets."""

    is_task: bool = False
    task_id: str | None = None
    deadline: datetime | float | None = None  # a time, or seconds from now
    ttl: int | None = None


def bus_fields(message: Message) -> dict[str, Any]:
    """Return the fields of a letter under their documented keys.

    Nothing that a peer wrote becomes a key here: nanobot acts on some metadata keys.
    """
    return {
        "mailbox": {"id": message.id, "from": message.sender, "kind": message.kind, "thread": message.thread},
        TYPE: message.kind,
        TASK: None if message.task is None else to_plain(message.task),
        "mailbox_parts": [
            {name: value for name, value in part.to_json().items() if name != "bytes"} for part in message.parts
        ],
        TTL: message.hops,
        "mailbox_trace": list(message.trace),
        "reply_to": message.in_reply_to,
    }


def read_bus_fields(metadata: Mapping[str, Any], most: int, warn: Callable[[str], None]) -> BusFields:
    """Return the fields that an outgoing message sets, with at most `most` hops.

    Settings that cannot be applied are refused or warned of.
    """
    kind, task, ttl = metadata.get(TYPE) or "message", metadata.get(TASK), metadata.get(TTL)
    if kind not in {"message", "task"}:
        raise Invalid(f"{kind!a} is not a type", field=TYPE, hint="message or task")
    if task is not None and kind != "task":
        warn(f"{TASK} is left out: {TYPE} is not task")
    if ttl is not None and (isinstance(ttl, bool) or not isinstance(ttl, int) or ttl < 1):
        raise Invalid(f"{ttl!a} is not a valid ttl", field=TTL, hint="a whole number from 1 on")
    if ttl is not None and ttl > most:
        warn(f"{TTL} is {ttl}, and is sent as {most}: it can be lowered, not raised")
    said = task if isinstance(task, dict) else {}
    for name in sorted(map(str, said.keys() - {"id", "deadline"})):
        if (name, said[name]) != ("state", "pending"):
            warn(f"{TASK}.{name} is left out: a task is given with its id and its deadline")
    id, due = said.get("id"), said.get("deadline")
    at = time_or_none(due) if isinstance(due, str) else due
    if due is not None and at is None:
        raise Invalid(f"{due!a} is not a time", field=f"{TASK}.deadline", hint="in ISO form, or seconds from now")
    return BusFields(
        is_task=kind == "task",
        task_id=None if id is None else check_id(id, f"{TASK}.id"),
        deadline=at,
        ttl=None if ttl is None else min(ttl, most),
    )
