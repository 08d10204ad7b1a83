"""The message, which is written once and never changes, and its parts; handoffs and templates.

Everything that happens to a message happens to its deliveries (`delivery.py`).

A part is a type and its fields, flat in JSON: `{"type": "text", "text": "..."}`. The five known types have
required fields; any `x-*` type is kept as it is. Fields that a source format added are kept too.
"""

from __future__ import annotations

import re
from datetime import datetime
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

from msgspec import Struct, field
from msgspec.structs import replace

from ..errors import Invalid
from .names import ANY, AT, BROADCAST, PEOPLE, POSTMASTER, fold
from .values import Brief, check_json, check_text, object_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


# type -> {field: (is it required?, str or any JSON)}
FIELDS: dict[str, dict[str, tuple[bool, Any]]] = {
    "text": {"text": (True, str)},
    "data": {"data": (True, Any), "schema": (False, str)},
    "event": {"event": (True, str), "data": (False, Any)},
    "file": {"path": (True, str), "mime": (False, str)},
    "reference": {"uri": (True, str), "label": (False, str)},
}
Known = Literal["text", "data", "event", "file", "reference"]
PART_RULE = "text, data, event, file, reference, or a type of your own that starts with 'x-'"


class Part:
    """One piece of content. Two parts with the same type and fields are equal. A part never changes."""

    __slots__ = ("_fields", "type")

    def __init__(self, type: str, **fields: Any) -> None:
        self.type = type
        self._fields = fields

    def __getitem__(self, field: str) -> Any:
        return self._fields[field]

    def get(self, field: str, default: Any = None) -> Any:
        return self._fields.get(field, default)

    @property
    def is_bare_text(self) -> bool:
        """Return whether this is text without fields that a source format added."""
        return self.type == "text" and len(self._fields) == 1

    def to_json(self) -> dict[str, Any]:
        return {"type": self.type, **self._fields}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Part) and self.type == other.type and self._fields == other._fields

    def __hash__(self) -> int:
        return hash((self.type, frozenset(self._fields)))  # the names of the fields alone: values may be lists

    def __repr__(self) -> str:
        inside = "".join(f", {name}={value!r}" for name, value in self._fields.items())
        return f"Part({self.type!r}{inside})"


class LocalFile(Part):
    """A file on this machine, which is read when the letter is sent.

    Only the sender's own code can make one. Nothing that parses JSON makes one: a path in a request or in a
    received letter is text, and Postroom never opens it.
    """

    __slots__ = ()


def text(content: str) -> Part:
    """Return a part with Markdown text."""
    return new_part("text", {"text": content})


def data(content: Any, schema: str | None = None) -> Part:
    """Return a part with JSON, optionally with the name of its schema."""
    return Part("data", data=content) if schema is None else Part("data", data=content, schema=schema)


def event(name: str, content: Any = None) -> Part:
    """Return a part that reports an event."""
    return Part("event", event=name) if content is None else Part("event", event=name, data=content)


def file(path: str, mime: str | None = None) -> Part:
    """Return a part for a file of the sender: sending reads the path and encloses the bytes."""
    return LocalFile("file", path=path) if mime is None else LocalFile("file", path=path, mime=mime)


def reference(uri: str, label: str | None = None) -> Part:
    """Return a part that refers to a URI."""
    return Part("reference", uri=uri) if label is None else Part("reference", uri=uri, label=label)


def check_part(value: Any, field: str, depth: int) -> Part:
    """Return a checked, private copy of a part, which may be text, a Part or a JSON object."""
    if isinstance(value, str):
        return text(check_text(value, field))
    if isinstance(value, Part) and value.type == "text" and [*value._fields] == ["text"]:  # the usual case
        return text(check_text(value["text"], f"{field}.text"))
    fields = value.to_json() if isinstance(value, Part) else value
    if not isinstance(fields, dict):
        raise Invalid(f"must be text, a part or an object, not {type(value).__name__}", field=field)
    checked: dict[str, Any] = check_json(fields, field, depth)
    kind = checked.pop("type", None)
    if not is_part_type(kind):
        hint = PART_RULE if kind is not None else f"{PART_RULE}; plain JSON goes into data="
        raise Invalid(f"has the type {kind!a}", field=f"{field}.type", hint=hint)
    for name, (required, wanted) in FIELDS.get(kind, {}).items():
        if required and name not in checked:
            raise Invalid("is missing", field=f"{field}.{name}", hint=f"a {kind} part needs it")
        if wanted is str and not isinstance(checked.get(name, ""), str):
            raise Invalid("must be text", field=f"{field}.{name}")
    return part_from_json({"type": kind, **checked})


def is_part_type(kind: Any) -> TypeGuard[str]:
    return isinstance(kind, str) and (kind in FIELDS or (kind.startswith("x-") and len(kind) > 2))


def part_from_json(fields: dict[str, Any]) -> Part:
    """Return a part from its stored fields, which were checked when it was accepted. Takes over the dictionary."""
    return new_part(fields.pop("type"), fields)


def new_part(type: str, fields: dict[str, Any]) -> Part:
    """Return a part of checked fields, without the cost of passing them as keywords."""
    part = _new(Part)
    part.type = type
    part._fields = fields
    return part


_new = object.__new__


# The message

FIRST_HOPS = 3  # A→B→C→D is the longest chain of relays
DEFAULT_SCOPE = "default"
BOUNCE = "bounce"  # kind of a notice: mail could not be delivered
ESCALATION_UPDATE = "escalation_update"  # kind of a notice: an escalation goes to the next person
OVERDUE = "task_overdue"  # kind of a notice: a task is not finished at its deadline
KEY_CHANGED = "key_changed"  # kind of a notice: a person has another key
UNPROVEN = "unproven"  # how mail in a person's name without a proof is shown
AUTOMATIC = frozenset({BOUNCE, ESCALATION_UPDATE, OVERDUE, KEY_CHANGED})  # kinds that only Postroom itself writes
FEDERATION_NOTE = "federation"  # key in `extra`: the route by which the letter came from another system
TURN_NOTE = "turn"  # key in `extra`: the letter was sent as a turn of a conversation
MAP_NOTE = "map"  # key in `extra`: how the letter was written in a MAP message
OWN_NOTES = frozenset(
    {FEDERATION_NOTE, TURN_NOTE, MAP_NOTE}
)  # the keys that Postroom writes; all others come from outside

RecipientKind: TypeAlias = Literal["to", "cc", "bcc"]


class Priority(IntEnum):
    """The urgency of a letter. An inbox lists the highest priority first."""

    LOW = 1
    NORMAL = 2
    HIGH = 3
    URGENT = 4


class Recipient(Brief, frozen=True, gc=False, order=True):
    """An addressee of a letter, as its sender wrote it."""

    address: str  # an agent's name, broadcast:<scope>, or any:<capability>
    kind: RecipientKind = "to"


class TaskNote(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A letter's statement about a task: the opening letter and every update carry one."""

    id: str
    state: str = "pending"  # a state of the table in task.py
    deadline: datetime | None = None
    reason: str | None = None


class Proof(Brief, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A person's signature of a letter (`person.py`). A stored letter has one only if the room has checked it."""

    key: str  # the id of the person's key
    signature: str
    over: Literal["letter", "request"] = (
        "letter"  # a request over a wire is checked once, and proves nothing later
    )
    room: str = ""  # the room in which it was written, of a letter to another system
    recipients: tuple[Recipient, ...] = ()  # as written there


class Message(Brief, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A letter: written once, never changed."""

    id: str  # a ULID, or the id it came with from outside
    sender: str
    recipients: tuple[Recipient, ...]
    created_at: datetime  # aware UTC; says when, never decides order
    kind: str = "message"
    subject: str = ""
    parts: tuple[Part, ...] = ()
    priority: Priority = Priority.NORMAL
    scope: str = DEFAULT_SCOPE
    expires_at: datetime | None = None
    thread_tag: str | None = None  # a label people chose for the thread
    thread_id: str | None = None  # id of the root letter; None in the root itself
    conversation_id: str | None = None
    in_reply_to: str | None = None
    hops: int = FIRST_HOPS  # how often it may still be relayed, plus one
    trace: tuple[str, ...] = ()  # the agents it went through, the first sender first
    task: TaskNote | None = None
    callback: dict[str, Any] | None = None  # of a source format; echoed, never acted on
    context: dict[str, Any] | None = None  # of a handoff
    attachments: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    key: str | None = None  # idempotency key; None means the id is the key
    extra: dict[str, Any] = field(default_factory=dict)  # unknown fields of a source format
    proven: bool = False  # its sender showed a token; set by Postroom, never taken from a request
    proof: Proof | None = None  # its sender is a person and signed it; checked by Postroom before it is stored

    @property
    def text(self) -> str:
        """The text parts, joined by blank lines."""
        return "\n\n".join(part["text"] for part in self.parts if part.type == "text")

    @property
    def thread(self) -> str:
        """The id of the thread, which is the id of its root letter."""
        return self.thread_id or self.id

    @property
    def is_automatic(self) -> bool:
        """Whether Postroom itself wrote this letter. Such a letter never causes another automatic one."""
        return self.kind in AUTOMATIC

    @property
    def origin(self) -> str:
        """The sender, and whether it is verified. A further person, whom only the room knows, is `unverified`."""
        return origin_of(self)

    def seen_by(self, mailbox: str | None) -> Message:
        """Return this letter as `mailbox` may see it: a bcc is shown to the sender and to that recipient alone."""
        if mailbox == self.sender:
            return self
        for recipient in self.recipients:
            if recipient.kind == "bcc":
                shown = tuple([r for r in self.recipients if r.kind != "bcc" or r.address == mailbox])
                return replace(self, recipients=shown)
        return self


def origin_route(letter: Message) -> dict[str, Any]:
    """Return how a letter came from another system: source, id, path, hops, time. Empty if it was written here."""
    return object_in(letter.extra, FEDERATION_NOTE) if AT in letter.sender else {}


def origin_of(message: Message, people: Collection[str] = PEOPLE) -> str:
    """Return the sender of a letter, and how it is known; `people` holds the folded names of people."""
    word = origin_word(message.sender, proven=message.proven, signed=message.proof is not None, people=people)
    return f"{message.sender} ({word})"


def origin_word(sender: str, *, proven: bool, signed: bool = False, people: Collection[str] = PEOPLE) -> str:
    """Return `the user, proven`, `unproven`, `verified` or `unverified`.

    A token verifies an agent and never a person. The postmaster is always verified: no caller can use its name.
    """
    if signed:
        return "the user, proven"
    if fold(sender) in people:
        return UNPROVEN
    return "verified" if proven or sender == POSTMASTER else "unverified"


def is_broadcast(address: str) -> bool:
    return address.startswith(BROADCAST)


def is_any(address: str) -> bool:
    return address.startswith(ANY)


def same_name(first: str, second: str) -> bool:
    return fold(first) == fold(second)


# Content in agent-inbox's form, which is one object with a `type`, and its conversion to parts and back without
# loss:
#
# | payload | part | comes back as |
# |---|---|---|
# | text | text | `{"type": "text", "text": ...}` |
# | a valid object of a type that is ours too | as it is | as it was |
# | an object of any other type, and every `file` | `{"type": "x-content", "content": the object}` | the object |
# | anything else | data | `{"type": "data", "data": ...}` |
#
# A `file` of agent-inbox names a path on the sender's machine, while ours carries the bytes, so it is wrapped.
# agent-inbox has no form for several parts: they come out as their text, with all `parts` beside it.

CARRIED = "x-content"  # the type of the part that wraps an object of an unknown type
_OURS = frozenset(FIELDS) - {"file"}


def payload_to_parts(payload: Any) -> list[dict[str, Any]]:
    """Return the parts, as plain JSON, for content in agent-inbox's form."""
    if isinstance(payload, str):
        return [{"type": "text", "text": payload}]
    if not is_typed(payload):
        return [{"type": "data", "data": payload}]
    return [dict(payload) if _is_ours(payload) else {"type": CARRIED, "content": payload}]


def is_typed(payload: Any) -> bool:
    return isinstance(payload, dict) and isinstance(payload.get("type"), str)


def content_of(parts: Sequence[Part]) -> dict[str, Any]:
    """Return the content of a letter as one object in agent-inbox's form."""
    if len(parts) == 1:
        part = parts[0]
        if part.type == CARRIED and isinstance(carried := part.get("content"), dict):
            return carried
        return part.to_json()
    text = "\n\n".join(part["text"] for part in parts if part.type == "text")
    if not parts:
        return {"type": "text", "text": ""}
    plain = [content_of([part]) for part in parts]
    if any(part.type == "text" for part in parts):
        return {"type": "text", "text": text, "parts": plain}
    return {"type": "parts", "parts": plain}


def content_type(message: Message) -> str:
    kind = content_of(message.parts).get("type")
    return kind if isinstance(kind, str) else "data"


def _is_ours(payload: dict[str, Any]) -> bool:
    """Return whether an object would pass the check of our parts and is not a wrapper."""
    kind = payload["type"]
    if kind not in _OURS:
        return bool(kind.startswith("x-") and len(kind) > 2 and kind != CARRIED)
    return all(
        (name in payload or not required) and (wanted is not str or isinstance(payload.get(name, ""), str))
        for name, (required, wanted) in FIELDS[kind].items()
    )


class Handoff(Brief, frozen=True, kw_only=True):
    """The structured context of a handoff: what was done, the current state, and the next steps."""

    work_completed: str
    files_modified: tuple[str, ...] = ()
    files_created: tuple[str, ...] = ()
    current_state: str = ""
    state_file: str | None = None
    next_steps: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    related_escalations: tuple[str, ...] = ()
    job_id: str | None = None
    notes: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """Every file that the handoff names, once."""
        named = (*self.files_modified, *self.files_created, *((self.state_file,) if self.state_file else ()))
        return tuple(dict.fromkeys(named))


# Templates, in a small format of our own, because templates are data from users:
#
#     {name}     a place: a letter or _, then letters, digits and _
#     {{ and }}  a brace
#
# Braces hold nothing else: no attributes, no indexes, no formats. A filled-in value is not parsed again, so it
# cannot add another place.

PLACE_RULE = "{name}, with letters, digits and _; a brace itself is written {{ or }}"
_PIECE = r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]{0,63})\}|[{}]"


class Template(Brief, frozen=True, kw_only=True):
    """A letter with places to fill in. Subject, body and tags may hold places."""

    name: str
    body: str = ""
    subject: str = ""
    kind: str = "message"
    priority: Priority = Priority.NORMAL
    tags: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The names of all places, in the order of appearance."""
        texts = (self.subject, self.body, *self.tags)
        return tuple(dict.fromkeys(name for text in texts for name in places_in(text, "body")))


def places_in(text: str, field: str) -> list[str]:
    """Return the names of the places in a text. Refuse a single brace that begins or ends no place."""
    found = []
    for piece in re.finditer(_PIECE, text):
        if piece[0] in {"{", "}"}:
            around = text[piece.start() : piece.start() + 20]
            raise Invalid(f"holds a single brace at {around!a}", field=field, hint=PLACE_RULE)
        if piece[1]:
            found.append(piece[1])
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    """Return the text with a value in each place."""
    return re.sub(_PIECE, lambda piece: values[piece[1]] if piece[1] else piece[0][0], text)
