"""What is done now and then while the post room is open: leases, expiry, retention, deadlines, the index."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ..errors import PostroomError

if TYPE_CHECKING:
    from ..desk import Desk

log = logging.getLogger("postroom")
EVERY = 30.0  # seconds


async def keep_house(desk: Desk) -> None:
    """For ever. What goes wrong is logged, and tried again the next time."""
    while True:
        await asyncio.sleep(EVERY)
        try:
            await desk.run_slow(desk.room.sweep)
        except BaseException as failed:
            if not isinstance(failed, Exception):
                raise
            log.warning("the janitor could not finish: %s", failed, exc_info=not isinstance(failed, PostroomError))
