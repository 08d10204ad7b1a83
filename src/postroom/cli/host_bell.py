"""A mailbox behind a daemon's socket, as far as a waiter needs one: the daemon waits and decides, and we ring.

A daemon that is away comes back: until then there is nothing to ring for.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import PostroomError
from ..model.codec import convert
from ..model.message import Priority
from ..model.ring import Rung
from ..service.ringing import LOOK_EVERY, NOT_NOW
from ..wire.ring_verbs import SOON
from .hook_sources import SocketSource

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPARE = 20.0  # seconds in which a daemon answers besides those for which it waits


class Bell(SocketSource):
    """What a waiter asks for."""

    patience = LOOK_EVERY + SPARE

    def wait_to_ring(self, way: str, timeout: float, *, may_ring: Callable[[], bool]) -> Rung | None:
        """The next ring, as soon as it is time for one; None when the time is up. `may_ring` is asked before."""
        end, nap = time.monotonic() + timeout, 0.0
        while (left := end - time.monotonic()) > 0:
            try:
                if (nap := self._look(way, min(nap, left))) == 0.0 and may_ring() and (rung := self._ring(way)):
                    return rung
            except OSError:
                may_ring()  # is anybody there to wait for?
                nap = LOOK_EVERY
                time.sleep(min(nap, left))
            if nap <= SOON:
                time.sleep(nap or NOT_NOW)
        return None

    def ring_failed(self, way: str, ids: Sequence[str], why: str) -> None:
        with suppress(OSError):  # the mail waits in any case
            about = {"way": way, "message_ids": list(ids), "why": why}
            self.ask({"action": "ring_failed", "agent_id": self.agent, **about})

    def heartbeat(self, *, poll_interval: float) -> None:
        with suppress(OSError, PostroomError):  # it is away, or nobody registered us
            self.ask({"action": "heartbeat", "agent_id": self.agent, "poll_interval": poll_interval})

    def _look(self, way: str, seconds: float) -> float:
        """In how many seconds it is time to ring, as far as anybody knows. The daemon waits so long at most."""
        asked = {"action": "ring", "agent_id": self.agent, "way": way, "peek": True, "timeout": seconds}
        (said,) = self.ask(asked)
        return LOOK_EVERY if said["look_again"] is None else min(said["look_again"], LOOK_EVERY)

    def _ring(self, way: str) -> Rung | None:
        """None: somebody was quicker."""
        (said,) = self.ask({"action": "ring", "agent_id": self.agent, "way": way, "timeout": 0})
        return None if said["rung"] is None else _rung(said["rung"])


def _rung(said: dict[str, Any]) -> Rung:
    letters = [one | {"priority": Priority[one["priority"].upper()]} for one in said["letters"]]
    return convert(said | {"letters": letters}, Rung)
