"""Conversion between a letter and its file, without loss, in any layout.

A layout writes what its format has fields for. The rest is found by reading the written fields back: whatever
differs from the letter goes under one key of ours. So that key is there only when needed, and holds only the
difference.

`other_layout` recognises the layout of existing mail folders.
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
from ...model.values import passes, read_json
from ..sqlite.rows import micros
from .layouts.base import FileState, Where, layout_named
from .layouts.paths import NAMES
from .tree import MailFolders

if TYPE_CHECKING:
    from ...model.delivery import Delivery
    from .layouts.base import Layout, Plain


LARGEST = 16 * 1024 * 1024  # bytes of a letter file
DEEPEST = 64 + 8  # nesting of JSON in a file: a letter's, and what our key adds
_FIELDS = frozenset(Message.__struct_fields__) - {"proven"}  # which any program could forge in a file
_IDS = ("in_reply_to", "thread_id", "conversation_id")
_LONGEST_ADDRESS = 400
LATEST = micros(datetime(9000, 1, 1, tzinfo=UTC))  # microseconds: the last position in time
_NO = object()  # equal to nothing


class ParsedFile(NamedTuple):
    """The letter and the state that a file holds."""

    message: Message
    mailbox: str
    state: FileState
    order: int  # microseconds: the position among the letters of the room
    positions: tuple[int, ...]  # of its recipients among all, where some are hidden from this mailbox
    fields: Plain


def render_file(
    layout: Layout, message: Message, mailbox: str, delivery: Delivery, *, name: str, order: int
) -> bytes:
    """Return the content of the file for a letter in a mailbox."""
    fields = fields_of(layout, message, mailbox, name=name, order=order)
    if not delivery.is_unread:  # fields of a new letter mean unread
        layout.write_state(fields, delivery)
    return layout.dump(fields)


def fields_of(layout: Layout, message: Message, mailbox: str, *, name: str, order: int) -> Plain:
    """Return the fields of the file for an unread letter in a mailbox."""
    # Only what this mailbox may see goes into its file: a bcc must not show (G8).
    raw = encode(message.seen_by(mailbox))
    seen, plain = decode_message(raw), _plain(raw)  # as from a file: lists instead of tuples
    fields = layout.write(seen, mailbox)
    # Where the subject stands in the text, our key says so, or it could not be told from the text.
    own: Plain = {"subject": message.subject} if layout.name == "nanobot" and message.subject else {}
    layout.set_own(fields, own)
    # Under our key stands what the design's own fields do not hold: read back and compare (G2).
    own |= _difference(plain, _read_back(layout, fields, mailbox, name))
    if len(seen.recipients) != len(message.recipients):
        own["seats"] = [i for i, r in enumerate(message.recipients) if r in seen.recipients]
    if order != micros(message.created_at):
        own["order"] = order
    layout.set_own(fields, own)
    return fields


def parse_file(layout: Layout, raw: bytes, where: Where, largest: int = LARGEST) -> ParsedFile:
    """Return the letter in a file; raise Unreadable, which says what is wrong with it.

    This is the outer boundary for foreign content: nothing but the file is read here, so any error is the file's.
    """
    try:
        return _parse(layout, raw, where, largest)
    # Says nothing about the file: it must not be set aside.
    except MemoryError:
        raise
    except KeyError as missing:
        raise Unreadable(f"it has no {missing}") from None
    except PostroomError as wrong:
        raise Unreadable(f"it is not a letter: {str(wrong).removeprefix('file.')}") from None
    except Exception as broken:
        raise Unreadable(f"it is not a letter: {broken}") from None


def _parse(layout: Layout, raw: bytes, where: Where, largest: int) -> ParsedFile:
    fields = read_json(raw, "file", depth=DEEPEST, largest=largest)
    if not isinstance(fields, dict):
        raise Unreadable("it holds no object")
    own = layout.own(fields)
    where = _with_spelling(layout, fields, where)
    plain = layout.read(fields, where)
    if isinstance(own.get("extra"), dict):  # in addition to fields of other programs
        own = own | {"extra": plain["extra"] | own["extra"]}
    message = _message(plain | {name: own[name] for name in own if name in _FIELDS} if own else plain)
    if own:
        _check(message)
    # A file of another program must not pass for a notice of ours (G8).
    if message.sender == POSTMASTER and not message.is_automatic:
        raise Unreadable("only Postroom writes in the name of postmaster")
    return ParsedFile(
        message=message,
        mailbox=where.mailbox,
        state=state_at(layout, fields, where.place, where.mailbox),
        order=_order(own.get("order"), message),
        fields=fields,
        positions=_positions(own.get("seats")),
    )


def _order(value: Any, message: Message) -> int:
    """Return the position in time of a letter; raise if it leaves no room for later letters."""
    if isinstance(value, int) and 0 < value < LATEST:
        return value
    created = micros(message.created_at)
    if created >= LATEST:
        raise Invalid(f"{message.created_at.year} is too far in the future", field="created_at")
    return created


def state_at(layout: Layout, fields: Plain, place: str, mailbox: str) -> FileState:
    """Return the state that a file shows. New mail for an agent elsewhere is queued."""
    found = layout.read_state(fields, place)
    if AT in mailbox and found.state in {State.UNREAD, State.CLAIMED}:
        return FileState(State.QUEUED)
    return found


def _with_spelling(layout: Layout, fields: Plain, where: Where) -> Where:
    """Return `where` with the mailbox name as the letter spells it: a folder name has no slash and may be cut."""
    if fields.get(layout.addressee) == where.mailbox:
        return where
    try:
        to = check_party(fields.get(layout.addressee), "to")
    except Invalid:
        return where
    return where._replace(mailbox=to) if layout.folder(to) == layout.folder(where.mailbox) else where


def _read_back(layout: Layout, fields: Plain, mailbox: str, name: str) -> Plain:
    where = Where(mailbox, layout.places[0], name, datetime(1970, 1, 1, tzinfo=UTC))
    return _plain(encode(_message(layout.read(fields, where))))


def _difference(wanted: Plain, found: Plain) -> Plain:
    """Return the values that must be added to `found` to get `wanted`; None resets a field to its default."""
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
    """Return the message, with default values left out, so that they are left out again when it is encoded."""
    values = {name: value for name, value in plain.items() if value is not None and value != USUAL.get(name, _NO)}
    for name in _IDS:
        if name in values and not passes(Invalid, check_id, values[name], "file"):
            del values[name]
    if "parts" in values:
        values["parts"] = [{**part} for part in values["parts"]]  # a part takes over the dict it is made from
    if "trace" in values:
        values["trace"] = [agent for agent in values["trace"] if passes(Invalid, check_party, agent, "file")]
    message = convert(values, Message)
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
            time.astimezone(UTC)  # OverflowError if it lies outside of the calendar


def _positions(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(position, int) and position >= 0 for position in value):
        return ()
    return tuple(value)


# -- recognising a layout


def other_layout(root: str, wanted: str) -> str | None:
    """Return the layout of the letters in a folder if it is not the wanted one.

    Called once for a folder that is no room yet, before anything is written there. Returns None also where there
    are no letters, or where the folder cannot be read.
    """
    if _holds(root, layout_named(wanted)):
        return None
    return next((name for name in NAMES if name != wanted and _holds(root, layout_named(name))), None)


def _holds(root: str, layout: Layout) -> bool:
    """Return whether there is a file whose name only this layout uses, or its registry."""
    tree = MailFolders(os.path.realpath(root), layout)
    try:
        if layout.registry and os.path.lexists(f"{tree.home}/{layout.registry}"):
            return True
        return any(_holds_letter(tree, folder) for folder in tree.folders())
    except OSError:
        return False


def _holds_letter(tree: MailFolders, folder: str) -> bool:
    try:
        with os.scandir(tree.path(folder)) as found:
            return any(tree.layout.is_unmistakable(entry.name) for entry in found)
    except OSError:
        return False
