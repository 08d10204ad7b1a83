"""A letter as it lies in the tray, and the answer to it. Loaded when somebody must wait for the first time."""

from __future__ import annotations

import os
from typing import Literal

import msgspec
from msgspec import Struct

from ...errors import PostroomError
from ...model.codec import decode_message, encode
from ...model.delivery import Delivery
from ..base import Post, Posted


class Parcel(Struct, array_like=True, gc=False):
    """All that a carrier needs. Change its shape's number whenever a carrier needs more."""

    shape: Literal[1]
    ticket: bytes
    durable: bool  # must it be synced before it is answered?
    encoded: bytes
    deliveries: tuple[Delivery, ...]
    copies: tuple[str, ...]
    quota: int | None
    known_only: bool

    def post(self) -> Post:
        return Post(
            message=decode_message(self.encoded),
            encoded=self.encoded,
            deliveries=self.deliveries,
            copies=self.copies,
            quota=self.quota,
            known_only=self.known_only,
            admit=_come_yourself,
        )

    def answer(self, posted: Posted) -> bytes:
        return _pack(Answer(self.ticket, posted.message_id, posted.number, posted.repeated, posted.unknown))


class Answer(Struct, array_like=True, gc=False):
    """It was written. A refusal is never carried back: its writer comes and hears it."""

    ticket: bytes
    message_id: str
    number: int
    repeated: bool
    unknown: tuple[str, ...]


def _come_yourself(_post: Post) -> Post:
    raise PostroomError("a guard must be asked, and only its sender knows how")


_pack = msgspec.msgpack.Encoder().encode
_parcel = msgspec.msgpack.Decoder(Parcel).decode
_answer = msgspec.msgpack.Decoder(Answer).decode


def pack(post: Post, *, durable: bool) -> tuple[bytes, bytes]:
    """The parcel, and the ticket that its answer will bear: no two parcels have the same."""
    ticket, encoded = os.urandom(12), post.encoded or encode(post.message)
    parcel = Parcel(1, ticket, durable, encoded, post.deliveries, post.copies, post.quota, post.known_only)
    return _pack(parcel), ticket


def unpack(parcel: bytes) -> Parcel:
    return _parcel(parcel)


def unpack_answer(answer: bytes, ticket: bytes) -> tuple[Posted, ...]:
    """What became of the letter with this ticket; nothing if it was another's."""
    try:
        said = _answer(answer)
    except msgspec.DecodeError:
        return ()
    if said.ticket != ticket:
        return ()
    return (Posted(message_id=said.message_id, number=said.number, repeated=said.repeated, unknown=said.unknown),)
