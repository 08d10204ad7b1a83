"""The replies that one connection is owed, in the order of its requests."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


MAX_PENDING = 16  # requests of one caller that are under way at once
LARGE = 64 * 1024  # bytes; a longer request may be many times as large in memory, so it is carried out alone


class ReplyQueue:
    """One caller's replies in the order of its requests, and whether another request may be begun.

    Requests with small replies are under way a few at once, others alone. So what waits in memory for one caller
    stays bounded.
    """

    def __init__(self) -> None:
        self._replies: deque[asyncio.Future[Any]] = deque()
        self._is_alone = False  # is a request under way that nothing may overtake?

    def __bool__(self) -> bool:
        return bool(self._replies)

    def has_room(self, *, is_alone: bool) -> bool:
        """Return whether a request may be begun. One that is alone overtakes nothing, and nothing overtakes it."""
        if not self._replies:
            return True
        return not (self._is_alone or is_alone) and len(self._replies) < MAX_PENDING

    def add(self, reply: asyncio.Future[Any], *, is_alone: bool = False) -> None:
        self._replies.append(reply)
        self._is_alone = is_alone

    def take(self) -> list[Any]:
        """Remove and return the replies that are there, up to the first that is not. None is no reply."""
        taken = []
        while self._replies and self._replies[0].done():
            future = self._replies.popleft()
            taken.append(None if future.cancelled() else future.result())
        return taken
