"""What a host says to a hook: one JSON object on standard input.

It weighs next to nothing: a host calls a hook between any two steps, and waits for it.
"""

from __future__ import annotations

import os
from _json import make_scanner

HOST = 1000  # milliseconds for one who will surely say something, and may be slow
PERHAPS = 50  # for one who may have nothing to say
_LONGEST = 16 * 2**20  # bytes: the results of tools may be long


class _Plainly:
    """How JSON is read: as it stands."""

    strict = False
    object_hook = object_pairs_hook = array_hook = None
    parse_int, parse_float, parse_constant = int, float, float


_PLAINLY = _Plainly()


def hear(patience: int) -> dict[str, object]:
    """Read what the host writes to standard input; nothing where it is no JSON object, or does not come in time.

    All of it is read: some hosts take a hook that does not listen for one that failed. Not every host closes its
    end, so the end is where the object is closed. Of an input that is too long only the beginning is kept.
    """
    if os.isatty(0):
        return {}
    from select import POLLIN, poll  # noqa: PLC0415 - only for hooks

    ready = poll()
    ready.register(0, POLLIN)
    received = b""
    while ready.poll(patience):
        piece = os.read(0, 2**20)
        if not piece:
            break
        if len(received) + len(piece) <= _LONGEST:
            received += piece
            if piece.rstrip().endswith(b"}") and (value := read_object(received)):
                return value
    return {}


def read_object(raw: bytes) -> dict[str, object]:
    """A JSON object; an empty one where it is none."""
    try:
        value, _ = make_scanner(_PLAINLY)(  # type: ignore[arg-type] # typeshed describes json.decoder alone
            raw.decode("utf-8", "surrogateescape").lstrip(), 0
        )
    except (ValueError, StopIteration, RecursionError, SystemError):  # the last: its error stands in `json`
        return {}
    return value if isinstance(value, dict) else {}


def text_of(fields: dict[str, object], name: str) -> str:
    """A text that was said; empty when it was not, or is none."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""
