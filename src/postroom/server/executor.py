"""What will come of a call, for whoever waits for it.

Like a future of asyncio, with one difference: who waits is called in the moment it is settled, not in another
round of the event loop. A call over the socket passes several of them, and a round costs as much as a small call.

It refuses to know what was called. Everything stands on one thread, that of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from ..aio import SharedWatcher
from ..core.inbox import seconds_to_sleep
from ..errors import PostroomError, StoreBusy, StoreFailing
from ..store.protocol import Undone
from .counters import Counters
from .protocol import Request, let_in, named
from .table import box_of, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from ..core.authorize import Principal
    from ..room import Room
    from .table import Method, Run


log = logging.getLogger("postroom")
_OPEN: Any = object()


class JobFuture:
    """Of one call. Settled once: with a result, with an error, or by giving up on it."""

    __slots__ = ("_error", "_is_cancelled", "_result", "_tell", "_waiting")

    def __init__(self) -> None:
        self._result: Any = _OPEN
        self._error: BaseException | None = None
        self._is_cancelled = False
        self._tell: Callable[[BaseException | None, Any], Any] | None = None
        self._waiting: list[Callable[[JobFuture], object]] = []

    @classmethod
    def of(cls, future: asyncio.Future[Any]) -> JobFuture:
        """That of a future. Who gives up on one gives up on the other."""
        outcome = cls()
        outcome.add_done_callback(lambda outcome: future.cancel() if outcome.cancelled() else None)
        future.add_done_callback(outcome._follow)
        return outcome

    def done(self) -> bool:
        return self._result is not _OPEN

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def told_as(self, tell: Callable[[BaseException | None, Any], Any]) -> JobFuture:
        """Its result, for whoever asks from now on: what `tell` makes of the error, or else of what came of it."""
        self._tell = tell
        return self

    def result(self) -> Any:
        if self._tell is not None:
            tell, self._tell = self._tell, None
            self._result, self._error = tell(self._error, self._result), None
        if self._error is not None:
            raise self._error
        return self._result

    def set_result(self, result: Any) -> None:
        self._result = result
        self._call()

    def set_exception(self, error: BaseException) -> None:
        self._result, self._error = None, error
        self._call()

    def settle(self, answer: Any) -> None:
        """With an answer, which may be an error; unless somebody gave up on it."""
        if self._result is _OPEN:
            if isinstance(answer, Exception):
                self.set_exception(answer)
            else:
                self._result = answer
                self._call()

    def cancel(self) -> bool:
        """Give up on it. False: it was settled before."""
        if self.done():
            return False
        self._is_cancelled = True
        self.set_exception(asyncio.CancelledError())
        return True

    def add_done_callback(self, call: Callable[[JobFuture], object]) -> None:
        """Call when it is settled; at once if it is."""
        if self._result is not _OPEN:
            call(self)
        else:
            self._waiting.append(call)

    async def wait(self) -> None:
        """Until it is settled, however. Who is interrupted meanwhile gives up on it."""
        if self.done():
            return
        settled = asyncio.Event()
        self.add_done_callback(lambda _: settled.set())
        try:
            await settled.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise

    def __await__(self) -> Generator[Any, None, Any]:
        yield from self.wait().__await__()
        return self.result()

    def _follow(self, future: asyncio.Future[Any]) -> None:
        if self.done():
            return
        if future.cancelled():
            self.cancel()
        elif (error := future.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(future.result())

    def _call(self) -> None:
        """A bug met by one who waits is told in the log; the others are called all the same."""
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            try:
                call(self)
            except BaseException as error:
                if not isinstance(error, Exception):
                    raise
                log.exception("somebody who waited for a call failed by a fault of ours")


# Who waits at the desk for its turn.
#
# It refuses to know what is called. Above it stands `desk`.

FEW = 16  # calls that are done on the loop's own thread


class Job:
    """One call that waits for its turn."""

    __slots__ = ("caller", "done", "is_heavy", "is_wait", "looks", "run")

    def __init__(
        self,
        run: Callable[[], Any],
        done: JobFuture,
        caller: object,
        looks: bool = False,
        is_wait: bool = False,
        is_heavy: bool = False,
    ) -> None:
        self.run = run
        self.done = done
        self.caller = caller
        self.looks = looks  # does it change nothing?
        self.is_wait = is_wait  # is it for nobody, once its caller is gone?
        self.is_heavy = is_heavy  # does it name so many that it keeps others waiting?

    def outcome(self) -> Any:
        """What came of it. A bug met by one caller is told to that one; the calls of the others go on."""
        if self.is_wait and self.done.done():  # gone: a letter is not handed to nobody
            return None
        try:
            return self.run()
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            return error


class Queue:
    """Who waits for its turn: each caller's calls in their order, and callers in turn. One caller with much to say
    does not keep the others waiting.
    """

    def __init__(self) -> None:
        self._lines: dict[object, deque[Job]] = {}
        self._seen = 0  # callers who stood here at the last look

    def __bool__(self) -> bool:
        return bool(self._lines)

    def has_grown(self) -> bool:
        """Have more callers come since the last look, and not many yet? For one alone nobody is waited for."""
        before, now = self._seen, len(self._lines)
        self._seen = now
        return 1 < now < FEW and before < now

    def is_all_of(self, caller: object) -> bool:
        """Does this caller stand here, and nobody else?"""
        return len(self._lines) == 1 and caller in self._lines

    def add(self, ticket: Job) -> None:
        self._lines.setdefault(ticket.caller, deque()).append(ticket)

    def put_back(self, tickets: Sequence[Job]) -> None:
        """Those that were taken and not begun: they come first again."""
        lines: dict[object, deque[Job]] = {}
        for ticket in tickets:
            lines.setdefault(ticket.caller, deque()).append(ticket)
        for caller, line in self._lines.items():
            lines.setdefault(caller, deque()).extend(line)
        self._lines = lines

    def take(self, most: int) -> list[Job]:
        taken: list[Job] = []
        self._seen = 0
        while self._lines and len(taken) < most:
            caller = next(iter(self._lines))
            line = self._lines.pop(caller)
            taken.append(line.popleft())
            if line:
                self._lines[caller] = line  # behind the others
        return taken

    def take_looks(self, busy: set[object]) -> list[Job]:
        """What changes nothing and overtakes nothing of its own caller. Those who are `busy` have something under
        way.
        """
        free = [caller for caller, line in self._lines.items() if caller not in busy and line[0].looks]
        taken = [self._lines[caller].popleft() for caller in free]
        for caller in free:
            if not self._lines[caller]:
                del self._lines[caller]
        return taken


def tell(batch: list[Job], answers: list[Any]) -> None:
    """The first of a batch, as many as there are answers."""
    for ticket, answer in zip(batch, answers, strict=False):
        ticket.done.settle(answer)


# What one caller is owed: the replies in the order of what it said, and whether more may be begun for it.
#
# How large a reply is, is known when it is there. So a caller begins with a few calls at once and gets more with
# each small reply, fewer with each large one; and what it says at length is done one thing after the other. So
# what
# waits for it in memory stays bounded, whatever it asks for.
#
# It refuses to know how replies travel. Above it stand the rims, below it `wire`.

MOST_ASKED = 64  # calls of one caller that are under way at once
FIRST = 8  # before anything is known of it
ROOM = 1024 * 1024  # bytes of replies that may be owed, and of what is being answered; one of each more at most


class ReplyQueue:
    """One caller's. `carry_out` begins something; `settled` is called when the next reply may be there."""

    def __init__(self, carry_out: Callable[[Request], JobFuture], settled: Callable[[], object]) -> None:
        self._carry_out = carry_out
        self._settled = settled
        self._replies: deque[tuple[JobFuture, int]] = deque()  # and the size of what is answered
        self._asked = 0  # all of these sizes
        self._is_alone = False  # is something carried out that nothing may overtake?
        self._most = FIRST

    def __bool__(self) -> bool:
        return bool(self._replies)

    def has_room(self, request: Request | dict[str, Any]) -> bool:
        """May this be begun? What takes long overtakes nothing, and nothing overtakes it."""
        if not self._replies:
            return True
        is_alone = isinstance(request, Request) and request.is_alone
        return not is_alone and not self._is_alone and len(self._replies) < self._most

    def may_hear(self, size: int) -> bool:
        """May something of so many bytes be looked at? In memory it may be many times as large."""
        return not self._replies or self._asked + size <= ROOM

    def begin(self, request: Request | dict[str, Any], size: int = 0) -> None:
        """Carry it out; or owe the reply that is known already. `size`: of what was said, in bytes."""
        if isinstance(request, Request):
            self._is_alone = request.is_alone
            owed = self._carry_out(request)
        else:
            owed = JobFuture()
            owed.set_result(request)
        self._replies.append((owed, size))
        self._asked += size
        owed.add_done_callback(lambda _: self._settled())

    def take(self) -> Iterator[Any]:
        """The replies that are there, as far as they are in order."""
        while self._replies and self._replies[0][0].done():
            owed, size = self._replies.popleft()
            self._asked -= size
            reply = None if owed.cancelled() else owed.result()
            if reply is not None:
                yield reply
        self._is_alone = self._is_alone and bool(self._replies)

    def note_size(self, size: int) -> None:
        """A reply was this large, in bytes; the next may be, too."""
        self._most = max(1, min(MOST_ASKED, 2 * self._most, ROOM // max(size, 1)))


# The desk of a running post room: carries out what comes over any wire, for many callers at once.
#
# What is quick is done in the order it came, callers in turn, and what is done together is made safe by one sync.
# When nobody else waits, that happens at once, on the thread of the event loop; else on a thread beside it, and
# the
# loop goes on accepting. Nothing waits for a lock on the loop's own thread. What may take long has other threads;
# what names very many letters or recipients has one of its own, so that small calls get their turn in between.
# Whoever waits for mail holds no thread: it sleeps at the bells.
#
# It refuses to know sockets and dialects. Above it stand the rims, below it `wire`.

SLOW_THREADS = 4
BUDGET = 0.03  # seconds of work after which those who waited are told
GRACE = 0.3  # seconds for what is under way when the desk closes
BEAT = 20.0  # seconds between two signs of life of one agent that are written down
MOST_SEEN = 10_000
MOST_AT_ONCE = 256  # calls made safe by one sync; more would keep the first of them waiting
PROMPT = 0.005  # seconds that they may have taken last time
_LATER: Any = object()  # in place of an answer


class Links(Protocol):
    """The links to other systems, as callers may ask for them."""

    def describe(self) -> list[dict[str, Any]]: ...
    async def ping(self, system: str) -> dict[str, Any]: ...


class Executor:
    """Made inside an event loop."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.links: Links | None = None  # to other systems; None: there are none
        self.counters = Counters()
        self._store = room._core.store
        self._loop = asyncio.get_running_loop()
        self._ears = SharedWatcher(self._store)
        self._queue = Queue()
        self._seen: dict[str, float] = {}  # agents, and when they last asked for something
        self._is_called = False  # has the loop been asked to serve?
        self._alone: object = None  # whose one call was all there was to do the last time
        self._away: set[object] = set()  # whose calls are being carried out on the thread beside
        self._under_way: set[Future[Any]] = set()  # on any thread, though nobody may wait for it any more
        self._is_closed = False
        self._is_prompt = True  # did what was done together last take a moment only?
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="postroom-desk")
        self._reading = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix="postroom-reading")
        self._slow = ThreadPoolExecutor(SLOW_THREADS, thread_name_prefix="postroom-slow")
        # One thread: between two large commits the room's lock is free, and the small ones get their turn.
        self._large = ThreadPoolExecutor(1, thread_name_prefix="postroom-large")

    async def call(self, principal: Principal, name: str, params: Mapping[str, Any]) -> Any:
        """Carry out a verb of ours for a caller."""
        method, room = named(name), self.room.acting_as(principal)
        value = taken(method, params)
        let_in(room, method, value)
        return await self.carry_out(room, method, value)

    def carry_out(
        self, room: Room, method: Method, params: dict[str, Any], run: Run | None = None, caller: object = None
    ) -> JobFuture:
        """Carry out a method whose parameters were checked. What is quick is done in the order of these calls, as
        far as they are of one caller. `run` stands in for the method's own, to look at the caller first.
        """
        done = self._begin(room, method, params, partial(run or method.run, room, params), caller)
        done.add_done_callback(partial(self.counters.called, method.name, perf_counter()))
        return done

    def _begin(
        self, room: Room, method: Method, params: dict[str, Any], call: Callable[[], Any], caller: object
    ) -> JobFuture:
        if method.empty is not None and (seconds := method.patience(params)):
            look = partial(self.submit, call, caller, is_wait=True)
            return JobFuture.of(asyncio.ensure_future(self._wait(room, method, params, look, seconds)))
        if method.is_slow(params):
            return JobFuture.of(self._slowly(self._slow if method.slow else self._reading, call))
        if method.is_heavy(params):
            return JobFuture.of(self._slowly(self._large, call))
        return self.submit(call, caller, looks=not method.writes)

    def hear_out(self, caller: object, say: Callable[[], object]) -> None:
        """`say` submits what a caller has to say for now. Who was alone here the last time too is served at once:
        to look first whether others come takes the loop another round and a call of the system, 7 µs of 167.
        """
        if self._is_called:
            say()
            return
        self._is_called = True  # as far as the loop is concerned
        try:
            say()
        finally:
            self._is_called = False
            if self._alone is caller and self._queue.is_all_of(caller):
                self._serve()
            else:
                self._call_if_needed()

    def has_only(self, caller: object) -> bool:
        """Was the call of this one all there was to do, and is nothing else under way?"""
        return self._alone is caller and not self._queue and not self._under_way

    def submit(
        self,
        run: Callable[[], Any],
        caller: object = None,
        *,
        looks: bool = False,
        is_wait: bool = False,
        is_heavy: bool = False,
    ) -> JobFuture:
        """Something quick, in its turn; what one caller submits, in that order. `looks`: it changes nothing."""
        done = JobFuture()
        ticket = Job(run, done, caller, looks, is_wait, is_heavy)
        if self._is_closed:
            _refuse(ticket)
        else:
            self._queue.add(ticket)
            self._call()
        return done

    def _slowly(self, threads: ThreadPoolExecutor, run: Callable[[], Any]) -> asyncio.Future[Any]:
        if self._is_closed:
            done: asyncio.Future[Any] = self._loop.create_future()
            done.set_exception(_closing())
            return done
        work = threads.submit(run)
        self._under_way.add(work)
        work.add_done_callback(self._under_way.discard)
        return asyncio.wrap_future(work, loop=self._loop)

    def alive(self, agent: str | None) -> None:
        """Who asks for something is here. Called where calls are carried out, now and then for each agent."""
        now = self.room._core.now().steady
        if agent is None or now - self._seen.get(agent, -BEAT) < BEAT:
            return
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen[agent] = now
        try:
            with self._store.hurried():  # it is a courtesy: nobody waits for somebody else because of it
                self.room.mailbox(agent).heartbeat(active=True)
        except StoreBusy:
            self._seen.pop(agent, None)  # the next call tries again
        except PostroomError:  # not registered
            pass

    def came_or_went(self) -> None:
        """What we know of who is here may be wrong now."""
        self._seen.clear()

    async def run_slow(self, run: Callable[[], Any]) -> Any:
        """Something that may take long, on a thread of its own."""
        return await self._slowly(self._slow, run)

    def listen(self, mailboxes: Sequence[str]) -> AbstractContextManager[asyncio.Event]:
        """An event that is set whenever one of these mailboxes rings."""
        return self._ears.listen(mailboxes)

    @property
    def is_idle(self) -> bool:
        """Is no thread at work in the room?"""
        return not self._under_way

    async def close(self) -> None:
        """Finish what was begun, for a moment; drop what was not. Then let go of threads and ears. The room is its
        owner's.
        """
        self._is_closed = True
        for ticket in self._queue.take(sys.maxsize):
            _refuse(ticket)
        for threads in (self._beside, self._reading, self._slow, self._large):
            threads.shutdown(wait=False, cancel_futures=True)
        if work := list(self._under_way):
            await asyncio.wait([asyncio.wrap_future(one) for one in work], timeout=GRACE)
        self._ears.close()

    # -- serving

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Those whose turn it is. A few are done here, unless they would have to wait for somebody."""
        self._is_called = False
        if self._is_closed:
            return
        if self._away:
            self._serve_looks()
            return
        if self._queue.has_grown():
            self._call()  # several come at once: those who come with them are made safe by the same sync
            return
        batch = self._queue.take(MOST_AT_ONCE)
        if not batch:
            return
        self._alone = batch[0].caller if len(batch) == 1 else None
        self.counters.batches += 1
        self.counters.batched += len(batch)
        if len(batch) <= FEW and self._is_prompt and not [one for one in batch if one.is_heavy]:
            batch = batch[self._serve_at_once(batch) :]
        if batch:
            self._queue.put_back(batch)
            self._serve_looks()  # they need not wait with the others
            self._serve_beside(self._queue.take(MOST_AT_ONCE))
        else:
            self._call_if_needed()

    def _serve_at_once(self, batch: list[Job]) -> int:
        """How many of them. Those after it would have to wait for somebody who is in the room."""
        answers = self._together(batch, self._hurried)
        tell(batch, answers)
        return len(answers)

    def _serve_beside(self, batch: list[Job]) -> None:
        if not batch:
            return
        self._away = {ticket.caller for ticket in batch}
        away = self._slowly(self._beside, partial(self._together, batch, Job.outcome))
        away.add_done_callback(partial(self._back, batch))

    def _serve_looks(self) -> None:
        """While a batch is away, perhaps to wait for somebody: who only looks need not wait with it."""
        looks = self._queue.take_looks(self._away)
        if not looks:
            return
        try:
            with self._store.hurried():
                answers = self._together(looks, Job.outcome)
        except PostroomError as failing:  # the room cannot be opened
            answers = [failing] * len(looks)
        tell(looks, answers)
        self._queue.put_back(looks[len(answers) :])
        self._call()

    def _back(self, batch: list[Job], done: asyncio.Future[list[Any]]) -> None:
        self._away = set()
        answers: list[Any]
        if done.cancelled():
            answers = [_closing()] * len(batch)
        elif (broken := done.exception()) is not None:
            log.error("a batch of calls failed by a fault of ours", exc_info=broken)
            answers = [PostroomError("a fault of the house; its log says more")] * len(batch)
        else:
            answers = done.result()
        tell(batch, answers)
        rest = batch[len(answers) :]
        if self._is_closed:
            for ticket in rest:
                _refuse(ticket)
            return
        self._queue.put_back(rest)
        self._call_if_needed()

    def _call_if_needed(self) -> None:
        if self._queue:
            self._call()

    def _together(self, batch: list[Job], carry_out: Callable[[Job], Any]) -> list[Any]:
        """Carry out a batch; the answers, or an error in place of one. They are told when all of it is safe. When
        it takes long, there are answers to its beginning only: those who came first wait for no more.
        """
        began = perf_counter()
        try:
            answers = self._gathered(batch, carry_out, joined=len(batch) > 1)
        except Undone:
            answers = self._one_by_one(batch, carry_out)
        if [one for one in batch if not one.looks]:
            self._is_prompt = perf_counter() < began + PROMPT
        return answers

    def _gathered(self, batch: list[Job], carry_out: Callable[[Job], Any], *, joined: bool = False) -> list[Any]:
        answers: list[Any] = []
        end = perf_counter() + BUDGET
        try:
            with self._store.gathered(joined=joined):
                for ticket in batch:
                    answer = carry_out(ticket)
                    if answer is _LATER:
                        break
                    answers.append(answer)
                    if perf_counter() > end:
                        break
        except Undone:
            raise
        except BaseException as unsafe:
            if not isinstance(unsafe, Exception):
                raise
            if not isinstance(unsafe, PostroomError):
                log.exception("what was written could not be made safe, by a fault of ours")
            return [_unsafe(answer, unsafe) for answer in answers]
        return answers

    def _one_by_one(self, batch: list[Job], carry_out: Callable[[Job], Any]) -> list[Any]:
        """Each by itself, as far as that goes."""
        answers: list[Any] = []
        for ticket in batch:
            answer = self._gathered([ticket], carry_out)
            if not answer:
                break
            answers += answer
        return answers

    def _hurried(self, ticket: Job) -> Any:
        """What came of it; _LATER: somebody is in the room, and nothing was done."""
        with self._store.hurried() as has_committed:
            answer = ticket.outcome()
            return _LATER if isinstance(answer, StoreBusy) and not has_committed() else answer

    # -- waiting

    async def _wait(
        self,
        room: Room,
        method: Method,
        params: dict[str, Any],
        look: Callable[[], JobFuture],
        seconds: float,
    ) -> Any:
        is_empty = method.empty or bool
        answer = await look()
        end = self._loop.time() + seconds
        if not is_empty(answer):
            return answer
        mailboxes = [box_of(room, params).name]
        with self._ears.listen(mailboxes) as bell:
            while True:
                bell.clear()
                answer = await look()
                left = end - self._loop.time()
                if not is_empty(answer) or left <= 0:
                    return answer
                nap = seconds_to_sleep(room._core, mailboxes)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, nap)):
                        await bell.wait()


def _unsafe(answer: Any, error: Exception) -> Any:
    """Nothing may be told as done that is not safe."""
    if isinstance(answer, Exception):
        return answer
    if isinstance(error, PostroomError):
        result = StoreFailing(error.message, field=error.field, hint=error.hint)
    else:
        result = StoreFailing("a fault of the house; its log says more")
    if isinstance(answer, dict) and isinstance(id := answer.get("id") or answer.get("messageId"), str):
        result.keys = (id,)
    return result


def _refuse(ticket: Job) -> None:
    if not ticket.done.done():
        ticket.done.set_exception(_closing())


def _closing() -> StoreBusy:
    return StoreBusy("the post room closes", hint="try again")
