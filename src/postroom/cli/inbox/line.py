"""A text that is being written: letters come in, and go, at one place. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..escape import width

if TYPE_CHECKING:
    from .keys import Key


class Line(Struct, frozen=True):
    """A text, and the place in it."""

    text: str = ""
    at: int = 0


def line_of(text: str) -> Line:
    return Line(text, len(text))


def typed(line: Line, key: Key) -> Line:
    """The line after this key."""
    before, after = line.text[: line.at], line.text[line.at :]
    if key.text:
        return Line(before + key.text + after, line.at + len(key.text))
    back, on, word = _back(before), _on(after), _word(before)
    after_key = {
        "backspace": Line(before[:back] + after, back),
        "delete": Line(before + after[on:], line.at),
        "ctrl-u": Line(after, 0),
        "ctrl-w": Line(before[:word] + after, word),
        "left": Line(line.text, back),
        "right": Line(line.text, line.at + on),
        "home": Line(line.text, 0),
        "end": line_of(line.text),
    }
    return after_key.get(key.name, line)


def _back(before: str) -> int:
    """Where the last letter begins, with all that is put onto it."""
    place = max(len(before) - 1, 0)
    while place > 0 and before[place] != "\n" and width(before[place]) == 0:
        place -= 1
    return place


def _word(before: str) -> int:
    """Where the last word begins."""
    words = before.rstrip()
    return len(words) - len(words.split()[-1]) if words else 0


def _on(after: str) -> int:
    """Where the first letter ends, with all that is put onto it."""
    place = min(1, len(after))
    while place < len(after) and after[place] != "\n" and width(after[place]) == 0:
        place += 1
    return place
