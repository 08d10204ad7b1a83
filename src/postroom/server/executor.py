"""The executor of a running post room: it carries out the calls of all transports, for many callers at once.

- Quick calls run in the order in which they came, callers in turn. The calls of one batch become durable with one
  sync, and their answers are sent only after it (G1).
- While no other job waits, a batch runs at once on the thread of the event loop; otherwise on a thread of its own,
  while the loop goes on accepting. The loop's thread never waits for the lock of the room.
- Calls that may take long run on other threads. Calls that name very many letters or recipients share one thread,
  so that small calls get their turn in between.
- A caller that waits for mail holds no thread: it sleeps until its mailbox is notified.

`JobFuture` is the result of one call, `Job` and `JobQueue` hold the calls that wait for their turn, `ReplyQueue`
keeps one caller's replies in order and bounded, and `Executor` runs the jobs. Sockets and message formats are not
known here. Except for the calls themselves, everything happens on the thread of the event loop.
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

from ..core.agents import RecordHeartbeat
from ..core.authorize import OWNER
from ..core.inbox import seconds_to_sleep
from ..core.verb import authorised, from_params, perform
from ..errors import PostroomError, StoreBusy, StoreFailing
from ..store.protocol import Undone
from ..watcher import SharedWatcher
from . import requests
from .counters import Counters
from .protocol import Request, find_verb
from .requests import in_json, patience

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.verb import Verb


log = logging.getLogger("postroom")
INTERNAL = "internal error; the log of the post room says more"  # answered to a caller that met a bug
_PENDING: Any = object()  # the result of a future that is not settled


class JobFuture:
    """The future result of one call, settled once: with a result, with an error, or by cancelling it.

    Unlike a future of asyncio it runs its callbacks at once when it is settled, not in another round of the event
    loop. A call over the socket passes several of them, and a round costs as much as a small call.
    """

    __slots__ = ("_callbacks", "_convert", "_error", "_is_cancelled", "_result")

    def __init__(self) -> None:
        self._result: Any = _PENDING
        self._error: BaseException | None = None
        self._is_cancelled = False
        self._convert: Callable[[BaseException | None, Any], Any] | None = None
        self._callbacks: list[Callable[[JobFuture], object]] = []

    @classmethod
    def of(cls, future: asyncio.Future[Any]) -> JobFuture:
        """Return a future that follows this future of asyncio. Cancelling one cancels the other."""
        result = cls()
        result.add_done_callback(lambda result: future.cancel() if result.cancelled() else None)
        future.add_done_callback(result._copy_from)
        return result

    def done(self) -> bool:
        return self._result is not _PENDING

    def cancelled(self) -> bool:
        return self._is_cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def map_result(self, convert: Callable[[BaseException | None, Any], Any]) -> JobFuture:
        """Replace the result by `convert(error, result)`, computed when the result is first read."""
        self._convert = convert
        return self

    def result(self) -> Any:
        if self._convert is not None:
            convert, self._convert = self._convert, None
            self._result, self._error = convert(self._error, self._result), None
        if self._error is not None:
            raise self._error
        return self._result

    def set_result(self, result: Any) -> None:
        self._result = result
        self._run_callbacks()

    def set_exception(self, error: BaseException) -> None:
        self._result, self._error = None, error
        self._run_callbacks()

    def settle(self, answer: Any) -> None:
        """Set the result, or the error if the answer is one, unless the future was cancelled."""
        if self._result is _PENDING:
            if isinstance(answer, Exception):
                self.set_exception(answer)
            else:
                self._result = answer
                self._run_callbacks()

    def cancel(self) -> bool:
        """Give up on the result. Return False if it was settled before."""
        if self.done():
            return False
        self._is_cancelled = True
        self.set_exception(asyncio.CancelledError())
        return True

    def add_done_callback(self, call: Callable[[JobFuture], object]) -> None:
        """Call `call` when the future is settled; at once if it is already."""
        if self._result is not _PENDING:
            call(self)
        else:
            self._callbacks.append(call)

    async def wait(self) -> None:
        """Wait until the future is settled in any way. If the waiting task is cancelled, so is the future."""
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

    def _copy_from(self, future: asyncio.Future[Any]) -> None:
        if self.done():
            return
        if future.cancelled():
            self.cancel()
        elif (error := future.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(future.result())

    def _run_callbacks(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for call in callbacks:
            try:
                call(self)
            except Exception:  # boundary: a bug in one callback must not keep the others from being called
                log.exception("a callback of a call failed because of a bug")


# -- jobs that wait for their turn

MAX_ON_LOOP = 16  # calls that are done on the loop's own thread


class Job:
    """One call that waits for its turn."""

    __slots__ = ("caller", "done", "is_heavy", "is_read_only", "is_wait", "run")

    def __init__(
        self,
        run: Callable[[], Any],
        done: JobFuture,
        caller: object,
        is_read_only: bool = False,
        is_wait: bool = False,
        is_heavy: bool = False,
    ) -> None:
        self.run = run
        self.done = done
        self.caller = caller
        self.is_read_only = is_read_only
        self.is_wait = is_wait  # does it wait for mail? then it is dropped once its caller is gone
        self.is_heavy = is_heavy  # does it name so many letters or recipients that it keeps others waiting?

    def execute(self) -> Any:
        """Run the call and return its result, or the exception it raised."""
        if self.is_wait and self.done.done():  # the caller is gone: do not hand out a letter that nobody receives
            return None
        try:
            return self.run()
        except Exception as error:  # boundary: a bug met by one caller is answered to it; the other calls go on
            return error


class JobQueue:
    """The jobs that wait: each caller's in their order, and callers in turn, so that a caller with many calls does
    not keep the others waiting.
    """

    def __init__(self) -> None:
        self._lines: dict[object, deque[Job]] = {}
        self._last_count = 0  # callers in the queue at the last call of `has_grown`

    def __bool__(self) -> bool:
        return bool(self._lines)

    def has_grown(self) -> bool:
        """Return whether more callers came since the last call, and there are several but not many yet."""
        before, now = self._last_count, len(self._lines)
        self._last_count = now
        return 1 < now < MAX_ON_LOOP and before < now

    def holds_only(self, caller: object) -> bool:
        """Return whether jobs of this caller are here, and none of others."""
        return len(self._lines) == 1 and caller in self._lines

    def add(self, job: Job) -> None:
        self._lines.setdefault(job.caller, deque()).append(job)

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Put jobs that were taken and not begun back to the front."""
        lines: dict[object, deque[Job]] = {}
        for job in jobs:
            lines.setdefault(job.caller, deque()).append(job)
        for caller, line in self._lines.items():
            lines.setdefault(caller, deque()).extend(line)
        self._lines = lines

    def take(self, most: int) -> list[Job]:
        """Remove and return at most so many jobs, one of each caller in turn."""
        taken: list[Job] = []
        self._last_count = 0
        while self._lines and len(taken) < most:
            caller = next(iter(self._lines))
            line = self._lines.pop(caller)
            taken.append(line.popleft())
            if line:
                self._lines[caller] = line  # behind the others
        return taken

    def take_read_only(self, busy: set[object]) -> list[Job]:
        """Remove and return the read-only jobs that are next of their caller, except of `busy` callers: a job
        never overtakes another of the same caller.
        """
        free = [caller for caller, line in self._lines.items() if caller not in busy and line[0].is_read_only]
        taken = [self._lines[caller].popleft() for caller in free]
        for caller in free:
            if not self._lines[caller]:
                del self._lines[caller]
        return taken


def settle_all(batch: list[Job], answers: list[Any]) -> None:
    """Settle the first jobs of a batch, as many as there are answers."""
    for job, answer in zip(batch, answers, strict=False):
        job.done.settle(answer)


# -- replies to one caller

MAX_PENDING = 64  # calls of one caller that are under way at once
INITIAL_PENDING = 8  # before the size of any reply is known
MAX_BYTES = 1024 * 1024  # of replies that wait, and of the requests under way; one of each more at most


class ReplyQueue:
    """One caller's replies in the order of its requests, and whether another request may be begun.

    The size of a reply is known only when it is there. So a caller starts with a few calls at once; each small
    reply allows more, each large one fewer. What waits in memory for one caller stays bounded.

    `carry_out` begins a request; `settled` is called when the next reply may be there.
    """

    def __init__(self, carry_out: Callable[[Request], JobFuture], settled: Callable[[], object]) -> None:
        self._carry_out = carry_out
        self._settled = settled
        self._replies: deque[tuple[JobFuture, int]] = deque()  # with the size of the request
        self._pending_bytes = 0  # the sum of these sizes
        self._is_exclusive = False  # is a request carried out that nothing may overtake?
        self._max_pending = INITIAL_PENDING

    def __bool__(self) -> bool:
        return bool(self._replies)

    def has_room(self, request: Request | dict[str, Any]) -> bool:
        """Return whether this may be begun. A long request overtakes nothing, and nothing overtakes it."""
        if not self._replies:
            return True
        is_alone = isinstance(request, Request) and request.is_alone
        return not is_alone and not self._is_exclusive and len(self._replies) < self._max_pending

    def may_read(self, size: int) -> bool:
        """Return whether a request of so many bytes may be parsed; in memory it may be many times as large."""
        return not self._replies or self._pending_bytes + size <= MAX_BYTES

    def begin(self, request: Request | dict[str, Any], size: int = 0) -> None:
        """Carry out a request of `size` bytes, or queue the reply to it that is known already."""
        if isinstance(request, Request):
            self._is_exclusive = request.is_alone
            reply = self._carry_out(request)
        else:
            reply = JobFuture()
            reply.set_result(request)
        self._replies.append((reply, size))
        self._pending_bytes += size
        reply.add_done_callback(lambda _: self._settled())

    def take(self) -> Iterator[Any]:
        """Yield the replies that are there, up to the first that is not."""
        while self._replies and self._replies[0][0].done():
            future, size = self._replies.popleft()
            self._pending_bytes -= size
            reply = None if future.cancelled() else future.result()
            if reply is not None:
                yield reply
        self._is_exclusive = self._is_exclusive and bool(self._replies)

    def note_size(self, size: int) -> None:
        """Note the size of a reply in bytes: the next ones may be as large."""
        self._max_pending = max(1, min(MAX_PENDING, 2 * self._max_pending, MAX_BYTES // max(size, 1)))


# -- running jobs

MAX_SLOW_THREADS = 4
BATCH_SECONDS = 0.03  # of work after which the callers of a batch are answered
CLOSE_SECONDS = 0.3  # for calls under way when the executor closes
ACTIVITY_SECONDS = 20.0  # between two heartbeats that are recorded for one agent
MAX_AGENTS = 10_000  # whose last heartbeat is remembered
MAX_BATCH = 256  # calls made durable by one sync; more would keep the first of them waiting
PROMPT_SECONDS = 0.005  # a batch that writes runs on the loop's thread if the last one took less
_NOT_RUN: Any = object()  # in place of an answer: the store was busy, and nothing was done


class PeerLinks(Protocol):
    """The links to other systems, as far as callers may ask about them."""

    def describe(self) -> list[dict[str, Any]]: ...
    async def ping(self, system: str) -> dict[str, Any]: ...


class Executor:
    """Carries out calls for all transports. It must be made inside an event loop."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.links: PeerLinks | None = None  # None: there are no links to other systems
        self.counters = Counters()
        self._store = self.core.store
        self._loop = asyncio.get_running_loop()
        self._watcher = SharedWatcher(self._store)
        self._queue = JobQueue()
        self._last_active: dict[str, float] = {}  # agents, and when their activity was last recorded
        self._is_scheduled = False  # will the loop call `_serve`?
        self._last_only_caller: object = None  # the caller of the last batch, if that was a single call
        self._busy_callers: set[object] = set()  # whose calls the batch thread is carrying out
        self._under_way: set[Future[Any]] = set()  # on any thread, though nobody may wait for it any more
        self._is_closed = False
        self._is_prompt = True  # did the last batch that wrote take less than PROMPT_SECONDS?
        self._batch_thread = ThreadPoolExecutor(1, thread_name_prefix="postroom-batch")
        self._read_threads = ThreadPoolExecutor(MAX_SLOW_THREADS, thread_name_prefix="postroom-reading")
        self._slow_threads = ThreadPoolExecutor(MAX_SLOW_THREADS, thread_name_prefix="postroom-slow")
        # One thread: between two large commits the room's lock is free, and the small ones get their turn.
        self._large_thread = ThreadPoolExecutor(1, thread_name_prefix="postroom-large")

    async def call(self, principal: Principal, name: str, params: Mapping[str, Any]) -> Any:
        """Carry out a verb for a caller, and return its result."""
        request = from_params(find_verb(name), params)

        def look() -> Any:
            return authorised(self.core, principal, request)()

        return await self.carry_out(request, look)

    def carry_out(self, request: Verb, run: Callable[[], Any], caller: object = None) -> JobFuture:
        """Carry out a request by `run`, which looks once and returns the result; the future holds it as JSON.
        Quick calls of one caller are done in the order in which they came.
        """
        done = self._begin(request, run, caller)
        done.add_done_callback(partial(self.counters.called, request.declaration().name, perf_counter()))
        return done

    def _begin(self, request: Verb, run: Callable[[], Any], caller: object) -> JobFuture:
        if seconds := patience(request):
            look = partial(self.submit, run, caller, is_wait=True)
            return JobFuture.of(asyncio.ensure_future(self._wait(request, look, seconds)))
        declaration = request.declaration()

        def call() -> Any:
            return in_json(run())

        if requests.is_slow(request):
            return JobFuture.of(self._run_on(self._slow_threads if declaration.slow else self._read_threads, call))
        if requests.is_heavy(request):
            return JobFuture.of(self._run_on(self._large_thread, call))
        return self.submit(call, caller, is_read_only=not declaration.writes)

    def submit_from(self, caller: object, submit: Callable[[], object]) -> None:
        """Call `submit`, which submits all that one caller has sent so far. A caller that was alone the last time,
        too, is served at once: looking first whether others come takes the loop another round and a system call,
        7 µs of 167.
        """
        if self._is_scheduled:
            submit()
            return
        self._is_scheduled = True  # so that `submit` does not schedule `_serve`: it may be called right here
        try:
            submit()
        finally:
            self._is_scheduled = False
            if self._last_only_caller is caller and self._queue.holds_only(caller):
                self._serve()
            else:
                self._schedule_if_needed()

    def is_only_caller(self, caller: object) -> bool:
        """Return whether this caller's call was the whole last batch, and nothing else waits or runs."""
        return self._last_only_caller is caller and not self._queue and not self._under_way

    def submit(
        self,
        run: Callable[[], Any],
        caller: object = None,
        *,
        is_read_only: bool = False,
        is_wait: bool = False,
        is_heavy: bool = False,
    ) -> JobFuture:
        """Carry out something quick when its caller's turn comes; calls of one caller keep their order."""
        done = JobFuture()
        job = Job(run, done, caller, is_read_only, is_wait, is_heavy)
        if self._is_closed:
            _refuse(job)
        else:
            self._queue.add(job)
            self._schedule()
        return done

    def _run_on(self, threads: ThreadPoolExecutor, run: Callable[[], Any]) -> asyncio.Future[Any]:
        if self._is_closed:
            done: asyncio.Future[Any] = self._loop.create_future()
            done.set_exception(_closing_error())
            return done
        work = threads.submit(run)
        self._under_way.add(work)
        work.add_done_callback(self._under_way.discard)
        return asyncio.wrap_future(work, loop=self._loop)

    def record_activity(self, agent: str | None) -> None:
        """Record that this agent is active, at most every ACTIVITY_SECONDS."""
        now = self.core.now().steady
        if agent is None or now - self._last_active.get(agent, -ACTIVITY_SECONDS) < ACTIVITY_SECONDS:
            return
        if len(self._last_active) >= MAX_AGENTS:
            self._last_active.clear()
        self._last_active[agent] = now
        try:
            with self._store.hurried():  # a heartbeat is optional: no caller waits for the store's lock for it
                perform(self.core, OWNER, RecordHeartbeat(agent_id=agent, active=True))
        except StoreBusy:
            self._last_active.pop(agent, None)  # the next call tries again
        except PostroomError:  # not registered
            pass

    def forget_activity(self) -> None:
        """Forget when agents were last recorded as active: one of them changed its own status."""
        self._last_active.clear()

    async def run_slow(self, run: Callable[[], Any]) -> Any:
        """Run something that may take long on another thread, and return its result."""
        return await self._run_on(self._slow_threads, run)

    def listen(self, mailboxes: Sequence[str]) -> AbstractContextManager[asyncio.Event]:
        """Return an event that is set whenever one of these mailboxes is notified."""
        return self._watcher.listen(mailboxes)

    @property
    def is_idle(self) -> bool:
        """Return whether no thread is at work in the room."""
        return not self._under_way

    async def close(self) -> None:
        """Refuse the jobs that wait, give those under way CLOSE_SECONDS, and stop threads and notifications. The
        room stays open: its owner closes it.
        """
        self._is_closed = True
        for job in self._queue.take(sys.maxsize):
            _refuse(job)
        for threads in (self._batch_thread, self._read_threads, self._slow_threads, self._large_thread):
            threads.shutdown(wait=False, cancel_futures=True)
        if work := list(self._under_way):
            await asyncio.wait([asyncio.wrap_future(one) for one in work], timeout=CLOSE_SECONDS)
        self._watcher.close()

    # -- serving

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        """Carry out the next batch: here if it is small and the store's lock is free, else on the batch thread."""
        self._is_scheduled = False
        if self._is_closed:
            return
        if self._busy_callers:
            self._serve_read_only()
            return
        if self._queue.has_grown():
            self._schedule()  # several callers come at once: one more round, and one sync serves them all
            return
        batch = self._queue.take(MAX_BATCH)
        if not batch:
            return
        self._last_only_caller = batch[0].caller if len(batch) == 1 else None
        self.counters.batches += 1
        self.counters.batched += len(batch)
        if len(batch) <= MAX_ON_LOOP and self._is_prompt and not [one for one in batch if one.is_heavy]:
            batch = batch[self._serve_on_loop(batch) :]
        if batch:
            self._queue.put_back(batch)
            self._serve_read_only()  # readers need not wait with the writers
            self._serve_on_thread(self._queue.take(MAX_BATCH))
        else:
            self._schedule_if_needed()

    def _serve_on_loop(self, batch: list[Job]) -> int:
        """Carry out a batch on the loop's thread until a job would have to wait for the store's lock. Return how
        many were done.
        """
        answers = self._run_batch(batch, self._try_now)
        settle_all(batch, answers)
        return len(answers)

    def _serve_on_thread(self, batch: list[Job]) -> None:
        if not batch:
            return
        self._busy_callers = {job.caller for job in batch}
        done = self._run_on(self._batch_thread, partial(self._run_batch, batch, Job.execute))
        done.add_done_callback(partial(self._finish_batch, batch))

    def _serve_read_only(self) -> None:
        """Carry out read-only jobs on the loop's thread while the batch thread may wait for the store's lock."""
        batch = self._queue.take_read_only(self._busy_callers)
        if not batch:
            return
        try:
            with self._store.hurried():
                answers = self._run_batch(batch, Job.execute)
        except PostroomError as failing:  # the room cannot be opened
            answers = [failing] * len(batch)
        settle_all(batch, answers)
        self._queue.put_back(batch[len(answers) :])
        self._schedule()

    def _finish_batch(self, batch: list[Job], done: asyncio.Future[list[Any]]) -> None:
        self._busy_callers = set()
        answers: list[Any]
        if done.cancelled():
            answers = [_closing_error()] * len(batch)
        elif (broken := done.exception()) is not None:
            log.error("a batch of calls failed because of a bug", exc_info=broken)
            answers = [PostroomError(INTERNAL)] * len(batch)
        else:
            answers = done.result()
        settle_all(batch, answers)
        rest = batch[len(answers) :]
        if self._is_closed:
            for job in rest:
                _refuse(job)
            return
        self._queue.put_back(rest)
        self._schedule_if_needed()

    def _schedule_if_needed(self) -> None:
        if self._queue:
            self._schedule()

    def _run_batch(self, batch: list[Job], carry_out: Callable[[Job], Any]) -> list[Any]:
        """Carry out a batch and make it durable with one sync. Return the answers, an error in place of some.
        After BATCH_SECONDS it stops, and only the first jobs have answers: the callers that came first wait no
        longer.
        """
        began = perf_counter()
        try:
            answers = self._run_in_one_commit(batch, carry_out, joined=len(batch) > 1)
        except Undone:
            answers = self._run_separately(batch, carry_out)
        if [one for one in batch if not one.is_read_only]:
            self._is_prompt = perf_counter() < began + PROMPT_SECONDS
        return answers

    def _run_in_one_commit(
        self, batch: list[Job], carry_out: Callable[[Job], Any], *, joined: bool = False
    ) -> list[Any]:
        answers: list[Any] = []
        end = perf_counter() + BATCH_SECONDS
        try:
            with self._store.gathered(joined=joined):
                for job in batch:
                    answer = carry_out(job)
                    if answer is _NOT_RUN:
                        break
                    answers.append(answer)
                    if perf_counter() > end:
                        break
        except Undone:
            raise
        except Exception as failure:  # boundary: whatever failed, no answer may claim what is not durable (G1)
            if not isinstance(failure, PostroomError):
                log.exception("writes could not be made durable because of a bug")
            return [_not_durable(answer, failure) for answer in answers]
        return answers

    def _run_separately(self, batch: list[Job], carry_out: Callable[[Job], Any]) -> list[Any]:
        """Carry out each job in a commit of its own, until one would have to wait."""
        answers: list[Any] = []
        for job in batch:
            answer = self._run_in_one_commit([job], carry_out)
            if not answer:
                break
            answers += answer
        return answers

    def _try_now(self, job: Job) -> Any:
        """Carry out a job without waiting for the store's lock. Return its answer, or _NOT_RUN if it was taken."""
        with self._store.hurried() as has_committed:
            answer = job.execute()
            return _NOT_RUN if isinstance(answer, StoreBusy) and not has_committed() else answer

    # -- waiting

    async def _wait(self, request: Verb, look: Callable[[], JobFuture], seconds: float) -> Any:
        """Look until there is a result that is not empty, or the time is over; return it as JSON. Between two
        looks it sleeps until a mailbox is notified, or until a letter in it comes due.
        """
        found = await look()
        end = self._loop.time() + seconds
        if not request.is_empty(found):
            return in_json(found)
        mailboxes = request.mailboxes()
        with self._watcher.listen(mailboxes) as notified:
            while True:
                notified.clear()  # before looking: what comes during the look must wake us
                found = await look()
                left = end - self._loop.time()
                if not request.is_empty(found) or left <= 0:
                    return in_json(found)
                nap = seconds_to_sleep(self.core, mailboxes)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, nap)):
                        await notified.wait()


def _not_durable(answer: Any, error: Exception) -> Any:
    """Return the error that replaces the answer of a call whose sync failed. It names the message, so that a
    caller can look whether it is there all the same.
    """
    if isinstance(answer, Exception):
        return answer
    if isinstance(error, PostroomError):
        failing = StoreFailing(error.message, field=error.field, hint=error.hint)
    else:
        failing = StoreFailing(INTERNAL)
    if isinstance(answer, dict) and isinstance(id := answer.get("id") or answer.get("messageId"), str):
        failing.keys = (id,)
    return failing


def _refuse(job: Job) -> None:
    if not job.done.done():
        job.done.set_exception(_closing_error())


def _closing_error() -> StoreBusy:
    return StoreBusy("the post room closes", hint="try again")
