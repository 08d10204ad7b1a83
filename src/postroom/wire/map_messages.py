"""A MAP message as a letter, and any letter as one: `from`, `to`, `payload` and `meta` as they were said.

| in `meta` | of the letter |
|---|---|
| priority, else agent-inbox's importance | priority |
| ttlMs | expires: that long from now |
| mail.conversationId, else conversationId | conversation_id: so it is a turn of that conversation |
| threadTag, else correlationId, where it can be a label | thread_tag |
| subject | subject |
| scope | scope |
| inReplyTo, mail.inReplyTo, or correlationId of a result | in_reply_to, where its sender knows that letter |

All of `meta` is the letter's metadata besides, so nothing in it is lost, and readers over other wires see it. What
a letter cannot tell (how `to` was written, whether the payload was bare) stands in its `extra`, under `map`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, ValidationError

from ..errors import Invalid, PostroomError
from ..model.codec import convert, encode, to_plain
from ..model.content import content_of, is_typed, payload_to_parts
from ..model.hashing import blake2b
from ..model.message import MAP_NOTE
from ..model.names import check_id, check_scope
from ..model.talk import letter_of_turn
from ..model.values import check_label, check_line
from .inbox_records import milliseconds
from .mail_records import map_message

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model.message import Message

PRIORITIES = ("low", "normal", "high", "urgent")
LONGEST_TTL = 10 * 365 * 24 * 3600 * 1000  # milliseconds
Shape = Literal["content", "bare", "none"]


class Note(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a letter does not tell of the message it was."""

    to: Any = None  # as it was written; None: `{agent}` and nothing more, as most are
    shape: Shape = "content"  # the payload: an object with a type, bare, or not there
    has_meta: bool = False


def letter_fields(said: dict[str, Any]) -> dict[str, Any]:
    """The fields of the letter, but for whom it is, and its answer to another: that has to be looked up."""
    meta = _meta(said)
    has_payload = "payload" in said
    payload, to = said.get("payload"), said.get("to")
    shape: Shape = "none" if not has_payload else "content" if is_typed(payload) else "bare"
    note = Note(to=None if _is_plain(to) else to, shape=shape, has_meta="meta" in said)
    fields: dict[str, Any] = {
        "body": payload_to_parts(payload) if has_payload else [],
        "extra": {MAP_NOTE: to_plain(note)},
    }
    return fields | _of_meta(meta) | ({"metadata": meta} if meta else {})


def once_key(id: str, to: Any) -> str:
    """The idempotency key of a message that its sender knows by an id of its own, and of those it is for: whoever
    did not hear that it was taken sends it again.
    """
    return f"map-{blake2b(encode([id, to]), digest_size=16).hexdigest()}"


def answered(said: dict[str, Any]) -> str | None:
    """The id of the letter that this one may be an answer to; whoever sends it need not know that letter."""
    meta = _meta(said)
    mail = meta.get("mail")
    given = meta.get("inReplyTo") or (mail.get("inReplyTo") if isinstance(mail, dict) else None)
    if given is None and meta.get("isResult") is True:
        given = meta.get("correlationId")
    return _sound(lambda: check_id(letter_of_turn(given), "in_reply_to")) if isinstance(given, str) else None


def map_letter(message: Message) -> dict[str, Any]:
    """The `message` of a `map/message`."""
    note = note_of(message)
    if note is None:
        return map_message(message)
    told: dict[str, Any] = {
        "id": message.id,
        "from": message.sender,
        "to": {"agent": message.recipients[0].address} if note.to is None else note.to,
        "timestamp": milliseconds(message.created_at),
    }
    if note.shape != "none":
        told["payload"] = payload_of(message, note.shape)
    if note.has_meta:
        told["meta"] = message.metadata
    return told


def payload_of(message: Message, shape: Shape) -> Any:
    """Exactly as it was said."""
    content = content_of(message.parts)
    if shape == "content":
        return content
    return content.get("text" if content.get("type") == "text" else "data")


def note_of(message: Message) -> Note | None:
    """None: a letter that came over no MAP session. Anybody may write anything into `extra`."""
    if MAP_NOTE not in message.extra:
        return None
    try:
        return convert(message.extra[MAP_NOTE], Note)
    except ValidationError:
        return None


def _is_plain(to: Any) -> bool:
    """Does it name one mailbox, as the letter does?"""
    name = to.get("agent") if isinstance(to, dict) and len(to) == 1 else None
    return isinstance(name, str) and ":" not in name and "@" not in name


def _meta(said: dict[str, Any]) -> dict[str, Any]:
    meta = said.get("meta")
    return meta if isinstance(meta, dict) else {}


def _of_meta(meta: dict[str, Any]) -> dict[str, Any]:
    """What of it is a field of a letter. A word that decides something is checked; a label that cannot be one of
    ours is only carried.
    """
    if not meta:
        return {}
    mail = meta.get("mail")
    if mail is not None and not isinstance(mail, dict):
        raise Invalid("must be an object", field="meta.mail")
    conversation = (mail or {}).get("conversationId") or meta.get("conversationId")
    fields = {
        "priority": _priority(meta),
        "expires": _ttl(meta),
        "conversation_id": None if conversation is None else check_id(conversation, "meta.mail.conversationId"),
        "thread_tag": _first(meta, ("threadTag", "correlationId"), lambda v: check_label(v, "thread_tag", 200)),
        "subject": _first(meta, ("subject",), lambda value: check_line(value, "subject", 1000)),
        "scope": _first(meta, ("scope",), lambda value: check_scope(value, "scope")),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _priority(meta: dict[str, Any]) -> str | None:
    for word in ("priority", "importance"):
        given = meta.get(word)
        if given is None:
            continue
        if given not in PRIORITIES:
            raise Invalid(
                f"{str(given)[:80]!a} is not a priority", field=f"meta.{word}", hint=", ".join(PRIORITIES)
            )
        return str(given)
    return None


def _ttl(meta: dict[str, Any]) -> float | None:
    given = meta.get("ttlMs")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given <= LONGEST_TTL:
        raise Invalid("must be milliseconds above 0", field="meta.ttlMs")
    return given / 1000


def _first(meta: dict[str, Any], words: tuple[str, ...], check: Callable[[Any], str]) -> str | None:
    for word in words:
        if meta.get(word) is not None:
            return _sound(lambda: check(meta[word]))  # noqa: B023 - called at once
    return None


def _sound(check: Callable[[], str]) -> str | None:
    try:
        return check()
    except PostroomError:
        return None


def request(id: Any, method: str, /, **params: Any) -> dict[str, Any]:
    """A call, as a client writes it."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
