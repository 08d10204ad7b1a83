"""The command that finds letters. On a terminal it shows the line that says it, with the words marked."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from ..clock import SystemClock
from ..model.search import read_query
from ..model.words import words
from ..wire.plain import plain_message
from . import views
from .answers import Answer
from .escape import ago
from .tables import hint, painted, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model.search import Term
    from .answers import Screen
    from .context import Context

_WORD = re.compile(r"[^\W_]+")
_BEFORE = 30  # characters shown before the first word that was looked for


def run_search(context: Context) -> Answer:
    query = " ".join(context.get("query"))
    terms = read_query(
        query, SystemClock().now().wall
    ).terms  # what is not understood is told before a room is opened
    whose = context.room if context.get("everyone") else context.mailbox
    found = whose.search(query, ranked=bool(context.get("ranked")), **context.given("limit"))
    data = {"letters": [plain_message(message) for message in found]}
    return Answer(context.name, data, partial(_results, terms), letters=tuple(found))


def _results(terms: Sequence[Term], screen: Screen, data: Mapping[str, Any]) -> str:
    if not screen.tables or not data["letters"]:
        return views.letters(screen, data)
    wanted = Wanted(terms)
    rows = [
        (
            screen.short(letter["id"]),
            ago(letter["created_at"], screen.now),
            letter["sender"],
            ", ".join(r["address"] for r in letter["recipients"]),
            letter["subject"],
            wanted.line(letter["text"]),
        )
        for letter in data["letters"]
    ]
    shown = table(
        screen, ("ID", "AGE", "FROM", "TO", "SUBJECT", "TEXT"), rows, mark=lambda cell: wanted.marked(screen, cell)
    )
    return shown + hint(screen, "thread ID", "shows what was said around it")


class Wanted:
    """The words that were looked for."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self._words = {word for term in terms for word in term.words}
        self._beginnings = tuple(term.words[-1] for term in terms if term.begins)

    def line(self, text: str) -> str:
        """The first line that holds one of them, else the first there is; it begins near the word."""
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        for line in lines:
            for piece in _WORD.finditer(line):
                if self._holds(piece[0]):
                    start = max(piece.start() - _BEFORE, 0)
                    return f"…{line[start:]}" if start else line
        return lines[0] if lines else ""

    def marked(self, screen: Screen, line: str) -> str:
        """A line that is safe to show, with the words in colour."""
        return _WORD.sub(lambda piece: self._mark(screen, piece[0]), line)

    def _mark(self, screen: Screen, piece: str) -> str:
        if len(words(piece)) > 1:  # a script without blanks: each character is a word
            return "".join(painted(screen, c, "yellow") if self._holds(c) else c for c in piece)
        return painted(screen, piece, "yellow") if self._holds(piece) else piece

    def _holds(self, piece: str) -> bool:
        return any(
            word in self._words or (self._beginnings and word.startswith(self._beginnings))
            for word in words(piece)
        )
