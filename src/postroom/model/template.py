"""Letters written beforehand, with places for values. A tiny format of our own, because templates are data:

    {name}     a place: a letter or _, then letters, digits and _
    {{ and }}  a brace

Nothing else stands in braces: no attributes, no indexes, no formats. What is put into a place is never looked at
again, so a value cannot smuggle in another place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import Invalid
from .message import Priority

if TYPE_CHECKING:
    from collections.abc import Mapping

PLACE_RULE = "{name}, with letters, digits and _; a brace itself is written {{ or }}"
_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]{0,63})\}|[{}]")


class Template(Struct, frozen=True, kw_only=True):
    """A letter to be filled in. Subject, body and tags may hold places."""

    name: str
    body: str = ""
    subject: str = ""
    kind: str = "message"
    priority: Priority = Priority.NORMAL
    tags: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """The names of all its places, in the order of appearance."""
        texts = (self.subject, self.body, *self.tags)
        return tuple(dict.fromkeys(name for text in texts for name in places_in(text, "body")))


def places_in(text: str, field: str) -> list[str]:
    """The names of the places in a text; a brace that is neither place nor brace is refused."""
    found = []
    for piece in _PIECE.finditer(text):
        if piece[0] in {"{", "}"}:
            around = text[piece.start() : piece.start() + 20]
            raise Invalid(f"holds a single brace at {around!a}", field=field, hint=PLACE_RULE)
        if piece[1]:
            found.append(piece[1])
    return found


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with a value in each place."""
    return _PIECE.sub(lambda piece: values[piece[1]] if piece[1] else piece[0][0], text)
