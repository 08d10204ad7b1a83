"""What waits to be written to one caller. It is bounded: a caller that does not read is told no more for a while,
and hears the rest from its cursor when it reads again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

GRACE = 0.5  # seconds for the last of it to be written, before the connection is cut
MOST = 256 * 1024  # bytes that may wait; one notice more than that at most


class Outbox:
    """Filled by whoever has something to say, emptied by the one who writes. `cut` ends the connection."""

    def __init__(self, cut: Callable[[], object]) -> None:
        self._cut = cut
        self._cutting: asyncio.TimerHandle | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._ready = asyncio.Event()
        self.is_closed = False
        self.has_refused = False  # was something not taken since the last `take`?

    @property
    def is_full(self) -> bool:
        return self._size >= MOST

    def offer(self, piece: bytes) -> bool:
        """False: not taken, there is no room for it now."""
        if not self.has_room():
            return False
        self.add(piece)
        return True

    def has_room(self) -> bool:
        """May something be offered? Who is told no is told again when there is."""
        if self.is_closed or self.is_full:
            self.has_refused = True
            return False
        return True

    def add(self, piece: bytes) -> None:
        """What is owed; whoever owes sees to it that there is not too much of it."""
        self._pieces.append(piece)
        self._size += len(piece)
        self._ready.set()

    async def take(self) -> list[bytes]:
        """All that waits, as soon as there is something. Nothing: it is over."""
        await self._ready.wait()
        pieces, self._pieces, self._size = self._pieces, [], 0
        if not self.is_closed:
            self._ready.clear()
        return pieces

    def close(self) -> None:
        """What waits may still be taken, for a moment: the other side may never read it."""
        if not self.is_closed:
            self.is_closed = True
            self._cutting = asyncio.get_running_loop().call_later(GRACE, self._cut)
            self._ready.set()

    def drop(self) -> None:
        """Over at once: what waits is for nobody."""
        self._pieces, self._size = [], 0
        self.close()

    def emptied(self) -> None:
        """All of it was written."""
        if self._cutting is not None:
            self._cutting.cancel()
