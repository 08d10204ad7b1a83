"""The base of all layouts: what a layout must define, and what they share.

A layout writes a letter as the JSON object of its design (`fields`) and reads it back as the model's JSON
(`plain`, as `codec.to_plain` makes it). What the design has no field for goes under one key of ours in the file
(`own`), which is there only when needed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgspec import to_builtins

from ....errors import BadStore, Invalid
from ....model.codec import blake2b
from ....model.delivery import MOVED_AWAY, State
from ....model.message import OWN_NOTES, Priority
from ....model.names import AT, ONE_MAILBOX, check_kind, check_party, fold
from .paths import NAMES, QUEUED, LayoutPaths

if TYPE_CHECKING:
    from ....model.delivery import Delivery
    from ....model.message import Message


# -- layouts

OWN = "postroom"  # our key in a file
LONGEST_NAME = 100  # characters of a mailbox name in the name of a file or folder
FIRST_WORDS = 60  # characters of a body that replace a missing subject
_LONGEST_SUBJECT = 1000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

Plain = dict[str, Any]


class FileState(NamedTuple):
    """The state of a delivery, as a file shows it."""

    state: State
    read_at: datetime | None = None
    acked_at: datetime | None = None
    archived_at: datetime | None = None
    dead_at: datetime | None = None
    due_at: datetime | None = None
    reason: str | None = None
    is_put_away: bool = False  # archived at an unknown time


class Where(NamedTuple):
    """The place where a file was found."""

    mailbox: str
    place: str  # the folder within the mailbox
    name: str
    written: datetime  # its modification time


class Layout(LayoutPaths, ABC):
    """The file format of one design. Each layout has one instance, `LAYOUT` in its module."""

    kinds: ClassVar[dict[str, str]]  # our kind -> the design's; any other becomes `other_kind`
    other_kind: ClassVar[str]
    addressee: ClassVar[str] = "to"  # the field that names the mailbox

    # -- names

    def folder(self, mailbox: str) -> str:
        """Return the folder of a mailbox, below the home."""
        return shortened(mailbox.replace("/", "_"))

    @lru_cache(maxsize=1024)  # noqa: B019 - a layout lives as long as the process
    def signature(self, sender: str) -> str:
        """Return a sender's name for file names and ids, which allow no `@`."""
        return self.folder(sender).replace(AT, "-")

    def mailbox(self, folder: str) -> str:
        """Return the mailbox of a folder, where no letter names it; raise Invalid if no mailbox can have it."""
        return check_party(folder, "folder")

    def is_unmistakable(self, name: str) -> bool:
        """Return whether this is the name of a letter file of this layout and of no other."""
        return self.may_hold(name)

    @abstractmethod
    def fresh_id(self, sender: str, nanoseconds: int, chance: int) -> str:
        """Return an id for a new letter, in a form that the design's fields or file name can hold."""

    @abstractmethod
    def file_name(self, message: Message, order: int) -> str:
        """Return the file name of a letter; `order` is its position in time, in microseconds."""

    # -- a letter

    @abstractmethod
    def write(self, message: Message, mailbox: str) -> Plain:
        """Return the design's fields for an unread letter."""

    @abstractmethod
    def read(self, fields: Plain, where: Where) -> Plain:
        """Return the letter in a file, as far as the design has fields; id, sender and recipients are checked.

        Raises KeyError, TypeError or Invalid if there is no letter.
        """

    def own(self, fields: Plain) -> Plain:
        """Return the content of our key."""
        found = fields.get(OWN)
        return found if isinstance(found, dict) else {}

    def set_own(self, fields: Plain, own: Plain) -> None:
        fields.pop(OWN, None)
        if own:
            fields[OWN] = own

    @abstractmethod
    def dump(self, fields: Plain) -> bytes:
        """Return the file, byte for byte as the design writes it."""

    # -- its state

    def place(self, delivery: Delivery) -> str:
        """Return the place in the mailbox folder for a letter in this state."""
        return QUEUED if delivery.state is State.QUEUED else self.places[0]

    def visible_state(self, delivery: Delivery) -> State:
        """Return the state as far as a file can show it."""
        return State.UNREAD if delivery.state is State.CLAIMED else delivery.state

    def changes_content(self, before: Delivery, after: Delivery) -> bool:
        """Return whether this move changes the content of the file, apart from its folder."""
        return self._note(before) != self._note(after)

    def read_state_differs(self, delivery: Delivery, found: FileState) -> bool:  # noqa: ARG002 - most designs have no word for it
        """Return whether file and delivery differ in whether an open letter was read."""
        return False

    def write_state(self, fields: Plain, delivery: Delivery) -> None:
        """Write the state of a delivery into the fields. Fields of other programs stay."""
        own, note = self.own(fields), self._note(delivery)
        if note or "delivery" in own:
            own = {name: value for name, value in own.items() if name != "delivery"}
            self.set_own(fields, own | ({"delivery": note} if note else {}))

    def read_state(self, fields: Plain, place: str) -> FileState:
        """Return the state that a file shows."""
        note = self.own(fields).get("delivery")
        note = note if isinstance(note, dict) else {}
        reason = note.get("reason")
        if place == QUEUED and (due := time_or_none(note.get("due_at"))) is not None:
            return FileState(State.QUEUED, due_at=due)
        if isinstance(reason, str) and note.get("state") == State.DEAD:
            return FileState(State.DEAD, dead_at=time_or_none(note.get("dead_at")), reason=reason)
        return FileState(State.UNREAD)

    def move_reason(self, fields: Plain) -> str | None:
        """Return the reason noted for a letter that was moved to another room."""
        note = self.own(fields).get("delivery")
        reason = note.get("reason") if isinstance(note, dict) and note.get("state") == "done" else None
        return reason if isinstance(reason, str) and reason.startswith(MOVED_AWAY) else None

    def _note(self, delivery: Delivery) -> Plain:
        """Return what no design has a field for: when a delivery is due, why it is dead or where it went."""
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

    # -- fields

    def kind_word(self, message: Message) -> str:
        return self.kinds.get(message.kind, self.other_kind)


def sender_in(value: Any) -> str:
    """Return the sender in a file; raise Invalid if it is no name."""
    return check_party(value, "from")


def kind_in(value: Any, otherwise: str) -> str:
    """Return the kind in a file, or `otherwise` if it is no valid kind."""
    try:
        return check_kind(value, "type")
    except Invalid:
        return otherwise


def line_in(value: Any) -> str:
    """Return a subject as one line of limited length; other programs write any text."""
    return _CONTROL.sub(" ", value)[:_LONGEST_SUBJECT] if isinstance(value, str) else ""


def texts_in(value: Any) -> list[str]:
    """Return the texts in a list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []


def first_words(body: str) -> str:
    """Return the first words of a body, for a design that requires a subject."""
    line = " ".join(body.split())
    return line if len(line) <= FIRST_WORDS else line[:FIRST_WORDS].rsplit(" ", 1)[0] + "…"


def priority_in(value: Any) -> int | None:
    """Return a priority word or number as our number; None for the normal one and for invalid ones."""
    if isinstance(value, str):
        value = {priority.name.lower(): int(priority) for priority in Priority}.get(value.lower())
    known = isinstance(value, int) and not isinstance(value, bool) and value in set(Priority)
    return value if known and value != Priority.NORMAL else None


def text_of(time: datetime) -> str:
    return plain_text_of(time.astimezone(UTC))


def plain_text_of(time: datetime) -> str:
    """Return a time in ISO form, with `Z` for UTC; seven times as fast as `isoformat`."""
    text: str = to_builtins(time)
    return text


def time_or_none(value: Any, *, naive_is_local: bool = False) -> datetime | None:
    """Return a time in ISO form as UTC; one without a zone is UTC, or local where a design says so."""
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
    """Return the fields that another program added; they are kept."""
    return {name: value for name, value in fields.items() if name not in known and name != OWN}


def with_unknown(fields: Plain, extra: Plain, known: frozenset[str]) -> Plain:
    """Return the fields with those that another program had added.

    A field of the design itself cannot be foreign, and what Postroom wrote into `extra` goes under our key.
    """
    return fields | unknown_in(extra, known | OWN_NOTES) if extra else fields


def shortened(name: str) -> str:
    """Return a name cut to LONGEST_NAME, with a hash that keeps it unique."""
    if len(name) <= LONGEST_NAME:
        return name
    return f"{name[: LONGEST_NAME - 13]}.{blake2b(name.encode(), digest_size=6).hexdigest()}"


def is_the_human(name: str) -> bool:
    return fold(name) in ONE_MAILBOX or fold(name) == "human"


def layout_named(name: str) -> Layout:
    """Return the layout of this name."""
    if name not in NAMES:
        raise BadStore(f"{name!a} is not a layout", field="store", hint=", ".join(NAMES))
    layout: Layout = import_module(f"{__package__}.{name}").LAYOUT  # which imports this module
    return layout
