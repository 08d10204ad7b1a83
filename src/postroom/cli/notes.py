"""A word beside the answer, on standard error, for people. Programs that ask for JSON hear none: there, standard
error is empty or one error.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .parse import Call


def note(call: Call, text: str) -> None:
    """Say this, on one line, whatever it quotes."""
    if "json" in call.values:
        return
    line = text if text.isprintable() else ascii(text)[1:-1]
    sys.stderr.write(f"postroom: {line}\n")
    sys.stderr.flush()


def note_passed_by(call: Call, passed_by: Sequence[tuple[str, str]]) -> None:
    """The nearest that looks like the project's room and is not used."""
    for path, why in passed_by[:1]:
        what_to_do = "postroom init makes a room of your own, --room names another"
        note(call, f"{path} {why}, so it is not used: {what_to_do}")


def note_unknown(call: Call, name: str, others: Sequence[str]) -> None:
    """Nobody is called so: was one of these meant?"""
    close = [other for other in others if _could_be(name.lower(), other.lower())]
    if not close:
        return
    from difflib import get_close_matches  # noqa: PLC0415 - only for mistakes

    for meant in get_close_matches(name, close, 1):
        note(call, f"nobody here is called {name!r}; did you mean {meant!r}?")


def _could_be(word: str, other: str) -> bool:
    """At most two letters are wrong. Names that differ in their numbers alone are a row of agents, no mistake."""
    if _without_digits(word) == _without_digits(other):
        return False
    left, wrong = list(other), 0
    for letter in word:
        if letter in left:
            left.remove(letter)
        else:
            wrong += 1
    return max(wrong, len(left)) <= (1 if len(word) < 4 else 2)


def _without_digits(word: str) -> str:
    return "".join(letter for letter in word if not letter.isdigit())
