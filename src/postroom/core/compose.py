"""Turn a caller's fields into a checked `Message`; enclose files.

Any Python value may come in through a `Draft`; `compose` returns a valid message or raises an error that names the
field. `CHECKS` is the table of fields. A file is read from disk only if the sender's own code names it by
`postroom.file` or `--file`, and only below `Core.file_root`.
"""

from __future__ import annotations

import binascii
import errno
import os
import stat
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ..errors import Invalid, NotAllowed, TooLarge
from ..model import names as model_names
from ..model import task
from ..model.codec import convert, encode, to_plain
from ..model.message import (
    FEDERATION_NOTE,
    LocalFile,
    Message,
    Part,
    Priority,
    Recipient,
    TaskNote,
    check_part,
    is_any,
    is_broadcast,
    new_part,
    part_from_json,
)
from ..model.names import (
    ANY,
    AT,
    BROADCAST,
    POSTMASTER,
    check_agent,
    check_id,
    check_kind,
    check_scope,
    fold,
)
from ..model.thread import general_scope
from ..model.values import (
    Brief,
    as_list,
    check_json,
    check_label,
    check_line,
    check_object,
    check_text,
    check_time,
    quoted,
)
from .proof import own_name
from .verb import LOCAL, MailboxVerb, PriorityWord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..model.message import RecipientKind
    from ..policy.limits import Limits
    from .core import Core


LONGEST_SUBJECT = 1000
ROUTE_ALLOWANCE = 16 * 1024  # bytes that federation adds to a letter: names with their systems, the route
MOST_TAGS = 256
_PRIORITIES: dict[str | int, Priority] = {
    word: priority for priority in Priority for word in (priority.name.lower(), priority.value)
}


class RequestFields(MailboxVerb, kw_only=True):
    """The fields that a letter may have besides its recipients and body. None of them is checked yet."""

    data: Annotated[Any, "any JSON, as a part of its own"] = None
    subject: Annotated[str | None, "one line"] = None
    priority: Annotated[
        PriorityWord | None, "how urgent; normal by default, or as the letter that is answered or forwarded"
    ] = None
    scope: Annotated[str | None, "the team or project it belongs to"] = None
    expires: Annotated[datetime | float | None, "not offered after this"] = None
    thread_tag: Annotated[str | None, "a label for the thread"] = None
    conversation_id: Annotated[str | None, "the conversation it belongs to"] = None
    in_reply_to: Annotated[str | None, "the letter it answers or follows"] = None
    callback: Annotated[dict[str, Any] | None, "an object that replies repeat; never acted on"] = None
    context: Annotated[dict[str, Any] | None, "an object, such as a handoff's"] = None
    attachments: Annotated[list[Any] | None, "the name of something that is stored elsewhere"] = None
    tags: Annotated[list[Any] | None, "labels"] = None
    metadata: Annotated[dict[str, Any] | None, "an object of your own"] = None
    key: Annotated[str | None, "makes sending safe to repeat: the same key is sent once"] = None

    def drafted(self, usual: Mapping[str, Any] | None = None, /, **own: Any) -> Draft:
        """Return the letter with the fields of `own`, whatever it says, and with those of `usual` that it leaves
        out.
        """
        return Draft(**{**(usual or {}), **given_fields(self), **own}, agent_id=self.agent_id)


class LetterFields(RequestFields, kw_only=True):
    """The fields of a letter besides `to` and `body`."""

    cc: Annotated[Any, "further recipients, who get a copy"] = None
    bcc: Annotated[Any, "recipients of a copy that nobody else sees"] = None
    kind: Annotated[
        str | None,
        "an open word, such as request (default: message; of a broadcast: notification; of a handoff: handoff)",
    ] = None
    at: Annotated[datetime | float | None, "not delivered before this"] = None
    task: Annotated[
        dict[str, Any] | None, "a note about a task: id, state, deadline, reason. The note moves no task"
    ] = None
    letter_id: Annotated[str | None, "the id of the letter, where it has one already"] = None
    extra: Annotated[dict[str, Any] | None, LOCAL] = None  # fields of other systems


_LETTER_FIELDS = [name for name in LetterFields.__struct_fields__ if name not in MailboxVerb.__struct_fields__]


class Draft(LetterFields, kw_only=True):
    """A letter to be sent, as the caller described it. `agent_id` is its sender."""

    to: Annotated[Any, "a name, or a list of names; without it, the sender of the letter in in_reply_to"] = None
    body: Annotated[Any, "text, or a list of parts; a file part needs its `bytes`, as base64"] = None
    exclude: Annotated[Any, LOCAL] = None  # agents that a broadcast leaves out
    relays: Annotated[bool, LOCAL] = False  # it forwards the letter of its in_reply_to

    __repr__ = Brief.__repr__


def given_fields(draft: RequestFields) -> dict[str, Any]:
    """Return the fields of a letter that the caller gave, by name."""
    return {name: value for name in _LETTER_FIELDS if (value := getattr(draft, name, None)) is not None}


def letter_fields(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields that a caller in Python gives, under their names in `LetterFields`."""
    for field in fields:
        if field not in FIELDS:
            unknown = min(name for name in fields if name not in FIELDS)
            raise Invalid("a letter has no such field", field=unknown, hint=", ".join(FIELDS))
    if "id" not in fields:
        return fields
    return {"letter_id" if name == "id" else name: value for name, value in fields.items()}


def compose(core: Core, draft: Draft, now: datetime) -> Message:
    """Return the message of a draft whose sender is checked already, or raise an error that names the field."""
    sender, limits = draft.agent_id, core.limits
    fields: dict[str, Any] = {}
    for field, check in CHECKS.items():
        value = getattr(draft, field)
        if value is not None:
            fields[field] = check(value, field, limits.max_depth)
    if draft.expires is not None:
        fields["expires_at"] = check_when(draft.expires, "expires", now)
    to, body = draft.to, draft.body
    # The usual letter: one recipient, whose mailbox is called as it is written, and text.
    is_to_one = type(to) is str and draft.cc is None and draft.bcc is None and fold(to) not in core.people.names
    is_text = type(body) is str and draft.data is None
    return Message(
        id=core.new_id(sender) if draft.letter_id is None else check_id(draft.letter_id, "id"),
        sender=sender,
        recipients=_single_recipient(to) if is_to_one else check_recipients(core, draft),
        created_at=now,
        parts=(new_part("text", {"text": check_text(body, "body[0]")}),) if is_text else _check_parts(core, draft),
        hops=limits.hops,
        trace=(sender,),
        **fields,
    )


def draft_of(message: Message) -> Draft:
    """Return the draft of a message from another system, so that it is checked like one that is written here."""
    fields: dict[str, Any] = {"letter_id": message.id, "expires": message.expires_at}
    for name, usual in _FIELD_DEFAULTS.items():
        if (value := getattr(message, name)) != usual:
            fields[name] = value
    for recipient in message.recipients:
        fields.setdefault(recipient.kind, []).append(recipient.address)
    return Draft(agent_id=message.sender, body=list(message.parts), **fields)


def encode_within_limit(message: Message, limits: Limits) -> bytes:
    """Return the message as JSON, or raise TooLarge.

    Bytes that federation added on the way here do not count: the message was within the limit where it was sent.
    """
    encoded = encode(message)
    if len(encoded) > limits.max_message_bytes + (ROUTE_ALLOWANCE if FEDERATION_NOTE in message.extra else 0):
        size = f"the letter is {len(encoded)} bytes, the limit is {limits.max_message_bytes}"
        raise TooLarge(size, field="body")
    return encoded


def check_recipients(core: Core, draft: Draft) -> tuple[Recipient, ...]:
    """Return each recipient once, under the first kind that names it: to, then cc, then bcc."""
    recipients: dict[str, Recipient] = {}
    named: tuple[tuple[RecipientKind, Any], ...] = (("to", draft.to), ("cc", draft.cc), ("bcc", draft.bcc))
    most = core.limits.max_recipients
    for kind, addresses in named:
        for address in () if addresses is None else as_list(addresses, kind):
            checked = own_name(core, check_address(address, kind))
            recipients.setdefault(checked, Recipient(checked, kind))
            # Checked in the loop: a list of a million names ends here, not after it was read (threat 7).
            if len(recipients) > most:
                raise TooLarge(f"more than {most} recipients", field=kind)
    if not recipients:
        raise Invalid("no recipient is named", field="to", hint="an agent's name, or a list of names")
    return tuple(recipients.values())


@lru_cache(maxsize=1024)
def _single_recipient(address: str) -> tuple[Recipient, ...]:
    return (Recipient(check_address(address, "to")),)


def check_priority(value: Any, field: str = "priority") -> Priority:
    """Return the priority that is given as `Priority.HIGH`, as "high" or as 3."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        found = _PRIORITIES.get(value.lower() if isinstance(value, str) else value)
        if found is not None:
            return found
    words = ", ".join(priority.name.lower() for priority in Priority)
    raise Invalid(f"{quoted(value)} is not a priority", field=field, hint=words)


def check_when(value: Any, field: str, now: datetime) -> datetime | None:
    """Return a time that is given as an aware datetime, a timedelta from now, or seconds from now."""
    if value is None:
        return None
    if isinstance(value, datetime):
        return check_time(value, field)
    if isinstance(value, bool) or not isinstance(value, (int, float, timedelta)):
        raise Invalid(f"must be a time or seconds, not {type(value).__name__}", field=field)
    try:
        return now + (value if isinstance(value, timedelta) else timedelta(seconds=value))
    except (OverflowError, ValueError):
        raise Invalid(f"{quoted(value)} is out of range", field=field) from None


def check_task(value: Any, depth: int) -> TaskNote:
    try:
        plain = to_plain(value) if isinstance(value, TaskNote) else value
        note = convert(check_object(plain, "task", depth), TaskNote)
    except (msgspec.ValidationError, TypeError) as broken:
        raise Invalid(str(broken), field="task", hint="its keys are id, state, deadline and reason") from None
    check_id(note.id, "task.id")
    task.check_state(note.state, "task.state")
    if note.deadline is not None:
        check_time(note.deadline, "task.deadline")
    return note


def check_address(address: Any, field: RecipientKind) -> str:
    """Return an address in its normal form.

    It names an agent here, a broadcast, `any:SKILLS`, or an agent at another system.
    """
    if type(address) is str and ":" in address and is_broadcast(address):
        if field == "bcc":
            raise Invalid("a broadcast cannot be hidden", field=field)
        return BROADCAST + check_scope(address.removeprefix(BROADCAST), field)
    if isinstance(address, str) and is_any(address):
        wanted = [check_label(word.strip(), field) for word in address.removeprefix(ANY).split(",")]
        return ANY + ",".join(dict.fromkeys(wanted))
    if type(address) is not str or AT in address:
        return _check_remote_address(address, field)
    name = check_agent(address, field)
    # Nobody reads mail to the postmaster, and two automatic senders must not answer each other (G11).
    if fold(name) == POSTMASTER:
        raise Invalid(f"{POSTMASTER!r} takes no mail", field=field)
    return name


def _check_remote_address(address: Any, field: RecipientKind) -> str:
    """Return the normal form of an address with a system, or of an address that is given in pieces."""
    if isinstance(address, dict) and address.get("scope") and not (address.get("agent") or address.get("system")):
        return check_address(f"{BROADCAST}{address['scope']}", field)
    text = model_names.format_address(model_names.parse_address(address, field))
    return text if AT in text else check_address(text, field)


def _check_parts(core: Core, draft: Draft) -> tuple[Part, ...]:
    limits, data = core.limits, draft.data
    sources = as_parts(draft.body)
    if data is not None:
        sources.append({"type": "data", "data": check_json(data, "data", limits.max_depth - 1)})
    if len(sources) > limits.max_parts:
        raise TooLarge(f"{len(sources)} parts, the limit is {limits.max_parts}", field="body")
    checked = [check_part(part, f"body[{i}]", limits.max_depth) for i, part in enumerate(sources)]
    for i, part in enumerate(checked):
        if part.type == "file":
            checked[i] = with_content(sources[i], part, core.file_root, limits.max_message_bytes, f"body[{i}]")
    return tuple(checked)


def as_parts(body: Any) -> list[Any]:
    """Return the parts of a body that is None, one part or a list of parts. The parts are not checked."""
    if body is None:
        return []
    if isinstance(body, (str, Part, dict)):
        return [body]
    if isinstance(body, (list, tuple)):
        return list(body)
    raise Invalid(f"must be text, a part or a list of parts, not {type(body).__name__}", field="body")


def check_texts(value: Any, field: str, longest: int) -> tuple[str, ...]:
    texts = as_list(value, field)
    if len(texts) > MOST_TAGS:
        raise TooLarge(f"{len(texts)} of them, the limit is {MOST_TAGS}", field=field)
    check = check_label if field == "tags" else check_text
    return tuple(dict.fromkeys(check(item, field, longest) for item in texts))


def _check_conversation(value: Any, field: str) -> str:
    id = check_id(value, field)
    if general_scope(id) is not None:
        raise Invalid(f"{id!a} is the catch-all conversation of a scope, which cannot be named", field=field)
    return id


# How each field of a letter is checked: (value, field name, allowed depth of JSON) -> the checked value.
CHECKS: dict[str, Callable[[Any, str, int], Any]] = {
    "subject": lambda value, field, _: check_line(value, field, LONGEST_SUBJECT),
    "kind": lambda value, field, _: check_kind(value, field),
    "priority": lambda value, field, _: check_priority(value, field),
    "scope": lambda value, field, _: check_scope(value, field),
    "thread_tag": lambda value, field, _: check_label(value, field, 200),
    "conversation_id": lambda value, field, _: _check_conversation(value, field),
    "in_reply_to": lambda value, field, _: check_id(value, field),
    "task": lambda value, _, depth: check_task(value, depth),
    "callback": check_object,
    "context": check_object,
    "attachments": lambda value, field, _: check_texts(value, field, 4096),
    "tags": lambda value, field, _: check_texts(value, field, 128),
    "metadata": check_object,
    "extra": check_object,
    "key": lambda value, field, _: check_label(value, field, 200),
}
# The fields of a letter that a caller may set; the verbs fill in the rest.
FIELDS = ("cc", "bcc", "data", "id", *CHECKS, "expires", "at")
_EMPTY_MESSAGE = Message(id="", sender="", recipients=(), created_at=datetime.min.replace(tzinfo=UTC))
_FIELD_DEFAULTS = {name: getattr(_EMPTY_MESSAGE, name) for name in CHECKS}


# Files in letters.

_HINT = "the file's bytes as base64; a path is read only by postroom.file(path) and --file PATH"


def with_content(source: Any, part: Part, root: str, largest: int, field: str) -> Part:
    """Return the checked file part `part` with its bytes, or refuse it.

    `source`, from which the part was made, decides. A `LocalFile` is read here. A `Part` without bytes came in a
    letter or from a foreign format, and stays a reference. A JSON object without bytes is refused, because any
    caller may have written it.
    """
    if part.get("bytes") is not None:
        _check_bytes(part["bytes"], f"{field}.bytes")
    elif isinstance(source, LocalFile):
        return read_file_part(part, root, largest, field)
    elif not isinstance(source, Part):
        raise Invalid("is missing: a file part in JSON brings its content", field=f"{field}.bytes", hint=_HINT)
    return part


def read_file_part(part: Part, root: str, largest: int, field: str) -> Part:
    """Return a file part with the bytes of the file that it names."""
    content = read_below(part["path"], root, largest, f"{field}.path")
    fields = part.to_json() | {"bytes": binascii.b2a_base64(content, newline=False).decode(), "size": len(content)}
    return part_from_json(fields)


def read_below(path: str, root: str, largest: int, field: str) -> bytes:
    """Return the content of a file below `root`.

    Symbolic links are not followed at the end of the path, and files with a second name (hard links) are refused:
    either could expose a file outside `root`.
    """
    base = os.path.realpath(root)
    whole = os.path.join(base, path)
    folder = os.path.realpath(os.path.dirname(whole))
    # Compared after links in the folder are resolved: a path must not leave the root (threat 6).
    if os.path.commonpath([base, folder]) != base:
        raise NotAllowed(
            f"{path!a} lies outside {base}",
            field=field,
            hint="copy it there, or set file_root to a folder above both",
        )
    try:
        # One byte more than allowed, to tell a file that is too large from one that just fits.
        content = _read_regular_file(os.path.join(folder, os.path.basename(whole)), largest + 1)
    except OSError as broken:
        why = "links are not followed" if broken.errno == errno.ELOOP else broken.strerror
        raise Invalid(f"{path!a} cannot be read: {why}", field=field) from None
    if content is None:
        hint = "no folder, no device, no file with a second name (hard link); send a copy of the file"
        raise NotAllowed(f"{path!a} is not a regular file with one name", field=field, hint=hint)
    if len(content) > largest:
        raise TooLarge(f"{path!a} is over {largest} bytes", field=field, hint="send a reference instead")
    return content


def _read_regular_file(path: str, most: int) -> bytes | None:
    """Return up to `most` bytes of a file; None if it is not a regular file or has a second name."""
    # O_NONBLOCK: opening a FIFO must not block. The checks use the open descriptor, so the path cannot be swapped.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            return None
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def _check_bytes(content: Any, field: str) -> None:
    try:
        binascii.a2b_base64(content, strict_mode=True)
    except (TypeError, ValueError, binascii.Error):
        raise Invalid("is not base64 text", field=field, hint=_HINT) from None
