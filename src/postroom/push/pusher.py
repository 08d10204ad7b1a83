"""All webhooks of a running post room, as they come and go: one ringer for each that is on.

A bell says that something was written in the room; then we look whether there is another webhook, once in a while
and no more often. Until there is one, nothing else of this room is loaded.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from .. import service
from ..errors import PostroomError
from ..store.bells import ROOM

if TYPE_CHECKING:
    from ..desk import Desk
    from ..model.webhook import Webhook
    from ..store.base import Watch
    from .calling import Telephone
    from .ringer import Ringer

log = logging.getLogger("postroom")
PACE = 1.0  # seconds between two looks at most: every letter rings, too
LOOK = 60.0  # seconds without a bell


class Pusher:
    """Made inside an event loop."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._store = desk.room._office.store
        self._telephone: Telephone | None = None
        self._ringers: dict[str, tuple[Ringer, asyncio.Future[None]]] = {}

    async def run(self) -> None:
        """For ever."""
        watch = self._store.watch((ROOM,))
        try:
            while True:
                has_looked = await self._look()
                await asyncio.sleep(PACE)
                if has_looked:
                    await _rung(watch)
        finally:
            watch.close()
            await self._stop()

    async def _look(self) -> bool:
        """Whether the room could be asked."""
        try:
            found = await self._desk.run_slow(partial(service.webhooks.all_webhooks, self._desk.room._office))
        except BaseException as wrong:
            if not isinstance(wrong, Exception):
                raise
            log.warning(
                "webhooks could not be looked at: %s", wrong, exc_info=not isinstance(wrong, PostroomError)
            )
            return False
        self._sync({webhook.id: webhook for webhook in found if webhook.is_on})
        return True

    def _sync(self, wanted: dict[str, Webhook]) -> None:
        """A ringer for each, as it is now. One that ended is begun anew when its webhook is on."""
        for id, (ringer, task) in list(self._ringers.items()):
            if id in wanted and not task.done() and ringer.webhook.mailbox == wanted[id].mailbox:
                ringer.webhook = wanted[id]
            else:
                task.cancel()
                del self._ringers[id]
        for id in wanted.keys() - self._ringers.keys():
            self._begin(wanted[id])

    def _begin(self, webhook: Webhook) -> None:
        from .calling import Telephone  # noqa: PLC0415 - TLS and the like, where somebody is called
        from .ringer import Ringer  # noqa: PLC0415

        self._telephone = self._telephone or Telephone()
        ringer = Ringer(self._desk, webhook, self._telephone)
        self._ringers[webhook.id] = ringer, asyncio.ensure_future(ringer.run())

    async def _stop(self) -> None:
        tasks = [task for _, task in self._ringers.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._telephone is not None:
            self._telephone.close()


async def _rung(watch: Watch) -> None:
    """Until something was written. Between two looks nobody listens: a busy room costs nothing then."""
    if watch.fileno() < 0:
        return
    loop, rang = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(watch.fileno(), rang.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await rang.wait()
    finally:
        loop.remove_reader(watch.fileno())
        watch.rung()
