"""Has a caller that says no more hung up, or only half closed? After the end was read, asyncio does not tell."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Hangup:
    """Calls `gone` when the other side is closed. Without epoll, that is noticed at the next write instead.
    It watches a socket that the loop watches itself, so it needs a descriptor of its own.
    """

    def __init__(self, transport: asyncio.Transport, gone: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._poll = select.epoll() if hasattr(select, "epoll") else None
        if self._poll is not None:
            self._poll.register(transport.get_extra_info("socket"), 0)  # nothing: that it is closed is always told
            self._loop.add_reader(self._poll.fileno(), self._hear, gone)

    def _hear(self, gone: Callable[[], None]) -> None:
        self.close()  # once: it stays closed
        gone()

    def close(self) -> None:
        if self._poll is not None:
            self._loop.remove_reader(self._poll.fileno())
            self._poll.close()
            self._poll = None
