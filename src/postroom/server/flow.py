"""The flow of mail in numbers, for pages that watch it: who writes to whom now, and each minute of the last day.

`FlowDigest` makes one digest of what happened since the last one and sends it to all who watch: its cost does not
grow with them, and where nothing happens nothing is made. `History` keeps a row of numbers for each minute.
Neither reads a letter.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..errors import PostroomError
from ..model.delivery import State
from ..model.names import fold
from ..model.query import LetterQuery, Query
from ..store.notification import ROOM
from .protocol import notification

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from ..core.core import Core
    from ..store.protocol import Watch
    from .executor import Executor

    Pairs = dict[tuple[str, str], int]
    Moved = dict[tuple[str, State], int]

TICK = 0.1  # seconds between two digests, at least
POLL = 1.0  # seconds between two looks where the store cannot notify
RETRY = 5.0  # seconds until the next look after one that failed
MOST_PAIRS = 200  # of sender and recipient that are named in one digest
MOST_BEHIND = 10_000  # numbers that one digest looks at


class Watcher:
    """One connection that watches the flow."""

    def __init__(self, push: Callable[[dict[str, Any]], bool], person: str, known: int) -> None:
        self.push = push
        self.person = fold(person)
        self.known = known  # names that it was told
        self.waits = 0  # grows whenever the mailbox of its person may have changed
        self.missed = False  # has it not taken a digest?


class FlowDigest:
    """What happened in the room since the last look, for all connections that watch."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._core = executor.core
        self._watchers: dict[object, Watcher] = {}
        self._names: dict[str, int] = {}  # mailboxes, in the order in which they were named first
        self._number = 0  # everything up to here was counted
        self._watch: Watch | None = None
        self._starting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None

    async def watch(self, caller: object, push: Callable[[dict[str, Any]], bool], person: str) -> dict[str, Any]:
        """Send digests to a connection from now on; return the names that are known."""
        if self._starting is None:
            self._watch = self._core.store.watch((ROOM,))  # before the look, so that nothing comes between them
            self._starting = asyncio.ensure_future(self._start())
        await self._starting
        self._watchers[caller] = Watcher(push, person, len(self._names))
        return {"names": list(self._names), "number": self._number, "at": self._core.now().wall}

    async def _start(self) -> None:
        try:
            self._number = (await self._executor.read(self._core.store.cursor)).number
        except PostroomError:
            self.close()
            raise
        self._listen()

    def forget(self, caller: object) -> None:
        if self._watchers.pop(caller, None) is not None and not self._watchers:
            self.close()

    def close(self) -> None:
        """Stop looking: nobody watches any more."""
        self._watchers.clear()
        self._starting = None
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._stop_listening()
            self._watch.close()
            self._watch = None

    # -- looking

    def _listen(self) -> None:
        """Wait for the next change. Between a change and the digest the store is not listened to: however many
        changes there are, the loop is woken once a digest.
        """
        if self._watch is None:
            return
        loop = asyncio.get_running_loop()
        if self._watch.fileno() >= 0:
            loop.add_reader(self._watch.fileno(), self._on_change)
        else:
            self._timer = loop.call_later(POLL, self._on_change)

    def _stop_listening(self) -> None:
        if self._watch is not None and self._watch.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._watch.fileno())

    def _on_change(self) -> None:
        self._stop_listening()
        if self._watch is not None:
            self._watch.notified()
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        """Make a digest and send it, then rest."""
        again, pause = self._listen, TICK
        try:
            number, pairs, moved = await self._executor.read(self._count)
            if number > self._number:
                self._number = number
                self._send(pairs, moved)
        except PostroomError:  # the store cannot be read now, and nothing may tell when there is more
            again, pause = self._on_change, RETRY
        if self._watch is not None:
            self._timer = asyncio.get_running_loop().call_later(pause, again)

    def _count(self) -> tuple[int, Pairs, Moved]:
        """Return the latest number, and what happened since the last one that was counted; on a thread."""
        store = self._core.store
        number = store.cursor().number
        # Not what comes while it is counted: the next digest counts that.
        since = LetterQuery(after=max(self._number, number - MOST_BEHIND), before=number + 1)
        return number, store.count(since, by="pair"), store.count(since, by="moved")

    # -- sending

    def _send(self, pairs: Pairs, moved: Moved) -> None:
        busiest = Counter(pairs).most_common(MOST_PAIRS)
        named = [(self._place(sender), self._place(recipient), many) for (sender, recipient), many in busiest]
        touched = {fold(mailbox) for _, mailbox in pairs} | {fold(mailbox) for mailbox, _ in moved}
        digest = {
            "at": self._core.now().wall,
            "number": self._number,
            "sent": sum(pairs.values()),
            "settled": sum(many for (_, state), many in moved.items() if state is State.DONE),
            "died": sum(many for (_, state), many in moved.items() if state is State.DEAD),
            "pairs": named,
        }
        names = list(self._names)
        for watcher in list(self._watchers.values()):
            watcher.waits += watcher.person in touched
            own = {"from": watcher.known, "names": names[watcher.known :], "waits": watcher.waits}
            missed = {"missed": True} if watcher.missed else {}
            watcher.missed = not watcher.push(notification("flow/tick", {**digest, **own, **missed}))
            if not watcher.missed:
                watcher.known = len(names)

    def _place(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))


# -- the last day

MINUTE = 60.0
MOST_MINUTES = 24 * 60
COLUMNS = ("at", "sent", "settled", "died", "backlog", "calls", "errors", "memory", "cpu")


class History:
    """A row of numbers for each minute of the last day, since the server began."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._core: Core = executor.core
        self._since: datetime = self._core.now().wall
        self._rows: deque[list[Any]] = deque(maxlen=MOST_MINUTES)
        self._number = -1
        self._calls = (0, 0)
        self._cpu = 0.0

    def describe(self) -> dict[str, Any]:
        return {"since": self._since, "columns": list(COLUMNS), "minutes": list(self._rows)}

    async def run(self) -> None:
        """Add a row each minute, for ever."""
        while True:
            with suppress(PostroomError):  # what a look misses stands in the row of the next
                self._add(await self._executor.run_slow(self._count))
            await asyncio.sleep(MINUTE)

    def _count(self) -> tuple[int, int, Moved, int]:
        """Return the latest number, what happened since the last row, and how much waits; on a thread."""
        store = self._core.store
        number = store.cursor().number
        since = LetterQuery(after=number if self._number < 0 else self._number, before=number + 1)
        backlog = sum(tally.backlog for tally in store.count(Query(), by="state"))
        return number, store.count(since, by="all"), store.count(since, by="moved"), backlog

    def _add(self, counted: tuple[int, int, Moved, int]) -> None:
        number, sent, moved, backlog = counted
        calls, used = self._executor.counters.calls, resource.getrusage(resource.RUSAGE_SELF)
        now = sum(calls.values()), sum(many for (_, outcome), many in calls.items() if outcome != "ok")
        cpu = used.ru_utime + used.ru_stime
        if self._number >= 0:
            by_state = Counter[State]()
            for (_, state), many in moved.items():
                by_state[state] += many
            row = [self._core.now().wall, sent, by_state[State.DONE], by_state[State.DEAD], backlog]
            more = [now[0] - self._calls[0], now[1] - self._calls[1], resident() or 0, round(cpu - self._cpu, 3)]
            self._rows.append([*row, *more])
        self._number, self._calls, self._cpu = number, now, cpu


def resident() -> int | None:
    """Return the resident memory of this process in bytes; nothing where the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
