"""Callers that do not read their replies: what waits for all of them together stays bounded.

What may be large is begun a few at a time, and not while too much waits already. Who then has read nothing for a
while is cut off. Large lines, too, are looked at a few at a time.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from ..outcome import Outcome
    from .connection import Connection

log = logging.getLogger("postroom")
AT_ONCE = 4  # calls whose replies may be large; and large lines
MOST = 64 * 1024 * 1024  # bytes of replies that wait for their readers, and those that are begun
PATIENCE = 5.0  # seconds for who reads nothing, while others wait because of it


class Unread:
    """Of one socket."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun = 0  # calls under way whose replies may be large
        self._looked = 0  # large lines under way
        self._full: set[Connection] = set()
        self._waiting: dict[Connection, None] = {}  # in the order they came

    @property
    def has_room(self) -> bool:
        """May something large be begun?"""
        return self._begun < AT_ONCE and not (self._full and self._is_too_much)

    @property
    def _is_too_much(self) -> bool:
        return sum(connection.unsent for connection in self._full) > MOST

    def begin(self, large: Outcome) -> None:
        self._begun += 1
        large.add_done_callback(self._end)

    @property
    def may_look(self) -> bool:
        """May a large line be looked at?"""
        return self._looked < AT_ONCE

    def looked(self, line: Outcome) -> None:
        self._looked += 1
        line.add_done_callback(self._end_look)

    def _end_look(self, _: Outcome) -> None:
        self._looked -= 1
        self._wake()

    def _end(self, _: Outcome) -> None:
        self._begun -= 1
        self._wake()

    def wait(self, connection: Connection) -> None:
        """It goes on when there is room."""
        self._waiting[connection] = None

    def filled(self, connection: Connection) -> None:
        self._full.add(connection)
        self._loop.call_later(PATIENCE, self._look_at, connection, connection.unsent)

    def emptied(self, connection: Connection) -> None:
        """It reads, or is gone."""
        self._full.discard(connection)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for other in waiting:
            self._loop.call_soon(other.go_on)

    def _look_at(self, connection: Connection, before: int) -> None:
        if connection not in self._full:
            return
        now = connection.unsent
        if self._is_too_much and now >= before:
            log.warning("a caller that reads none of its replies was cut off")
            connection.cut()
        else:
            self._wake()  # some of it was read: there may be room by now
            self._loop.call_later(PATIENCE, self._look_at, connection, now)
