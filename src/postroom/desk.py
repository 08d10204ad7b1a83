"""The desk of a running post room: carries out what comes over any wire, for many callers at once.

What is quick is done in the order it came, and all that waits is made safe by one sync. When nobody else waits,
that happens at once, on the thread of the event loop; else on a thread beside it, and the loop goes on accepting.
What may take long has threads of its own. Whoever waits for mail holds no thread: it sleeps at the bells.

It refuses to know sockets and dialects. Above it stand the rims, below it `wire`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from .aio_ears import SharedEars
from .counters import Counters
from .errors import PostroomError, StoreFailing
from .service.waiting import seconds_to_sleep
from .wire.methods import let_in, named
from .wire.saying import box_of
from .wire.table import taken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .room import Room
    from .service.authorize import Principal
    from .wire.table import Method, Run

SLOW_THREADS = 4
BEAT = 20.0  # seconds between two signs of life of one agent that are written down
MOST_SEEN = 10_000
MOST_AT_ONCE = 256  # calls made safe by one sync; more would keep the first of them waiting


class Ticket(NamedTuple):
    """One call that waits for its turn."""

    run: Callable[[], Any]
    done: asyncio.Future[Any]


class Desk:
    """Made inside an event loop."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.counters = Counters()
        self._store = room._office.store
        self._loop = asyncio.get_running_loop()
        self._ears = SharedEars(self._store)
        self._queue: deque[Ticket] = deque()
        self._seen: dict[str, float] = {}  # agents, and when they last asked for something
        self._is_called = False  # has the loop been asked to serve?
        self._is_away = False  # is a batch being carried out on the thread beside?
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="postroom-desk")
        self._slow = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix="postroom-slow")

    async def call(self, principal: Principal, name: str, said: Mapping[str, Any]) -> Any:
        """Carry out a verb of ours for a caller."""
        method, room = named(name), self.room.acting_as(principal)
        given = taken(method, said)
        let_in(room, method, given)
        return await self.carry_out(room, method, given)

    def carry_out(
        self, room: Room, method: Method, said: dict[str, Any], run: Run | None = None
    ) -> asyncio.Future[Any]:
        """Carry out a method whose parameters were checked. What is quick is done in the order of these calls.
        `run` stands in for the method's own, to look at the caller first.
        """
        done = self._begin(room, method, said, partial(run or method.run, room, said))
        done.add_done_callback(partial(self.counters.called, method.name, perf_counter()))
        return done

    def _begin(
        self, room: Room, method: Method, said: dict[str, Any], call: Callable[[], Any]
    ) -> asyncio.Future[Any]:
        if seconds := method.patience(said):
            return asyncio.ensure_future(self._wait(room, method, said, call, seconds))
        if method.slow:
            return self._loop.run_in_executor(self._slow, call)
        return self.submit(call)

    def submit(self, run: Callable[[], Any]) -> asyncio.Future[Any]:
        """Something quick, in its turn."""
        ticket = Ticket(run, self._loop.create_future())
        self._queue.append(ticket)
        self._call()
        return ticket.done

    def alive(self, agent: str | None) -> None:
        """Who asks for something is here. Called where calls are carried out, now and then for each agent."""
        now = self.room._office.now().steady
        if agent is None or now - self._seen.get(agent, -BEAT) < BEAT:
            return
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[agent] = now
        with suppress(PostroomError):  # not registered, or not now: it is a courtesy
            self.room.mailbox(agent).heartbeat(active=True)

    def came_or_went(self) -> None:
        """What we know of who is here may be wrong now."""
        self._seen.clear()

    async def run_slow(self, run: Callable[[], Any]) -> Any:
        """Something that may take long, on a thread of its own."""
        return await self._loop.run_in_executor(self._slow, run)

    async def close(self) -> None:
        """Finish what was begun, then let go of threads and ears. The room is its owner's."""
        await self.submit(lambda: None)  # all before it is done then
        self._ears.close()
        for threads in (self._beside, self._slow):
            threads.shutdown(wait=False, cancel_futures=True)

    # -- serving

    def _call(self) -> None:
        if not self._is_called and not self._is_away:
            self._is_called = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """All that waits. One alone is done here, unless somebody else is in the room just now."""
        self._is_called = False
        batch = [self._queue.popleft() for _ in range(min(len(self._queue), MOST_AT_ONCE))]
        if not batch:
            return
        self.counters.batches += 1
        self.counters.batched += len(batch)
        if len(batch) == 1 and not self._store.is_busy():
            _tell(batch, self._together(batch))
            self._call_if_needed()
            return
        self._is_away = True
        away = self._loop.run_in_executor(self._beside, self._together, batch)
        away.add_done_callback(lambda done: self._back(batch, done))

    def _back(self, batch: list[Ticket], done: asyncio.Future[list[Any]]) -> None:
        self._is_away = False
        if not done.cancelled():
            _tell(batch, done.result())
        self._call_if_needed()

    def _call_if_needed(self) -> None:
        if self._queue:
            self._call()

    def _together(self, batch: list[Ticket]) -> list[Any]:
        """Carry out a batch; the answers, or an error in place of one. They are told when all of it is safe."""
        answers: list[Any] = []
        try:
            with self._store.gathered():
                answers += [_outcome(ticket.run) for ticket in batch]
        except PostroomError as unsafe:
            return [_unsafe(answer, unsafe) for answer in answers]
        return answers

    # -- waiting

    async def _wait(
        self, room: Room, method: Method, said: dict[str, Any], look: Callable[[], Any], seconds: float
    ) -> Any:
        is_empty = method.empty or bool
        answer = await self.submit(look)
        end = self._loop.time() + seconds
        if not is_empty(answer):
            return answer
        mailboxes = [box_of(room, said).name]
        with self._ears.listen(mailboxes) as bell:
            while True:
                bell.clear()
                answer = await self.submit(look)
                left = end - self._loop.time()
                if not is_empty(answer) or left <= 0:
                    return answer
                nap = seconds_to_sleep(room._office, mailboxes)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, nap)):
                        await bell.wait()


def _outcome(run: Callable[[], Any]) -> Any:
    """What came of it. A bug met by one caller is told to that one; the calls of the others go on."""
    try:
        return run()
    except BaseException as error:
        if not isinstance(error, Exception):
            raise
        return error


def _unsafe(answer: Any, error: PostroomError) -> Any:
    """Nothing may be told as done that is not safe."""
    if isinstance(answer, Exception):
        return answer
    told = StoreFailing(error.message, field=error.field, hint=error.hint)
    if isinstance(answer, dict) and isinstance(id := answer.get("id") or answer.get("messageId"), str):
        told.keys = (id,)
    return told


def _tell(batch: list[Ticket], answers: list[Any]) -> None:
    for ticket, answer in zip(batch, answers, strict=True):
        if ticket.done.done():  # the caller is gone
            continue
        if isinstance(answer, Exception):
            ticket.done.set_exception(answer)
        else:
            ticket.done.set_result(answer)
