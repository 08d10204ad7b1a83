"""How far a long command is: a bar on standard error, on a terminal only. Nothing of it stays."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Self

PACE = 0.1  # seconds between two looks
_BAR = 24


def _columns() -> int:
    with suppress(OSError):
        return os.get_terminal_size(sys.stderr.fileno()).columns
    return 80


class Progress:
    """A bar where the whole is known, else a count. As a context manager it wipes itself away."""

    def __init__(self, what: str, *, whole: int | None = None, quiet: bool = False) -> None:
        self._what = what
        self._whole = whole
        self._shown = sys.stderr.isatty() and not quiet
        self._next = 0.0

    def tell(self, done: int, whole: int | None = None) -> None:
        """So much is done, and of how much, if that is known only now."""
        self._whole = whole or self._whole
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PACE
        self._write(f"\r{self._what} {self._bar(done)}\033[K")

    def _bar(self, done: int) -> str:
        if not self._whole:
            return f"{done:,}"
        share = min(done / self._whole, 1.0)
        bar = min(_BAR, _columns() - len(self._what) - len(" [] 100%") - 1)
        if bar < 4:
            return f"{share:.0%}"
        filled = int(share * bar)
        return f"[{'#' * filled}{'.' * (bar - filled)}] {share:.0%}"

    def _write(self, text: str) -> None:
        with suppress(OSError):  # nobody looks any more
            sys.stderr.write(text)
            sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def wipe(self) -> None:
        """Nothing of it is left on the line, where an answer is to be written."""
        if self._shown and self._next:
            self._write("\r\033[K")
            self._next = 0.0

    def __exit__(self, *how: object) -> None:
        self.wipe()
