"""A letter that was accepted before: it is not written twice, and says the same or is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ...errors import IdTaken
from ...model.codec import decode_message, digest
from ..base import Posted

if TYPE_CHECKING:
    from ...model.message import Message


def repeat_of_letter(message: Message, body: bytes, field: str) -> Posted:
    first = decode_message(body)
    if digest(first) != digest(message):
        raise IdTaken.of_letter(field, first.id)
    return Posted(message_id=first.id, number=0, repeated=True)


def repeat_of_memory(message: Message, memory: bytes, field: str) -> Posted:
    """The first letter is deleted; only its digest is left."""
    first = msgspec.json.decode(memory)
    if first["digest"] != digest(message):
        raise IdTaken.of_letter(field, None)
    return Posted(message_id=first["id"], number=0, repeated=True)
