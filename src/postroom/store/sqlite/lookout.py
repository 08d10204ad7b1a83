"""When a sender helps with the index of words: now and then, its own letter being safe.

To add a letter costs a tenth of sending it, which is too much for those who send one after the other. They do a
sixteenth of it, and leave the rest to those who search and to the janitor. For a process that sends but one letter
it is next to nothing: such processes keep up with all that they send.
"""

from __future__ import annotations

OFTEN = 256  # the first letter of a process: if its number is a multiple of this, it looks
RARELY = 8192  # likewise for each later letter


class Lookout:
    def __init__(self) -> None:
        self._has_sent = False

    def is_due(self, number: int, letters: int) -> bool:
        """By the number of the last of some letters, and not by a count: whoever else sends, only one gets it."""
        if self._has_sent:
            return number % RARELY < letters
        self._has_sent = True
        return number % OFTEN == 0
