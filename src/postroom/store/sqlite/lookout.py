"""When a sender helps with the index of words: now and then, its own letter being safe."""

from __future__ import annotations

LOOK_EVERY = 256  # numbers between two looks of a sender


class Lookout:
    def __init__(self) -> None:
        self.next_look = 0  # a number; until a letter has it, looking costs one comparison

    def is_due(self, number: int) -> bool:
        """A process that sends but one letter looks if it meets the round number: one in so many does."""
        is_due = self.next_look > 0 or number % LOOK_EVERY == 0
        self.next_look = number - number % LOOK_EVERY + LOOK_EVERY
        return is_due
