"""Letters of one mailbox that are read at once: few statements mark them, and one writes what is told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...model.codec import encode
from .rows import STATE_NUMBER, micros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..base import Move

SOME = 50  # letters that one statement marks
# Values, and not a question for them: so SQLite needs no list of its own of what it is going to change.
_READ_SOME = f"""
UPDATE deliveries SET seen = 1, revision = ?, read_at = ?
WHERE mailbox = ? AND revision = ? AND number IN ({", ".join("?" * SOME)})"""
_ALL_MOVED = """
INSERT INTO changes (number, what, letter, mailbox, state)
SELECT ?1 + j.key, 'moved', j.value, ?2, ?3 FROM json_each(?4) j"""


def are_alike(moves: Sequence[Move]) -> bool:
    """Are these letters of one mailbox, was as much done to each of them, and are they read at one time?"""
    was, now = moves[0].before, moves[0].after
    alike, at = (was.mailbox, was.revision, now.revision, now.state), now.read_at
    for move in moves:
        before, after = move.before, move.after
        if (before.mailbox, before.revision, after.revision, after.state) != alike or after.read_at is not at:
            return False
    return at is not None


def mark_as_read(execute: Callable[..., Any], moves: Sequence[Move], mailbox: int) -> list[int]:
    """Their numbers. How many were still as they were before, SQLite's count of changes tells."""
    was, now = moves[0].before, moves[0].after
    values = (now.revision, now.read_at and micros(now.read_at), mailbox, was.revision)
    numbers = [move.before.number for move in moves]
    for start in range(0, len(numbers), SOME):
        some = numbers[start : start + SOME]
        some += some[-1:] * (SOME - len(some))
        execute(_READ_SOME, (*values, *some))
    return numbers


def note_changes(
    execute: Callable[..., Any], moves: Sequence[Move], numbers: Sequence[int], mailbox: int, first: int
) -> None:
    """`first`: the number of the first change."""
    execute(_ALL_MOVED, (first, mailbox, STATE_NUMBER[moves[0].after.state], encode(numbers)))
