"""A letter ⇄ a file, without loss, in any layout.

What the design can say stands in its own fields. The rest is found by reading back what was just written: whatever
differs from the letter goes under our key. So the key is there only when it is needed, and holds only that.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...errors import Invalid, PostroomError, Unreadable
from ...model.codec import USUAL, convert, decode_message, encode, with_defaults
from ...model.delivery import State
from ...model.message import Message
from ...model.names import AT, POSTMASTER, check_id, check_party
from ...model.values import read_json
from ..sqlite.rows import micros
from .folders import Places
from .layouts.base import FileState, Where, layout_named
from .layouts.paths import NAMES

if TYPE_CHECKING:
    from ...model.delivery import Delivery
    from .layouts.base import Layout, Plain


DEEPEST = 64 + 8  # of JSON in a file: a letter's, and what our key adds
_FIELDS = frozenset(Message.__struct_fields__) - {"proven"}  # which anybody could write there
_IDS = ("in_reply_to", "thread_id", "conversation_id")
_LONGEST_ADDRESS = 400
LATEST = micros(datetime(9000, 1, 1, tzinfo=UTC))  # microseconds: no letter stands later in time
_NO = object()  # equal to nothing


class ParsedFile(NamedTuple):
    """What a file holds."""

    message: Message
    mailbox: str  # whose it is
    state: FileState
    order: int  # microseconds: where it stands among the letters of the room
    seats: tuple[int, ...]  # which of all recipients these are, where some are hidden from this mailbox
    fields: Plain


def file_of(layout: Layout, message: Message, mailbox: str, delivery: Delivery, *, name: str, order: int) -> bytes:
    """The file of a letter as it is put into a mailbox."""
    fields = _simply(layout, message, mailbox, name=name, order=order)
    is_simple = fields is not None
    if fields is None:
        fields = _closely(layout, message, mailbox, name=name, order=order)
    if not delivery.is_unread:  # else that is what they tell
        layout.show(fields, delivery)
    return layout.dump(fields, whole=is_simple)


def fields_of(layout: Layout, message: Message, mailbox: str, *, name: str, order: int) -> Plain:
    """What the file of a letter says at one mailbox, before anything has happened to it."""
    fields = _simply(layout, message, mailbox, name=name, order=order)
    return _closely(layout, message, mailbox, name=name, order=order) if fields is None else fields


def _simply(layout: Layout, message: Message, mailbox: str, *, name: str, order: int) -> Plain | None:
    """Where it is known what the design cannot say: most letters are so."""
    own = layout.unsaid(message, mailbox, name) if order == micros(message.created_at) else None
    if own is None:
        return None
    fields = layout.write(message, mailbox)
    if own:
        layout.set_own(fields, own)
    return fields


def _closely(layout: Layout, message: Message, mailbox: str, *, name: str, order: int) -> Plain:
    raw = encode(message.seen_by(mailbox))
    seen, plain = decode_message(raw), _plain(raw)  # as it comes from a file: with lists, never tuples
    fields = layout.write(seen, mailbox)
    own = _difference(plain, _read_back(layout, fields, mailbox, name))
    if layout.name == "nanobot" and message.subject:
        own = _with_subject(layout, fields, plain, mailbox, name)
    if len(seen.recipients) != len(message.recipients):
        own["seats"] = [i for i, r in enumerate(message.recipients) if r in seen.recipients]
    if order != micros(message.created_at):
        own["order"] = order
    layout.set_own(fields, own)
    return fields


def parse_file(layout: Layout, raw: bytes, where: Where, largest: int) -> ParsedFile:
    """The letter in a file; Unreadable says what is wrong with it. Nothing but the file is looked at here, so
    whatever goes wrong, the file is to blame.
    """
    try:
        return _sheet(layout, raw, where, largest)
    except MemoryError:
        raise
    except KeyError as missing:
        raise Unreadable(f"it has no {missing}") from None
    except PostroomError as wrong:
        raise Unreadable(f"it is no letter: {str(wrong).removeprefix('file.')}") from None
    except Exception as broken:
        raise Unreadable(f"it is no letter: {broken}") from None


def _sheet(layout: Layout, raw: bytes, where: Where, largest: int) -> ParsedFile:
    fields = read_json(raw, "file", depth=DEEPEST, largest=largest)
    if not isinstance(fields, dict):
        raise Unreadable("it holds no object")
    own = layout.own(fields)
    where = _spelt(layout, fields, where)
    plain = layout.read(fields, where)
    if isinstance(own.get("extra"), dict):  # beside what strangers added
        own = own | {"extra": plain["extra"] | own["extra"]}
    message = _message(plain | {name: own[name] for name in own if name in _FIELDS} if own else plain)
    if own:
        _check(message)
    if message.sender == POSTMASTER and not message.is_automatic:
        raise Unreadable("only the house writes in the name of postmaster")
    return ParsedFile(
        message=message,
        mailbox=where.mailbox,
        state=told_at(layout, fields, where.place, where.mailbox),
        order=_order(own.get("order"), message),
        fields=fields,
        seats=_seats(own.get("seats")),
    )


def _order(value: Any, message: Message) -> int:
    """Where a letter stands in time. All that come later stand behind it, so there must be room for them."""
    if isinstance(value, int) and 0 < value < LATEST:
        return value
    created = micros(message.created_at)
    if created >= LATEST:
        raise Invalid(f"{message.created_at.year} is too far in the future", field="created_at")
    return created


def told_at(layout: Layout, fields: Plain, place: str, mailbox: str) -> FileState:
    """The state that a file tells. In the folder of somebody at another system, new mail is on its way there."""
    result = layout.state_in(fields, place)
    if AT in mailbox and result.state in {State.UNREAD, State.CLAIMED}:
        return FileState(State.QUEUED)
    return result


def _spelt(layout: Layout, fields: Plain, where: Where) -> Where:
    """A letter knows best how the name of its mailbox is spelt: a folder holds no slash, and not the longest."""
    if fields.get(layout.addressee) == where.mailbox:
        return where
    try:
        to = check_party(fields.get(layout.addressee), "to")
    except Invalid:
        return where
    return where._replace(mailbox=to) if layout.folder(to) == layout.folder(where.mailbox) else where


def _with_subject(layout: Layout, fields: Plain, plain: Plain, mailbox: str, name: str) -> Plain:
    """The subject stands in the text, and our key says so: what else differs is seen with that known."""
    layout.set_own(fields, {"subject": plain["subject"]})
    own = _difference(plain, _read_back(layout, fields, mailbox, name))
    return {"subject": plain["subject"]} | own


def _read_back(layout: Layout, fields: Plain, mailbox: str, name: str) -> Plain:
    where = Where(mailbox, layout.places[0], name, datetime(1970, 1, 1, tzinfo=UTC))
    return _plain(encode(_message(layout.read(fields, where))))


def _difference(wanted: Plain, found: Plain) -> Plain:
    """What must be said on top; None takes a field back to its default."""
    names = [*wanted, *(name for name in found if name not in wanted)]
    changed = {name: wanted.get(name) for name in names if wanted.get(name) != found.get(name)}
    if "extra" in changed:
        there = found.get("extra", {})
        changed["extra"] = {
            name: value for name, value in wanted["extra"].items() if there.get(name, _NO) != value
        }
    return changed


def _plain(raw: bytes) -> Plain:
    plain: Plain = msgspec.json.decode(raw)
    return plain


def _message(plain: Plain) -> Message:
    """What is as usual is left to the letter's defaults: only then is it left out again when it is encoded."""
    result = {name: value for name, value in plain.items() if value is not None and value != USUAL.get(name, _NO)}
    for name in _IDS:
        if name in result and not _is_id(result[name]):
            del result[name]
    if "parts" in result:
        result["parts"] = [{**part} for part in result["parts"]]  # parts are made of what is handed in
    if "trace" in result:
        result["trace"] = [agent for agent in result["trace"] if _is_agent(agent)]
    message = convert(result, Message)
    return message if message.task is None else with_defaults(message)


def _check(message: Message) -> None:
    check_id(message.id, "id")
    check_party(message.sender, "from")
    for recipient in message.recipients:
        if len(recipient.address) > _LONGEST_ADDRESS:
            raise Invalid("is too long", field="to")
    deadline = None if message.task is None else message.task.deadline
    for time in (message.created_at, message.expires_at, deadline):
        if time is not None:
            time.astimezone(UTC)  # OverflowError: with its zone it lies outside of the calendar


def _is_id(value: Any) -> bool:
    try:
        check_id(value, "id")
    except Invalid:
        return False
    return True


def _is_agent(value: Any) -> bool:
    try:
        check_party(value, "trace")
    except Invalid:
        return False
    return True


def _seats(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(seat, int) and seat >= 0 for seat in value):
        return ()
    return tuple(value)


# Whose letters lie in a folder? Asked once, where nobody of us has been, before anything is written there.


def other_layout(root: str, wanted: str) -> str | None:
    """The layout that all of a folder's letters are of, if that is not the wanted one. None also where there are
    none at all, or where nobody may look.
    """
    if _holds(root, layout_named(wanted)):
        return None
    return next((name for name in NAMES if name != wanted and _holds(root, layout_named(name))), None)


def _holds(root: str, layout: Layout) -> bool:
    """Is there a letter that only this design names so, or its registry?"""
    places = Places(os.path.realpath(root), layout)
    try:
        if layout.registry and os.path.lexists(f"{places.home}/{layout.registry}"):
            return True
        return any(_holds_letter(places, folder) for folder in places.folders())
    except OSError:
        return False


def _holds_letter(places: Places, folder: str) -> bool:
    try:
        with os.scandir(places.path(folder)) as found:
            return any(places.layout.is_unmistakable(entry.name) for entry in found)
    except OSError:
        return False
