"""Letters as MAP messages and messages as letters, at a server that may keep less of them than we say.

`meta` says everything in the protocol's words and in agent-inbox's, flat. The SDK's own server drops it all; so
there a payload that is an object carries the same once more, under `_meta`, and where a message comes without
`meta` that is what counts. Readers that do not know it find one more key in an object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import Invalid
from ..model.codec import encode
from ..model.content import content_of
from ..model.hashing import blake2b
from ..model.message import MAP_NOTE
from ..wire.inbox_records import milliseconds, present
from ..wire.map_messages import PRIORITIES, answered, letter_fields, note_of, payload_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model.message import Message
    from ..wire.events import Event
    from .neighbours import Neighbour

ORIGIN = "id"  # in what is noted of a letter that came over MAP
FLEETING = 60_000  # milliseconds that an event is worth telling
BESIDE = "_meta"  # in a payload
_PLAIN = ("body", "priority", "expires", "conversation_id", "thread_tag", "subject", "metadata", "extra")


class Incoming(Struct, frozen=True, kw_only=True):
    """A message that came, in our words."""

    id: str  # the server's
    key: str  # the same whenever it comes again
    speaker: str  # who the server says it is from: an agent's id, or a session's
    to: Any
    meta: dict[str, Any]
    fields: dict[str, Any]  # of the letter
    answers: str | None  # a letter's id, if its sender knows that one
    at: int  # milliseconds

    @property
    def origin(self) -> str:
        """What its sender calls it."""
        named = self.meta.get("messageId")
        return named if isinstance(named, str) and named else self.id

    @property
    def says_from(self) -> Any:
        """Who it says it is from, where the server names no agent."""
        return self.meta.get("senderId")

    @property
    def target(self) -> str | None:
        """Whom agent-inbox would hand it to."""
        named = self.meta.get("targetAgent")
        return named if isinstance(named, str) else None


def outgoing(
    message: Message,
    *,
    system: str,
    to: Neighbour,
    expires_in: float | None,
    answers: Message | None,
    beside: bool,
) -> dict[str, Any]:
    """The parameters of `map/send`. `answers`: the letter it answers; `beside`: the server keeps no `meta`."""
    note = note_of(message)
    meta = _unless_said(message) | present(
        priority=message.priority.name.lower(),
        ttlMs=None if expires_in is None else max(int(expires_in * 1000), 1),
        mail=_mail(message),
        messageId=message.id,
        senderId=message.sender,
        sourceSystem=system,
        targetAgent=to.title,
        subject=message.subject or None,
        threadTag=message.thread_tag or None,
        inReplyTo=message.in_reply_to if answers is None else origin_of(answers) or answers.id,
    )
    payload = content_of(message.parts) if note is None else payload_of(message, note.shape)
    if beside and isinstance(payload, dict):
        payload = payload | {BESIDE: meta}
    return {"to": {"agent": to.id}, "payload": payload, "meta": meta}


def correlation_of(meta: Mapping[str, Any]) -> str | None:
    """By what its sender knows the answer to it, or what that answers."""
    said = meta.get("correlationId")
    return said if isinstance(said, str) and said else None


def _unless_said(message: Message) -> dict[str, Any]:
    """All of its metadata, and what we say where that says nothing. Its sender goes by what it said itself."""
    said = {name: value for name, value in message.metadata.items() if value is not None}
    ours = {"correlationId": message.thread, "timestamp": milliseconds(message.created_at)}
    importance = said.get("importance")
    if not isinstance(importance, str) or importance not in PRIORITIES:
        said["importance"] = message.priority.name.lower()
    return message.metadata | ours | said


def _mail(message: Message) -> dict[str, Any] | None:
    if message.conversation_id is None:
        return None
    said = message.metadata.get("mail")
    return (said if isinstance(said, dict) else {}) | {"conversationId": message.conversation_id}


def told_of(event: Event) -> dict[str, Any]:
    """Payload and meta of what somebody emitted. MAP's agents emit nothing but messages; this one soon expires."""
    meta = {"messageId": event.id, "delivery": "fire-and-forget", "ttlMs": FLEETING}
    return {"payload": {"type": event.type, "source": event.sender, **event.data}, "meta": meta}


def origin_of(message: Message) -> str | None:
    """The id that a letter had where it came from: its sender knows it by that one. Anybody may write anything
    into `extra`.
    """
    note = message.extra.get(MAP_NOTE)
    origin = note.get(ORIGIN) if isinstance(note, dict) else None
    return origin if isinstance(origin, str) else None


def incoming(message: Mapping[str, Any]) -> Incoming | None:
    """None: that is no message."""
    payload, meta = _parted(message)
    to = message.get("to")
    if to is None and payload is None:
        return None
    said = {"to": to, "payload": payload} | ({"meta": meta} if meta else {})
    try:
        fields = letter_fields(said)
    except Invalid:  # a word of its meta means nothing here: it is carried, not followed
        fields = letter_fields({"to": to, "payload": payload}) | {"metadata": meta}
    at = message.get("timestamp")
    return Incoming(
        id=str(message.get("id") or ""),
        key=_key(message, meta),
        speaker=str(message.get("from") or ""),
        to=to,
        meta=meta,
        fields={name: value for name, value in fields.items() if name in _PLAIN},
        answers=answered(said),
        at=int(at) if isinstance(at, int | float) and 0 < at < 1e15 else 0,
    )


def _parted(message: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The payload and its meta, wherever that came."""
    payload, meta = message.get("payload"), message.get("meta")
    beside = payload.get(BESIDE) if isinstance(payload, dict) else None
    if isinstance(payload, dict) and isinstance(beside, dict):
        payload = {name: value for name, value in payload.items() if name != BESIDE}
    if not isinstance(meta, dict):
        meta = beside if isinstance(beside, dict) else {}
    return payload, meta


def _key(message: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    """By the sender's own id, which is the same when it sends again; else the server's; else by all it says."""
    for id in (meta.get("messageId"), message.get("id")):
        if isinstance(id, str) and id:
            return id
    said = {name: message.get(name) for name in ("from", "to", "payload", "timestamp")}
    return blake2b(encode(said), digest_size=16).hexdigest()
