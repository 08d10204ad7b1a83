"""Text that others wrote, made harmless to show. Everything a peer said goes through here before it is printed.

Control and bidi characters, line separators and what cannot be seen are written out. A body keeps its lines, each
behind a bar, so that no letter can look like the words of the house.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from unicodedata import category, east_asian_width

from ..service.present import harmless, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

BAR = "│ "
_NO_WIDTH = {"Mn", "Me", "Cf"}
_MOST = 8  # characters to a column: what takes no room of its own could else go on for ever


def one_line(text: str) -> str:
    """On one line, whatever it holds."""
    return harmless(visible(_whole(text).replace("\t", " ").replace("\n", "\\n")))


def body_lines(text: str) -> list[str]:
    """Every line of a body, behind its bar."""
    return [f"{BAR}{visible(line.expandtabs(4))}" for line in _whole(text).split("\n")]


def cell(text: str) -> str:
    """Inside a Markdown table."""
    return one_line(text).replace("\\", "\\\\").replace("|", "\\|")


def width(text: str) -> int:
    """Columns on a terminal, as nearly as one can tell."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def cut(text: str, columns: int) -> str:
    """At most so many columns; what is cut off is shown by a dot."""
    if width(text) <= columns:
        return text
    kept, used = [], 1
    for character in text:
        used += _columns(character)
        if used > columns:
            break
        kept.append(character)
    return "".join(kept) + "…"


def wrapped(text: str, columns: int) -> list[str]:
    """On as many lines as it takes, broken at blanks; a word that is too long is broken anywhere."""
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if len(longer) <= _MOST * columns and width(longer) <= columns:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = broken(word, columns)
        lines += full
    return [*lines, line]


def barred(line: str, columns: int) -> list[str]:
    """A line of a body on as many as it takes; the bar goes on."""
    return [f"{BAR}{piece}" for piece in wrapped(line.removeprefix(BAR), columns - len(BAR))]


def begun(lines: Sequence[str], columns: int, most: int) -> list[str]:
    """The first of a body's lines, folded, on so many at most; a dot where it goes on."""
    pieces = [piece for line in lines for piece in barred(line, columns)]
    if len(pieces) <= most:
        return pieces
    return [*pieces[: most - 1], cut(f"{pieces[most - 1]} …", columns)]


def broken(text: str, columns: int) -> list[str]:
    """On lines of this width, broken anywhere, each with one character at least. Looks once at each of them."""
    lines, start, used = [], 0, 0
    for place, character in enumerate(text):
        wide = _columns(character)
        if place > start and (used + wide > columns or place - start >= _MOST * columns):
            lines.append(text[start:place])
            start, used = place, 0
        used += wide
    return [*lines, text[start:]]


def ago(time: datetime | str | None, now: datetime) -> str:
    """How long ago, or in how long, in few words."""
    if time is None:
        return ""
    when = datetime.fromisoformat(time) if isinstance(time, str) else time
    seconds = (now - when).total_seconds()
    if seconds >= 0 and round(seconds) < 5:
        return "just now"
    span = _span(abs(seconds))
    if not span:
        return when.date().isoformat()
    return f"{span} ago" if seconds >= 0 else f"in {span}"


def due(time: str | None, now: datetime) -> str:
    """In how long something is due, or for how long it is overdue already."""
    seconds = (now - datetime.fromisoformat(time)).total_seconds() if time else -1.0
    return f"{_span(seconds) or 'long'} overdue" if seconds >= 0 else ago(time, now)


def _span(seconds: float) -> str:
    for unit, size, most in (("s", 1, 90), ("min", 60, 90), ("h", 3600, 36), ("d", 86400, 1_000_000)):
        if seconds < size * most:
            return f"{round(seconds / size)} {unit}"
    return ""


def moment(time: str) -> str:
    """A time as people write it, to the second."""
    return datetime.fromisoformat(time).strftime("%Y-%m-%d %H:%M:%S %Z")


def _columns(character: str) -> int:
    if category(character) in _NO_WIDTH:
        return 0
    return 2 if east_asian_width(character) in {"W", "F"} else 1


def _whole(text: str) -> str:
    """Without half characters."""
    return text.encode("utf-8", "backslashreplace").decode()
