"""Statements that take long let signals in: without this, Ctrl-C waits until SQLite is done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

STEPS = 100_000  # of SQLite's machine between two looks: some milliseconds


@contextmanager
def interruptible(database: apsw.Connection) -> Iterator[None]:
    """Python looks for signals whenever it is called; what they raise ends the statement, and leaves here."""
    database.set_progress_handler(lambda: False, STEPS)
    try:
        yield
    finally:
        database.set_progress_handler(None, 0)
