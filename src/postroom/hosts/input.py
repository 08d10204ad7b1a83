"""What a host says to a hook: one JSON object on standard input.

It weighs next to nothing: a host calls a hook between any two steps, and waits for it.
"""

from __future__ import annotations

import os
from _json import make_scanner
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any


HOST = 1000  # milliseconds for one who will surely say something, and may be slow
PERHAPS = 50  # for one who may have nothing to say
_LONGEST = 16 * 2**20  # bytes: the results of tools may be long


class _Plainly:
    """How JSON is read: as it stands."""

    strict = False
    object_hook = object_pairs_hook = array_hook = None
    parse_int, parse_float, parse_constant = int, float, float


_PLAINLY: Any = _Plainly()


def hear(patience: int) -> Mapping[str, Any]:
    """What the host says; nothing where it says nothing in time, or no JSON object that can be read. All of it is
    taken: some hosts take a hook that does not listen for one that failed. Not every host hangs up, so the end is
    where the object is closed.
    """
    pieces: list[bytes] = []
    for piece in _pieces(patience):
        pieces.append(piece)
        if piece.rstrip().endswith(b"}") and (value := read_object(b"".join(pieces))):
            return value
    return {}


def read_object(raw: bytes) -> Mapping[str, Any]:
    """A JSON object; an empty one where it is none."""
    try:
        value, _ = make_scanner(_PLAINLY)(raw.decode("utf-8", "surrogateescape").lstrip(), 0)
    except (ValueError, StopIteration, RecursionError, SystemError):  # the last: its error stands in `json`
        return {}
    return value if isinstance(value, dict) else {}


def text_of(fields: Mapping[str, Any], name: str) -> str:
    """A text that was said; empty when it was not, or is none."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _pieces(patience: int) -> Iterator[bytes]:
    """What comes on standard input, as it comes; of what is too long only the beginning, and the rest unheard."""
    if os.isatty(0):
        return
    from select import POLLIN, poll  # noqa: PLC0415 - only for hooks

    ready = poll()
    ready.register(0, POLLIN)
    length = 0
    while ready.poll(patience):
        piece = os.read(0, 2**20)
        if not piece:
            return
        length += len(piece)
        if length <= _LONGEST:
            yield piece
