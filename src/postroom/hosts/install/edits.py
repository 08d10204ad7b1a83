"""Edits of a text: what is cut out of it, what is put in, and how that is undone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Edit(NamedTuple):
    """From here to there, this stands instead."""

    start: int
    end: int
    text: str = ""


def apply(text: str, edits: Sequence[Edit]) -> str:
    """All of them, each by its place in the text as it was. None reaches into another."""
    pieces, at = [], 0
    for start, end, new in sorted(edits):
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def undoing(edits: Sequence[Edit]) -> list[Edit]:
    """What cuts out again, of the text that came about, all that these put in."""
    moved, found = 0, []
    for start, end, new in sorted(edits):
        found.append(Edit(start + moved, start + moved + len(new)))
        moved += len(new) - (end - start)
    return found


def lines_of(text: str) -> list[str]:
    """Its lines, each with its end. Only a newline ends one: other characters do for Python, not for a host."""
    *whole, rest = text.split("\n")
    return [f"{line}\n" for line in whole] + ([rest] if rest else [])
