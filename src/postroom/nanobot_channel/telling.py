"""Results that could not be told, for the model of whoever asked was away: they stay in hand, and are told later.

That is no failed try of their letter: whoever did the work is not to get it back as dead.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .turns import Turn

FIRST_PAUSE = 2.0  # seconds; twice as long each time
LONGEST_PAUSE = 900.0  # the person may see an error of nanobot's each time
MOST = 300  # times: three days


class Untold:
    """How often each was tried."""

    def __init__(self) -> None:
        self._tried: Counter[str] = Counter()

    def put_off(self, turn: Turn) -> bool:
        """Let it wait for a while. Not if it was tried for days."""
        self._tried[turn.id] += 1
        tried = self._tried[turn.id]
        if tried > MOST:
            return False
        turn.is_waiting = True
        turn.put_off_until = time.monotonic() + min(FIRST_PAUSE * 2 ** (tried - 1), LONGEST_PAUSE)
        return True

    def forget(self, turn: Turn) -> None:
        self._tried.pop(turn.id, None)
