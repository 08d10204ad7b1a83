"""The input of a hook: one JSON object on standard input.

A host calls a hook between any two steps and waits for it, so this module imports next to nothing.
"""

from __future__ import annotations

import os
from _json import make_scanner

HOST = 1000  # milliseconds to wait for a host, which always writes but may be slow
PERHAPS = 50  # milliseconds to wait for a caller that may write nothing
_LONGEST = 16 * 2**20  # bytes: the results of tools may be long


class _Options:
    """The options of the C scanner in `_json`: no hooks, plain numbers."""

    strict = False
    object_hook = object_pairs_hook = array_hook = None
    parse_int, parse_float, parse_constant = int, float, float


_OPTIONS = _Options()


def read_input(patience: int) -> dict[str, object]:
    """Read the object that the host writes to standard input; empty if it is no JSON object or comes too late.

    All input is read: some hosts treat a hook that does not read as failed. Not every host closes the pipe, so the
    input ends where the object is complete. Input over the limit is read and dropped.
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
    """Return a JSON object; an empty one if it is none."""
    try:
        value, _ = make_scanner(_OPTIONS)(  # type: ignore[arg-type] # typeshed describes json.decoder alone
            raw.decode("utf-8", "surrogateescape").lstrip(), 0
        )
    except (ValueError, StopIteration, RecursionError, SystemError):  # SystemError: its error class is in `json`
        return {}
    return value if isinstance(value, dict) else {}


def text_of(fields: dict[str, object], name: str) -> str:
    """Return a field if it is text, otherwise an empty text."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""
