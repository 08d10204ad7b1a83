"""The keys of people and what they sign: letters, and requests over a wire.

A proof belongs to one letter of one room: the signature covers the identity of the room and every field that the
sender chose, so that it fits no other letter, recipient or room. What changes on the way is left out: hops, trace
and the notes of formats, except that of a turn in a conversation. So are recipients of a bcc, whom the others do
not see. The library for signatures is loaded by the first signature that is made or checked.
"""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid
from .codec import blake2b, convert, encode_sorted, with_defaults
from .message import FIRST_HOPS, TURN_NOTE, same_name
from .values import Brief

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .message import Message
    from .record import Record

PUBLIC = "ed25519:"  # begins the text of a public key
KEY_RULE = f"{PUBLIC} and 43 letters, digits, - and _, as postroom people --json prints it"
FRESH = 60.0  # seconds for which the proof of a request is good


class PersonKey(Brief, frozen=True, kw_only=True):
    """A public key by which a room knows a person's letters and requests. Removed ones stay in the list."""

    id: str
    person: str  # the mailbox, or agent@system for a person at another system
    key: str
    added_at: datetime
    added_by: str  # how it came here: first use, signed, key lost
    room: str = ""  # of a person at another system: the room in which they write
    removed_at: datetime | None = None
    formerly: tuple[str, ...] = ()  # former names of the person, whose letters it signed
    further_people: tuple[str, ...] = ()  # in the settings of the person who was first here, when this key signed

    @property
    def is_live(self) -> bool:
        return self.removed_at is None


class RequestProof(Struct, frozen=True, kw_only=True):
    """The signature of one request over a wire."""

    key: str  # the id of the key
    at: datetime
    nonce: str
    signature: str


def key_id(key: str) -> str:
    """Return the id of a public key, which is short enough to compare by eye."""
    return blake2b(read_key(key), digest_size=8).hexdigest()


def read_key(key: str) -> bytes:
    """Return the bytes of a public key, or raise Invalid."""
    raw = from_base64(key.removeprefix(PUBLIC)) if isinstance(key, str) and key.startswith(PUBLIC) else b""
    if len(raw) != 32:
        raise Invalid("is not a public key", field="key", hint=KEY_RULE)
    return raw


def to_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_base64(text: str) -> bytes:
    """Return the bytes in a text; none if it holds something else."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
    except ValueError:
        return b""


def signed_letter(message: Message, room: str) -> bytes:
    """Return the bytes that a proof of this letter signs."""
    bare = replace(
        message,
        recipients=tuple(one for one in message.recipients if one.kind != "bcc"),
        hops=FIRST_HOPS,
        trace=(),
        extra={name: value for name, value in message.extra.items() if name == TURN_NOTE},
        proven=False,
        proof=None,
    )
    return encode_sorted({"what": "letter", "room": room, "letter": with_defaults(bare)})


def with_proof(message: Message, room: str, keys: Sequence[Record], person: str = "") -> Message:
    """Remove the proof of a letter unless a key of its sender signed it.

    `person` is what its sender is called here, where that is another name.
    """
    proof = message.proof
    if proof is None:
        return message
    held = next((one.value for one in keys if one.key == proof.key), None)
    if held is not None and proof.over == "letter":
        key, content = convert(held, PersonKey), signed_letter(message, room)
        is_good = key.removed_at is None or message.created_at < key.removed_at
        names = (key.person, *key.formerly)
        is_theirs = any(same_name(name, person or message.sender) for name in names)
        if is_good and is_theirs and is_signed(key.key, proof.signature, content):
            return message
    return replace(message, proof=None)


def signed_request(method: str, params: Mapping[str, Any], room: str, at: datetime, nonce: str) -> bytes:
    """Return the bytes that the proof of a request signs: the verb and its parameters, without the proof."""
    about = {"what": "request", "room": room, "at": at, "nonce": nonce, "method": method, "params": params}
    return encode_sorted(about)


def is_signed(key: str, signature: str, content: bytes) -> bool:
    """Return whether the holder of this public key signed the content."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - loaded for people alone
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(read_key(key)).verify(from_base64(signature), content)
    except InvalidSignature:
        return False
    return True
