"""One peer: its connections, whoever opened them, and what is known of it while there is none."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..lines.line import Line
    from ..model.peer import Peer
    from ..model.query import Found

log = logging.getLogger("postroom")
MOST_BARRED = 10_000


class LinkState(StrEnum):
    CONNECTED = "connected"
    AUTHENTICATING = "authenticating"
    DISCONNECTED = "disconnected"


class End:
    """Our end of one connection, on which the peer has proven who it is. `close` ends the connection."""

    def __init__(
        self,
        line: Line,
        close: Callable[[], object],
        *,
        in_order: bool,
        largest: int | None = None,
        together: int = 1,
        is_dialled: bool = False,
    ) -> None:
        self.line = line
        self.close = close
        self.is_dialled = is_dialled  # did we open it?
        self.largest = largest  # bytes of a frame that it reads; None: nobody knows
        self.together = together  # letters that it takes in one call
        self.in_order = in_order  # does it know `after`? Else letters of one pair go one by one


class Link:
    """Made inside an event loop."""

    def __init__(self, peer: Peer, changed: Callable[[], object]) -> None:
        self.peer = peer
        self._changed = changed
        self._ends: list[End] = []
        self._greeting = 0
        self._complaint = ""
        self.is_down = asyncio.Event()
        self.is_down.set()
        self._hurry = asyncio.Event()
        self._news: asyncio.Future[None] | None = None
        self.waiting: dict[str, str] = {}  # mailboxes with mail for it, and the system where each is
        self.has_news = False  # did it tell of other agents than before, of which nobody else was told yet?
        self.tries = 0  # in vain
        self.was_up = False  # was there ever a connection?
        self.noted = 0.0  # when it was written down, by the loop's time, who is there
        self.sent = self.taken = 0  # letters, since we opened
        self._barred: dict[tuple[str, str], None] = {}  # deliveries that it refused, and another may take

    @property
    def system(self) -> str:
        return self.peer.system

    @property
    def carried(self) -> int:
        """Letters, either way."""
        return self.sent + self.taken

    @property
    def state(self) -> LinkState:
        if self._ends:
            return LinkState.CONNECTED
        return LinkState.AUTHENTICATING if self._greeting else LinkState.DISCONNECTED

    @property
    def problem(self) -> str:
        """Why there is no connection."""
        return self._complaint

    @property
    def end(self) -> End | None:
        """The connection to send on: the one that came last."""
        return self._ends[-1] if self._ends else None

    def bar(self, found: Found) -> None:
        """It refused this letter to somebody who may be elsewhere, too. Forgotten, it is asked once more."""
        self._barred[found.message.id, found.delivery.mailbox] = None
        while len(self._barred) > MOST_BARRED:
            del self._barred[next(iter(self._barred))]

    def bars(self, found: Found) -> bool:
        return (found.message.id, found.delivery.mailbox) in self._barred

    def greeting(self, *, begins: bool) -> None:
        """Somebody says who it is, or is done with that."""
        self._greeting += 1 if begins else -1

    def join(self, end: End) -> None:
        """A peer that dials anew has lost the connection that it dialled before, though we may not know it yet."""
        for other in [one for one in self._ends if one.is_dialled == end.is_dialled]:
            self._ends.remove(other)
            other.line.cut()
            other.close()
        self._ends.append(end)
        self.has_news = True
        self._complaint = ""
        self.was_up = True
        self.is_down.clear()
        log.info("linked to the system %s", self.system)
        self._tell()
        self._changed()

    def leave(self, end: End) -> None:
        """It was cut. What was not answered on it is sent again on the next."""
        if end not in self._ends:
            return
        self._ends.remove(end)
        end.line.cut()
        if not self._ends:
            self.is_down.set()
            log.info("the link to the system %s is cut", self.system)
        self._changed()

    def give_up(self, end: End) -> None:
        """It does not answer, or does not trust us: the connection is ended, unless it only parted from us."""
        if end in self._ends:
            self.leave(end)
            end.close()

    def drop(self) -> None:
        """It is not to be spoken with any more."""
        for end in list(self._ends):
            self.give_up(end)

    async def sleep(self, seconds: float) -> None:
        """Before the next try; less, if somebody wants to know."""
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    def hurry(self) -> None:
        self._hurry.set()

    async def news(self) -> None:
        """Until it is connected, or a try failed."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.set_result(None)

    def complain(self, why: str) -> None:
        """Why there is no link; the log says it once."""
        if why != self._complaint:
            log.warning("there is no link to the system %s: %s", self.system, why)
        self._complaint = why
        self.tries += 1
        self._tell()

    def told(self) -> dict[str, Any]:
        """For people."""
        return {
            "state": str(self.state),
            "problem": self._complaint or None,
            "sent": self.sent,
            "taken": self.taken,
        }
