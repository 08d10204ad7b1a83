"""One thing that waits, whole: its letter, and what was said before it in the same thread."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...errors import UnknownMessage
from ...model.escalation import ESCALATION
from ...model.parts import Part
from ...wire.plain import plain_message
from ..escape import BAR, barred, width, wrapped
from ..views import thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...mailbox import Mailbox
    from ...model.message import Message
    from ..answers import Screen
    from ..waiting import Entry

MOST_BEFORE = 20  # letters
MOST_LETTERS = 200_000  # of the alphabet, of one thing that is shown
MOST_FACT = 3  # lines; a letter may have ten thousand recipients
FURTHER_IN = "    "


def read(box: Mailbox, entry: Entry) -> tuple[Message, list[Message]]:
    """Its letter, and those before it in its thread, the newest first. Stamps nothing: it is not shown yet."""
    letters = box.thread(entry["thread"])
    earlier = list(takewhile(lambda message: message.id != entry["letter"], letters))
    if len(earlier) == len(letters):
        raise UnknownMessage(f"the letter {entry['letter']} is gone", field="letter")
    return letters[len(earlier)], earlier[::-1][:MOST_BEFORE]


def lines_of(screen: Screen, letter: Message, earlier: Sequence[Message]) -> list[str]:
    """As lines of the screen's width."""
    text = thread(screen, {"letters": [_plain(letter)]})
    if earlier:
        text += "\n".join(["", "Before it:", "", thread(screen, {"letters": list(map(_plain, earlier))})])
    shown, left = text[:MOST_LETTERS].split("\n"), len(text) - MOST_LETTERS
    if left > 0:
        shown += ["", f"… {left} characters more; postroom read {letter.id} shows them all"]
    return [piece for line in shown for piece in _folded(line, screen.width)]


def _plain(letter: Message) -> dict[str, Any]:
    """As a person reads it: of what an escalation encloses for programs, the reason."""
    return plain_message(replace(letter, parts=tuple(map(_in_words, letter.parts))))


def _in_words(part: Part) -> Part:
    about = part.get("data") if part.get("schema") == ESCALATION else None
    return (
        Part("text", text=f"Reason: {about['reason']}") if isinstance(about, dict) and "reason" in about else part
    )


def _folded(line: str, columns: int) -> list[str]:
    """To this width. Behind a bar, the bar goes on. What the house says of a letter is kept short, and goes on
    further in: a long subject could else begin a line as the house does.
    """
    if line.startswith(BAR):
        return barred(line, columns)
    if width(line) <= columns:
        return [line]
    first, *more = wrapped(line, columns - len(FURTHER_IN))
    return [first, *(f"{FURTHER_IN}{piece}" for piece in more)][:MOST_FACT]
