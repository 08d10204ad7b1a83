"""Staying awake for a caller who comes back at once.

A thread that sleeps until the next line comes wakes late, and to cold caches: a seventh of a small call. So who
said its last line within a moment of an answer is waited for as long, awake; who did not costs nothing. Other
threads, and whoever else wants this processor, get their turn meanwhile.
"""

from __future__ import annotations

import os
import select
from time import perf_counter

MOMENT = 0.0002  # seconds


class Lingering:
    """For one caller, by the descriptor of its connection."""

    def __init__(self, descriptor: int) -> None:
        self._ear = select.poll()
        self._ear.register(descriptor, select.POLLIN)
        self._answered = 0.0
        self._is_quick = False  # did it come back at once?

    def hear(self) -> None:
        """It has said something."""
        self._is_quick = perf_counter() < self._answered + MOMENT

    def linger(self) -> None:
        """It was answered: if it is quick, until it says more, for a moment. What it says is left to the loop."""
        self._answered = perf_counter()
        if not self._is_quick:
            return
        end, has_come = self._answered + MOMENT, self._ear.poll
        while not has_come(0) and perf_counter() < end:
            os.sched_yield()
