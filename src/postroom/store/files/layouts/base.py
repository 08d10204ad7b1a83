"""Plain JSON as the designs write it: byte for byte what `json.dumps` makes, many times as fast.

msgspec writes text, whole numbers and structure as Python does. What it writes otherwise is left to Python.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec
from msgspec import to_builtins

from ....errors import BadStore, Invalid
from ....model.codec import blake2b
from ....model.delivery import MOVED_AWAY, State
from ....model.message import DEFAULT_SCOPE, FIRST_HOPS, OWN_NOTES, Priority, Recipient
from ....model.names import AT, ONE_MAILBOX, check_kind, check_party, fold
from .paths import NAMES, QUEUED, LayoutPaths

if TYPE_CHECKING:
    from ....model.delivery import Delivery
    from ....model.message import Message


_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode


def dumps(
    value: Any,
    *,
    indent: int | None = None,
    sort_keys: bool = False,
    ensure_ascii: bool = False,
    whole: bool = False,
) -> bytes:
    """As `json.dumps` with these settings, of lists, and objects with text keys. `whole`: no number in it is a
    fraction, which need not be looked for.
    """
    try:
        quick = _encode_sorted(value) if sort_keys else _encode(value)
    except (OverflowError, UnicodeEncodeError):  # more than 64 bits; half a character
        quick = b""
    is_escaped = ensure_ascii and (not quick.isascii() or b"\x7f" in quick)
    if not quick or is_escaped or (not whole and _has_fractions(value)):
        return json.dumps(value, indent=indent, sort_keys=sort_keys, ensure_ascii=ensure_ascii).encode()
    return msgspec.json.format(quick, indent=indent or 0)


def _has_fractions(values: Any) -> bool:
    for value in values.values() if type(values) is dict else values:
        kind = type(value)
        if kind is float or ((kind is dict or kind is list) and value and _has_fractions(value)):
            return True
    return False


# What a layout is, and what all of them share.
#
# A letter is written as the design's JSON (`fields`, as they stand in a file), and read from there as the model's
# (`plain`, as `codec.to_plain` writes it). What a design has no word for goes under one key of ours in the file
# (`own`), and only then is that key there.

OWN = "postroom"  # the one extra key
LONGEST_NAME = 100  # characters of a mailbox in the name of a file or folder
FIRST_WORDS = 60  # characters of a body that stand for a missing subject
_LONGEST_SUBJECT = 1000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

Plain = dict[str, Any]


class FileState(NamedTuple):
    """What a file says about its delivery."""

    state: State
    read_at: datetime | None = None
    acked_at: datetime | None = None
    archived_at: datetime | None = None
    dead_at: datetime | None = None
    due_at: datetime | None = None
    reason: str | None = None
    is_put_away: bool = False  # nobody says when


class Where(NamedTuple):
    """Where a file was found."""

    mailbox: str
    place: str  # the folder within the mailbox
    name: str
    written: datetime  # its own time


class Layout(LayoutPaths, ABC):
    """One design's way with files, of its shape."""

    kinds: ClassVar[dict[str, str]]  # ours -> the design's; what is not here becomes `other_kind`
    other_kind: ClassVar[str]
    addressee: ClassVar[str] = "to"  # the field that names the mailbox

    # -- names

    def folder(self, mailbox: str) -> str:
        """The folder of a mailbox, below the home."""
        return shortened(mailbox.replace("/", "_"))

    @lru_cache(maxsize=1024)  # noqa: B019 - a layout is there for good
    def signature(self, sender: str) -> str:
        """The same for the name of a file and for an id, in which no `@` can stand."""
        return self.folder(sender).replace(AT, "-")

    def mailbox(self, folder: str) -> str:
        """Whose folder this is, where no letter says it better; Invalid if it can be nobody's."""
        return check_party(folder, "folder")

    def is_unmistakable(self, name: str) -> bool:
        """Is this the name of a letter, and of no other design's?"""
        return self.may_hold(name)

    @abstractmethod
    def fresh_id(self, sender: str, nanoseconds: int, chance: int) -> str:
        """An id for a new letter, such that its file needs no word of ours for it."""

    @abstractmethod
    def file_name(self, message: Message, order: int) -> str:
        """How its file is called; `order` is its place in time, in microseconds, later than all before."""

    # -- a letter

    @abstractmethod
    def write(self, message: Message, mailbox: str) -> Plain:
        """The design's fields for a new letter that nobody has looked at."""

    def unsaid(self, message: Message, mailbox: str, name: str) -> Plain | None:
        """What goes under our key, where that is plain: then no number in the letter is a fraction. None: look
        closely, which takes ten times as long.
        """
        is_plain = (
            message.scope == DEFAULT_SCOPE
            and message.recipients == (Recipient(mailbox),)
            and not (message.thread_tag or message.conversation_id or message.key or message.extra)
            and not (message.expires_at or message.context or message.attachments or message.tags)
            and not (message.task or message.callback or message.metadata)
        )
        own = self._unsaid(message, name) if is_plain else None
        if own is not None and self.kind_there(message) != message.kind:
            own["kind"] = None if message.kind == "message" else message.kind
        return own

    @abstractmethod
    def _unsaid(self, message: Message, name: str) -> Plain | None:
        """The same, as far as the designs differ."""

    @abstractmethod
    def read(self, fields: Plain, where: Where) -> Plain:
        """The letter that a file holds, as far as the design can say it: id, sender and recipients are checked.
        KeyError, TypeError or Invalid: there is none.
        """

    def own(self, fields: Plain) -> Plain:
        """What stands under our key."""
        found = fields.get(OWN)
        return found if isinstance(found, dict) else {}

    def set_own(self, fields: Plain, own: Plain) -> None:
        fields.pop(OWN, None)
        if own:
            fields[OWN] = own

    @abstractmethod
    def dump(self, fields: Plain, *, whole: bool = False) -> bytes:
        """The file, byte for byte as the design writes it. `whole`: no number in it is a fraction."""

    # -- its state

    def place(self, delivery: Delivery) -> str:
        """The folder within the mailbox where a letter in this state lies."""
        return QUEUED if delivery.state is State.QUEUED else self.places[0]

    def shown(self, delivery: Delivery) -> State:
        """The state, as far as a file can tell it."""
        return State.UNREAD if delivery.state is State.CLAIMED else delivery.state

    def changes_content(self, before: Delivery, after: Delivery) -> bool:
        """Does a file say something else after this move? Where it lies aside."""
        return self._note(before) != self._note(after)

    def rereads(self, delivery: Delivery, result: FileState) -> bool:  # noqa: ARG002 - most designs have no word for it
        """Does a file tell that somebody read a letter, or made it unread again, which we do not know of?"""
        return False

    def show(self, fields: Plain, delivery: Delivery) -> None:
        """Let the fields tell this state. What nobody of us wrote is left as it is."""
        own, note = self.own(fields), self._note(delivery)
        if note or "delivery" in own:
            own = {name: value for name, value in own.items() if name != "delivery"}
            self.set_own(fields, own | ({"delivery": note} if note else {}))

    def state_in(self, fields: Plain, place: str) -> FileState:
        """The state that a file tells."""
        note = self.own(fields).get("delivery")
        note = note if isinstance(note, dict) else {}
        reason = note.get("reason")
        if place == QUEUED and (due := time_or_none(note.get("due_at"))) is not None:
            return FileState(State.QUEUED, due_at=due)
        if isinstance(reason, str) and note.get("state") == State.DEAD:
            return FileState(State.DEAD, dead_at=time_or_none(note.get("dead_at")), reason=reason)
        return FileState(State.UNREAD)

    def where_it_went(self, fields: Plain) -> str | None:
        """Of a letter that goes on in another room."""
        note = self.own(fields).get("delivery")
        reason = note.get("reason") if isinstance(note, dict) and note.get("state") == "done" else None
        return reason if isinstance(reason, str) and reason.startswith(MOVED_AWAY) else None

    def _note(self, delivery: Delivery) -> Plain:
        """What of a delivery has no word in any design: when it is due, why it is dead."""
        if delivery.state is State.QUEUED and delivery.due_at is not None:
            return {"due_at": text_of(delivery.due_at)}
        if delivery.state is State.DONE and delivery.has_left:
            return {"state": "done", "reason": delivery.reason}
        if delivery.state is State.DEAD:
            return {
                "state": "dead",
                "reason": delivery.reason,
                "dead_at": delivery.dead_at and text_of(delivery.dead_at),
            }
        return {}

    # -- pieces

    def kind_there(self, message: Message) -> str:
        return self.kinds.get(message.kind, self.other_kind)


def sender_in(value: Any) -> str:
    """Who wrote it, as the model spells it."""
    return check_party(value, "from")


def kind_in(value: Any, otherwise: str) -> str:
    """The word in a file, if it can be a kind at all."""
    try:
        return check_kind(value, "type")
    except Invalid:
        return otherwise


def line_in(value: Any) -> str:
    """A subject as one line; strangers write what they like."""
    return _CONTROL.sub(" ", value)[:_LONGEST_SUBJECT] if isinstance(value, str) else ""


def first_words(body: str) -> str:
    """What stands for a subject that the design requires and the letter has not."""
    line = " ".join(body.split())
    return line if len(line) <= FIRST_WORDS else line[:FIRST_WORDS].rsplit(" ", 1)[0] + "…"


def priority_in(value: Any) -> int | None:
    """A word or number as our number; None for the usual one and for what is none."""
    if isinstance(value, str):
        value = {priority.name.lower(): int(priority) for priority in Priority}.get(value.lower())
    known = isinstance(value, int) and not isinstance(value, bool) and value in set(Priority)
    return value if known and value != Priority.NORMAL else None


def text_of(time: datetime) -> str:
    return plain_text_of(time.astimezone(UTC))


def plain_text_of(time: datetime) -> str:
    """In ISO form, with a `Z` if it is UTC; as `isoformat`, in a seventh of its time."""
    text: str = to_builtins(time)
    return text


def time_or_none(value: Any, *, naive_is_local: bool = False) -> datetime | None:
    """A time in ISO form, of any zone; one without a zone is UTC, or local where a design says so."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is None and not naive_is_local:
            time = time.replace(tzinfo=UTC)
        return time.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def unknown_in(fields: Plain, known: frozenset[str]) -> Plain:
    """What a stranger added; it is kept."""
    return {name: value for name, value in fields.items() if name not in known and name != OWN}


def with_unknown(fields: Plain, extra: Plain, known: frozenset[str]) -> Plain:
    """And back to where it stood. A name that the design has itself cannot be a stranger's, and what Postroom
    itself wrote into `extra` goes under our key with all else that the design has no word for.
    """
    return fields | unknown_in(extra, known | OWN_NOTES) if extra else fields


def is_text_from_its_sender(message: Message) -> bool:
    """One text with an ordinary subject, on its first way."""
    return (
        len(message.parts) == 1
        and message.parts[0].is_bare_text
        and bool(message.subject)
        and message.subject == line_in(message.subject)
        and message.hops == FIRST_HOPS
        and message.trace == (message.sender,)
    )


def shortened(name: str) -> str:
    """A name that fits into a file's name, with room for more."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 13]}.{blake2b(name.encode(), digest_size=6).hexdigest()}"


def is_the_human(name: str) -> bool:
    return fold(name) in ONE_MAILBOX or fold(name) == "human"


def layout_named(name: str) -> Layout:
    """Return the layout of this name."""
    if name not in NAMES:
        raise BadStore(f"{name!a} is no layout", field="store", hint=", ".join(NAMES))
    layout: Layout = import_module(f"{__package__}.{name}").LAYOUT  # which imports this module
    return layout
