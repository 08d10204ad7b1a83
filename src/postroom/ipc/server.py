"""Accepts callers at one socket, and ends in good order."""

from __future__ import annotations

import asyncio
import logging
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..callers import Caller
from .connection import Connection
from .place import BACKLOG, Place
from .unread import Unread

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..desk import Desk
    from ..hub import Hub
    from ..map_server.reception import Reception
    from ..policy.limits import Limits

log = logging.getLogger("postroom")
GRACE = 0.7  # seconds for what is under way when the daemon stops
TELL_AGAIN = 60.0  # seconds until it is said once more that nobody else fits in


class Server:
    """One socket."""

    def __init__(self, desk: Desk, hub: Hub, path: str, reception: Reception | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.limits: Limits = desk.room.settings
        self.place = Place(path)
        self.connections: set[Connection] = set()
        self.desk = desk
        self._hub = hub
        self.reception = reception  # of those who speak MAP
        self._listening: asyncio.Server | None = None
        self._gone = asyncio.Event()  # nobody is here any more
        self.unread = Unread(self.loop)
        self._told_full = -TELL_AGAIN  # when, by the loop's time

    async def start(self) -> None:
        listening = self.place.take()
        self._listening = await self.loop.create_unix_server(
            lambda: Connection(self),
            sock=listening,
            backlog=BACKLOG,  # it listens again, with its own number
        )

    async def stop(self) -> None:
        """Nobody new; what is under way is answered, for a moment; then everybody goes."""
        if self._listening is not None:
            self._listening.close()
        for connection in list(self.connections):
            connection.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE if self.connections else 0):
                await self._gone.wait()
        for connection in list(self.connections):
            connection.cut()
        self.place.leave()

    def enter(self, connection: Connection, handle: int) -> None:
        self.connections.add(connection)
        self._gone.clear()
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if handle == most - 1 and self.loop.time() - self._told_full >= TELL_AGAIN:
            self._told_full = self.loop.time()
            log.warning(
                "all %d handles for open files are taken, and newcomers are turned away: "
                "raise the limit (ulimit -n), or let callers close their connections",
                most,
            )

    def go(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._gone.set()

    def open_caller(self, push: Callable[[dict[str, Any]], bool], expel: Callable[[], None]) -> Caller:
        return Caller(self.desk, self._hub, push=push, expel=expel)
