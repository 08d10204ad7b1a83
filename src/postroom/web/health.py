"""`/healthz`: a real write and a real read, at most once a second whoever asks how often."""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from .. import __version__, service
from ..errors import PostroomError
from .replies import told

if TYPE_CHECKING:
    from ..desk import Desk
    from .replies import Reply

EVERY = 1.0  # seconds that an answer is good for
PATIENCE = 5.0  # seconds after which a write counts as failed


class Pulse:
    """The last answer, and the one that is being found out."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._looking: asyncio.Task[dict[str, Any]] | None = None
        self._at = 0.0

    async def ask(self, *, knows_us: bool) -> Reply:
        """Whoever shows no token learns whether we are well, and nothing else."""
        if self._looking is None or (self._looking.done() and perf_counter() - self._at > EVERY):
            self._at = perf_counter()
            self._looking = asyncio.ensure_future(self._look())
        found = await asyncio.shield(self._looking)
        return told(200 if found["ok"] else 503, found if knows_us else {"ok": found["ok"]})

    async def _look(self) -> dict[str, Any]:
        began, problem = perf_counter(), None
        try:
            async with asyncio.timeout(PATIENCE):
                await self._desk.submit(partial(service.pulse.beat, self._desk.room._office))
        except PostroomError as failed:
            problem = str(failed)
        except TimeoutError:
            problem = f"no write was done within {PATIENCE:g} seconds"
        return {
            "ok": problem is None,
            "problem": problem,
            "write_seconds": round(perf_counter() - began, 6),
            "uptime_seconds": round(self._desk.counters.uptime, 3),
            "version": __version__,
        }
