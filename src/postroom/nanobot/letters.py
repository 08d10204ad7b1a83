"""A message of the design, as a caller of `send` has it, becomes a letter. What nobody could read is refused.

A stranger's file is taken as it is; from our own callers only that is taken which cannot hurt a reader.
"""

from __future__ import annotations

import json
from functools import partial
from sys import intern
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import service
from ..errors import Invalid, Unreadable
from ..model.delivery import open_delivery
from ..model.message import Recipient
from ..model.names import AT, POSTMASTER, check_id, check_kind, check_party, fold
from ..model.task import TASK_UPDATE
from ..model.values import check_object
from ..service.pace import check_pace
from ..store.base import Post
from ..store.files import letters as sheets
from ..store.files.layouts.base import OWN, Where, text_of, time_or_none
from ..store.files.layouts.nanobot import LAYOUT
from . import relays

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ..model.message import Message
    from ..service.office import Office

_HINT = "as the design has it"
_LOST = {
    "task": "id, state, deadline, reason; the rest belongs in metadata",
    "content": 'parts of type text, data and file; any other type begins with "x-"',
    "trace": "names of agents",
}
_FILENAME = "_filename"  # what `poll` adds; it says where another letter lies


def post(office: Office, sender: str, to: str, msg: dict[str, Any]) -> Post:
    """The letter, ready to be committed. Fills what is missing of id, from, to and timestamp into `msg`."""
    for name, field in ((sender, "from_id"), (to, "to_id")):
        if fold(name) == POSTMASTER:
            raise Invalid(f"{POSTMASTER!r} is the house's own name", field=field)
    now = office.now().wall
    filled = _filled(office, sender, to, msg, now)
    message = relays.counted(office, _followed(office, _letter(office, sender, to, filled, now)), to)
    check_pace(office, message)
    encoded = service.compose.seal(message, office.limits)
    msg.update({name: filled[name] for name in ("id", "from", "to", "timestamp")})
    return Post(
        message=message,
        encoded=encoded,
        deliveries=(open_delivery(message, to, "to", now),),
        quota=office.limits.inbox_quota,
        outbox=office.limits.outbox_max_letters,
        known_only=office.limits.unknown == "refuse",
        admit=partial(service.addressing.addressed, office),
        routes=AT in to,  # is there a way to that system?
    )


def _filled(office: Office, sender: str, to: str, msg: Any, now: datetime) -> dict[str, Any]:
    said = check_object(msg, "msg", office.limits.max_depth)
    filled = {name: value for name, value in said.items() if value is not None and name != _FILENAME}
    for name, meant in (("from", sender), ("to", to)):
        if check_party(filled.get(name, meant), name) != meant:
            raise Invalid(f"is {filled[name]!a}, not {meant!a}", field=name)
        filled[name] = meant
    if "id" not in filled:
        filled["id"] = office.new_id(sender)
    filled.setdefault("timestamp", text_of(now))
    for name, check in _CHECKS.items():
        if name in filled and not check(filled[name]):
            raise Invalid("cannot be that", field=name, hint=_HINT)
    check_id(filled["id"], "id")
    check_kind(filled.get("type", "message"), "type")
    if isinstance(filled.get("content"), str):  # no reader expects it
        filled["content"] = {"parts": [{"type": "text", "text": filled["content"]}]}
    return filled


def _letter(office: Office, sender: str, to: str, said: dict[str, Any], now: datetime) -> Message:
    """What a reader of the file would make of it. What a letter has no place for is refused, not dropped."""
    metadata = {name: value for name, value in said.get("metadata", {}).items() if name != OWN}
    fields = said | {"metadata": metadata}
    where = Where(to, LAYOUT.places[0], "", now)
    raw = json.dumps(fields, ensure_ascii=False).encode()  # which says what JSON is: a caller hands in anything
    try:
        message = sheets.read_sheet(LAYOUT, raw, where, 2 * office.limits.max_message_bytes).message
    except Unreadable as wrong:
        raise Invalid(str(wrong), field="msg", hint=_HINT) from None
    written = LAYOUT.write(message, to)
    for name in ("task", "content", "trace"):
        if name in said and not _says(written.get(name), said[name]):
            raise Invalid("would not arrive as it is", field=name, hint=_LOST[name])
    message = replace(message, kind=intern(message.kind), sender=sender, recipients=(Recipient(to),))
    if message.is_automatic:
        raise Invalid(f"only the house writes a {message.kind!r}", field="type")
    return message


def _followed(office: Office, message: Message) -> Message:
    """In the thread of the letter it answers, if its sender knows that one."""
    if message.in_reply_to is None:
        return _about_its_task(office, message)
    parent = relays.letter_above(office, message)
    return message if parent is None else replace(message, thread_id=parent.thread)


def _about_its_task(office: Office, message: Message) -> Message:
    """An update that names only the task answers the letter that opened it, as our own book has it."""
    if message.kind != TASK_UPDATE or message.task is None:
        return message
    called = [task for task in service.taskbook.tasks_of(office, message.sender) if task.id == message.task.id]
    if len(called) != 1:
        return message
    return replace(message, in_reply_to=called[0].letter, thread_id=called[0].thread)


def _says(written: Any, said: Any) -> bool:
    """Is all of this in what is written?"""
    if isinstance(said, dict) and isinstance(written, dict):
        return all(name in written and _says(written[name], value) for name, value in said.items())
    if isinstance(said, list) and isinstance(written, (list, tuple)):
        return len(said) == len(written) and all(map(_says, written, said))
    told = time_or_none(said)
    return bool(written == said) or (told is not None and told == time_or_none(written))


def _is_content(value: Any) -> bool:
    if isinstance(value, str):
        return True
    parts = value.get("parts", []) if isinstance(value, dict) else None
    return isinstance(parts, list) and all(isinstance(part, dict) for part in parts)


def _is_hops(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "id": lambda value: isinstance(value, str),
    "timestamp": lambda value: time_or_none(value) is not None,
    "type": lambda value: isinstance(value, str),
    "ttl": _is_hops,
    "trace": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "task": lambda value: isinstance(value, dict),
    "content": _is_content,
    "callback": lambda value: isinstance(value, dict),
    "reply_to": lambda value: isinstance(value, str),
    "metadata": lambda value: isinstance(value, dict),
}
