"""How agents are, looked at now and then for those who subscribe: who falls silent says nothing of it."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import PostroomError
from ..wire.map_records import agent_record

if TYPE_CHECKING:
    from ..desk import Desk
    from ..hub import Hub
    from ..room import Room
    from .telling import Telling

log = logging.getLogger("postroom")
LOOK = 15.0  # seconds between two looks


class Watching:
    """Made inside an event loop. As long as nobody listens it does not look."""

    def __init__(self, desk: Desk, hub: Hub, telling: Telling) -> None:
        self._desk = desk
        self._hub = hub
        self._telling = telling
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Future[list[dict[str, Any]]] | None = None
        self._timer = self._loop.call_later(LOOK, self._look)

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK, self._look)
        self._telling.look_begins(is_heard=self._hub.is_heard)
        if self._hub.is_heard and self._looking is None:
            self._looking = asyncio.ensure_future(self._desk.run_slow(partial(_everybody, self._desk.room)))
            self._looking.add_done_callback(self._looked)

    def _looked(self, done: asyncio.Future[list[dict[str, Any]]]) -> None:
        self._looking = None
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._telling.found(done.result())
        elif isinstance(error, PostroomError):  # the next look may succeed
            log.debug("how agents are could not be found out: %s", error)
        else:
            log.error("how agents are could not be found out", exc_info=error)

    def close(self) -> None:
        self._timer.cancel()
        if self._looking is not None:
            self._looking.cancel()


def _everybody(room: Room) -> list[dict[str, Any]]:
    return [agent_record(agent) for agent in room.agents(gone=True)]
