"""What lies in the tray: letters and acknowledgements as a carrier needs them, and the answer to them.

Only what may be said twice: if the carrier is killed, the owner says it again. Loaded when somebody must wait for
the first time.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from ...errors import PostroomError
from ...model.codec import decode_message, encode
from ...model.delivery import Delivery
from ..base import Move, Post, Posted, must_last

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..base import Write

_MOST = 4  # writes in one parcel; more are quicker in person
_REPEATABLE = "ack"


class Enclosed(Struct, array_like=True, gc=False):
    """A letter to be posted."""

    encoded: bytes
    deliveries: tuple[Delivery, ...]
    copies: tuple[str, ...]
    quota: int | None
    outbox: int | None
    known_only: bool

    def post(self) -> Post:
        return Post(
            message=decode_message(self.encoded),
            encoded=self.encoded,
            deliveries=self.deliveries,
            copies=self.copies,
            quota=self.quota,
            outbox=self.outbox,
            known_only=self.known_only,
            admit=_come_yourself,
        )


class Parcel(Struct, array_like=True, gc=False):
    """All that a carrier needs. Change its shape's number whenever a carrier needs more."""

    shape: Literal[2]
    ticket: bytes
    durable: bool  # must it be synced before it is answered?
    letters: tuple[Enclosed, ...]
    moves: tuple[Move, ...]

    def writes(self) -> list[Write]:
        return [*self.moves, *(letter.post() for letter in self.letters)]

    def answer(self, posted: Sequence[Posted]) -> bytes:
        return _pack(Answer(self.ticket, tuple([_said(one) for one in posted])))


Said = tuple[str, int, bool, tuple[str, ...]]


class Answer(Struct, array_like=True, gc=False):
    """It was written. A refusal is never carried back: the owner comes and hears it."""

    ticket: bytes
    posted: tuple[Said, ...]


def _said(posted: Posted) -> Said:
    return posted.message_id, posted.number, posted.repeated, posted.unknown


def _come_yourself(_post: Post) -> Post:
    raise PostroomError("a guard must be asked, and only its sender knows how")


_pack = msgspec.msgpack.Encoder().encode
_parcel = msgspec.msgpack.Decoder(Parcel).decode
_answer = msgspec.msgpack.Decoder(Answer).decode


def pack(writes: Sequence[Write], *, durable: bool) -> tuple[bytes, bytes] | None:
    """The parcel, and the ticket that its answer will bear: no two parcels have the same."""
    letters = tuple([_enclosed(write) for write in writes if isinstance(write, Post) and not write.routes])
    moves = tuple([write for write in writes if isinstance(write, Move) and write.action == _REPEATABLE])
    if len(letters) + len(moves) != len(writes) or len(writes) > _MOST:
        return None
    ticket = os.urandom(12)
    return _pack(Parcel(2, ticket, durable and any(map(must_last, writes)), letters, moves)), ticket


def _enclosed(post: Post) -> Enclosed:
    encoded = post.encoded or encode(post.message)
    return Enclosed(encoded, post.deliveries, post.copies, post.quota, post.outbox, post.known_only)


def unpack(parcel: bytes) -> Parcel:
    return _parcel(parcel)


def unpack_answer(answer: bytes, ticket: bytes) -> tuple[Posted, ...] | None:
    """What became of what bears this ticket; None if the answer is to something else."""
    try:
        said = _answer(answer)
    except msgspec.DecodeError:
        return None
    if said.ticket != ticket:
        return None
    return tuple([Posted(message_id=id, number=n, repeated=r, unknown=u) for id, n, r, u in said.posted])
