"""The executor of a running post room: it carries out the calls of all transports, for many callers at once.

- One thread writes. It carries out the calls that are there, and those that come meanwhile, and makes them durable
  with one sync; their answers are sent only after it (G1).
- A few threads read. Calls that may return very much, calls that may take long, and calls that name very many
  letters or recipients have threads of their own, so that small calls get their turn in between.
- No call is carried out on the thread of the event loop. The calls of one caller are carried out in their order.
- A caller that waits for mail holds no thread: it sleeps until its mailbox is notified.

Sockets and message formats are not known here. Except for the calls themselves, everything happens on the thread
of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..core.agents import RecordHeartbeat
from ..core.authorize import OWNER
from ..core.verb import authorised, from_params, perform, seconds_to_sleep, set_parameters
from ..errors import PostroomError, StoreBusy, StoreFailing
from ..model.codec import encode
from ..watcher import SharedWatcher
from .protocol import find_verb
from .requests import Schedule, in_json, patience, schedule_of
from .visits import Visits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import TypeVar

    from ..core.authorize import Principal
    from ..core.core import Core
    from ..core.verb import Verb
    from ..federation.exchange import Exchange

    T = TypeVar("T")
    Finish = Callable[[BaseException | None, Any], Any]  # makes the reply of a call of its error and its result


log = logging.getLogger("postroom")
INTERNAL = "internal error; the log of the post room says more"  # answered to a caller that met a bug
READ_THREADS = 2
SLOW_THREADS = 4
BATCH_SECONDS = 0.03  # of work after which the callers of a batch are answered
CLOSE_SECONDS = 0.3  # for calls under way when the executor closes
ACTIVITY_SECONDS = 20.0  # between two heartbeats that are recorded for one agent
MAX_AGENTS = 10_000  # whose last heartbeat is remembered
MAX_LONG = 4  # long requests of all connections that are parsed or under way at once
MAX_SHARED = 100  # results of shared looks that are kept
MAX_BATCH = 256  # calls made durable by one sync; more would keep the first of them waiting


# -- what is counted

OK = "ok"
GONE = "gone"  # the outcome of a call that was cancelled: nobody waited for the answer any more


class Counters:
    """Numbers of a running server for `/metrics`, used on the thread of the event loop alone: some that only grow,
    and functions that return those that go up and down.
    """

    def __init__(self) -> None:
        self.began = perf_counter()
        self.calls: dict[tuple[str, str], int] = {}  # by method and outcome
        self.seconds: dict[str, float] = {}  # from a call's arrival to its answer, by method; waiting included
        self.batches = 0  # of calls; each is made durable by one sync at most
        self.batched = 0  # calls in them
        self.connections: dict[str, Callable[[], int]] = {}  # open now, by transport
        self.rings: dict[tuple[str, str], int] = {}  # calls of webhooks, by webhook and outcome
        self.subscribers: Callable[[], int] = int  # set by the broker; 0 until then

    def called(self, method: str, began: float, error: BaseException | None, *, is_gone: bool = False) -> None:
        """Count a call that is over."""
        outcome = GONE if is_gone else OK if error is None else type(error).__name__
        self.calls[method, outcome] = self.calls.get((method, outcome), 0) + 1
        self.seconds[method] = self.seconds.get(method, 0.0) + perf_counter() - began

    def rang(self, webhook: str, outcome: str) -> None:
        """Count a call of a webhook."""
        self.rings[webhook, outcome] = self.rings.get((webhook, outcome), 0) + 1

    @property
    def uptime(self) -> float:
        return perf_counter() - self.began


# -- looks that serve all callers

SHARED_SECONDS = 2.0  # for which one look serves all callers, at least
SHARED_COST = 20  # and at least so many times as long as it took


class SharedLooks:
    """The results of verbs that cost much and do not depend on the caller (`shared`): one look serves all of them
    for a while, however many ask. Used on the threads that carry out calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: dict[bytes, tuple[float, Any]] = {}  # by the request: until when it serves, and its result
        self._under_way: dict[bytes, threading.Lock] = {}

    def result(self, request: Verb, look: Callable[[], Any]) -> Any:
        """Return the result of a look that is fresh enough; make one if there is none."""
        key = encode([request.declaration().name, set_parameters(request)])
        with self._lock:
            own = self._under_way.setdefault(key, threading.Lock())
        with own:
            until, result = self._looks.get(key, (0.0, None))
            began = perf_counter()
            if until <= began:
                result = look()
                spent = perf_counter() - began
                with self._lock:
                    if len(self._looks) >= MAX_SHARED:
                        self._looks.clear()
                        self._under_way.clear()
                    self._looks[key] = perf_counter() + max(SHARED_SECONDS, SHARED_COST * spent), result
        return result


# -- jobs


class Job:
    """One call that waits for its turn. `finish` makes its reply of the error and the result; without it the
    future holds the result itself. `threads` carry it out; None: the thread that writes.
    """

    __slots__ = ("began", "caller", "done", "finish", "is_wait", "name", "run", "threads")

    def __init__(
        self,
        run: Callable[[], Any],
        caller: object,
        threads: ThreadPoolExecutor | None,
        *,
        name: str = "",
        finish: Finish | None = None,
        is_wait: bool = False,
    ) -> None:
        self.run = run
        self.caller = caller  # None: its order does not matter
        self.threads = threads
        self.name = name  # of the verb, for the counters
        self.finish = finish
        self.is_wait = is_wait  # does it wait for mail? then it is dropped once its caller is gone
        self.began = perf_counter()
        self.done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class Line:
    """The jobs of one caller: how many are under way, all on the same threads, and those that wait for them."""

    __slots__ = ("running", "threads", "waiting")

    def __init__(self, threads: ThreadPoolExecutor | None) -> None:
        self.threads = threads
        self.running = 0
        self.waiting: deque[Job] = deque()

    def admits(self, job: Job) -> bool:
        """Return whether a job may begin now: it is the first, or the others under way are writes as it is."""
        return not self.running or (self.threads is None and job.threads is None)


class LongRequests:
    """The long requests of all connections that are parsed or under way; others wait for them."""

    def __init__(self) -> None:
        self._free = MAX_LONG
        self._waiting: dict[Callable[[], None], None] = {}  # the longest first

    def enter(self, go_on: Callable[[], None]) -> bool:
        """Return whether one may be begun. If not, `go_on` is called when it may."""
        if not self._free:
            self._waiting[go_on] = None
            return False
        self._free -= 1
        return True

    def leave(self, _: object = None) -> None:
        self._free += 1
        if self._waiting:
            go_on = next(iter(self._waiting))
            del self._waiting[go_on]
            go_on()


_ALL = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()  # processors


def _stay_on(processors: set[int]) -> None:
    if processors:
        os.sched_setaffinity(0, processors)


def stay_on_one_processor() -> None:
    """Keep this thread, and those that it begins, on one processor; call it before the executor is made.

    The thread of the loop and the thread that writes pass every call to each other and never run at once. On two
    processors each would find its caches cold: eight clients sent 0.65 as much, one client 0.8. Threads that read
    use all processors.
    """
    _stay_on({sorted(_ALL)[os.getpid() % len(_ALL)]} if _ALL else _ALL)


class Executor:
    """Carries out calls for all transports. It must be made inside an event loop."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.links: Exchange | None = None  # None: there are no links to other systems
        self.counters = Counters()
        self.long_requests = LongRequests()
        self.visits = Visits(core.now().wall)
        self.shared_looks = SharedLooks()
        self._store = core.store
        self._loop = asyncio.get_running_loop()
        self._watcher = SharedWatcher(core)
        self._lines: dict[object, Line] = {}  # of the callers that have asked for something
        self._last_active: dict[str, float] = {}  # agents, and when their activity was last recorded
        self._under_way = 0  # jobs given to any thread, though nobody may wait for them any more
        self._is_closed = False
        self._all_done = asyncio.Event()  # set when nothing is under way any more after it was closed
        self._writes: SimpleQueue[Job | None] = SimpleQueue()
        # One thread writes for all callers: commits wait for each other anyway, and together they share one
        # sync.
        threading.Thread(target=self._write, name="postroom-writing", daemon=True).start()
        self._pools = {
            kind: ThreadPoolExecutor(many, f"postroom-{kind.name.lower()}", _stay_on, (_ALL,))
            for kind, many in (
                (Schedule.READ, READ_THREADS),
                (Schedule.MANY, SLOW_THREADS),
                (Schedule.SLOW, SLOW_THREADS),
                # One thread: between two large commits the room's lock is free, and the small ones get their turn.
                (Schedule.LARGE, 1),
            )
        }

    async def open_store(self) -> None:
        """Open the store on the threads that write and read. A thread that opens it later may have to wait for a
        writer, which may wait for another process.
        """
        all_begun = threading.Barrier(READ_THREADS)  # so that each thread takes one

        def open_here() -> None:
            all_begun.wait()
            self._store.cursor()

        readers = [self.submit(open_here, kind=Schedule.READ) for _ in range(READ_THREADS)]
        await asyncio.gather(self.submit(self._store.cursor), *readers)

    # -- asking for something

    async def call(self, principal: Principal, name: str, params: Mapping[str, Any]) -> Any:
        """Carry out a verb for a caller, and return its result."""
        request = from_params(find_verb(name), params)

        def look() -> Any:
            return authorised(self.core, principal, request)()

        return await self.carry_out(request, look)

    def carry_out(
        self,
        request: Verb,
        run: Callable[[], Any],
        caller: object = None,
        finish: Finish | None = None,
        kind: Schedule | None = None,
    ) -> asyncio.Future[Any]:
        """Carry out a request by `run`, which looks once and returns the result; the future holds it as JSON, or
        what `finish` makes of it. What one caller asks for is done in the order in which it came.
        """
        kind, name = kind or schedule_of(request), request.declaration().name
        if kind is Schedule.WAIT:
            return self._wait(request, Job(run, caller, None, name=name, finish=finish))
        threads = None if kind is Schedule.WRITE else self._pools[kind]
        return self._add(Job(lambda: in_json(request, run()), caller, threads, name=name, finish=finish))

    def submit(
        self, run: Callable[[], T], caller: object = None, kind: Schedule = Schedule.WRITE
    ) -> asyncio.Future[T]:
        """Run something when its caller's turn comes, and return its future result."""
        return self._add(Job(run, caller, None if kind is Schedule.WRITE else self._pools[kind]))

    def read(self, run: Callable[..., T], *words: Any, caller: object = None) -> asyncio.Future[T]:
        """Read the store on a thread, and return the future result: the loop's thread never opens the store."""
        return self._add(Job(partial(run, *words), caller, self._pools[Schedule.READ]))

    async def run_slow(self, run: Callable[[], T]) -> T:
        """Run something that may take long on another thread, and return its result."""
        return await self.submit(run, kind=Schedule.SLOW)

    def listen(self, mailboxes: Sequence[str]) -> AbstractContextManager[asyncio.Event]:
        """Return an event that is set whenever one of these mailboxes is notified."""
        return self._watcher.listen(mailboxes)

    def note_activity(self, agent: str | None) -> None:
        """Record that this agent is active, at most every ACTIVITY_SECONDS, with the next batch."""
        now = self._loop.time()
        if agent is None or now - self._last_active.get(agent, -ACTIVITY_SECONDS) < ACTIVITY_SECONDS:
            return
        if len(self._last_active) >= MAX_AGENTS:
            self._last_active.clear()
        self._last_active[agent] = now
        self.submit(partial(perform, self.core, OWNER, RecordHeartbeat(agent_id=agent, active=True)))

    def forget_activity(self) -> None:
        """Forget when agents were last recorded as active: one of them changed its own status."""
        self._last_active.clear()

    # -- closing

    @property
    def is_idle(self) -> bool:
        """Return whether no thread is at work in the room."""
        return not self._under_way

    async def close(self) -> None:
        """Refuse the jobs that wait, give those under way CLOSE_SECONDS, and stop threads and notifications. The
        room stays open: its owner closes it.
        """
        self._is_closed = True
        self._refuse_waiting()
        self._writes.put(None)
        for threads in self._pools.values():
            threads.shutdown(wait=False)
        if self._under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await self._all_done.wait()
        self._watcher.close()

    def _refuse_waiting(self) -> None:
        for line in self._lines.values():
            while line.waiting:
                self._settle(line.waiting.popleft(), _closing_error())

    # -- turns

    def _add(self, job: Job) -> asyncio.Future[Any]:
        if self._is_closed:
            self._settle(job, _closing_error())
        elif job.caller is None:
            self._start(job)
        else:
            line = self._lines.get(job.caller)
            if line is None:
                line = self._lines[job.caller] = Line(job.threads)
            if line.waiting or not line.admits(job):
                line.waiting.append(job)
            else:
                line.running += 1
                self._start(job)
        return job.done

    def _start(self, job: Job) -> None:
        self._under_way += 1
        if job.threads is None:
            self._writes.put(job)
        else:
            job.threads.submit(self._run_job, job)

    def _run_job(self, job: Job) -> None:
        """Carry out one job; on a thread that reads."""
        self._report([job], [self._execute(job)])

    def _execute(self, job: Job) -> Any:
        """Run a call and return its result, or the exception it raised; on any thread."""
        if self._is_closed:
            return _closing_error()
        if job.is_wait and job.done.done():  # the caller is gone: do not hand out a letter that nobody receives
            return None
        try:
            return job.run()
        except Exception as error:  # boundary: a bug met by one caller is answered to it; the other calls go on
            return error

    def _report(self, jobs: list[Job], answers: list[Any]) -> None:
        with suppress(RuntimeError):  # the event loop has ended: nobody waits for the answers
            self._loop.call_soon_threadsafe(self._finish, jobs, answers)

    def _finish(self, jobs: list[Job], answers: list[Any]) -> None:
        """Settle jobs that were carried out, and let their callers go on."""
        self._under_way -= len(jobs)
        if jobs[0].threads is None:
            self.counters.batches += 1
            self.counters.batched += len(jobs)
        for job, answer in zip(jobs, answers, strict=True):
            self._settle(job, answer)
            if job.caller is not None:
                self._go_on(job.caller)
        if self._is_closed and not self._under_way:
            self._all_done.set()

    def _go_on(self, caller: object) -> None:
        """Start the jobs of a caller that waited for the one that is over."""
        line = self._lines[caller]
        line.running -= 1
        while line.waiting and line.admits(line.waiting[0]):
            job = line.waiting.popleft()
            line.threads = job.threads
            line.running += 1
            self._start(job)
        if not line.running:
            del self._lines[caller]

    def _settle(self, job: Job, answer: Any) -> None:
        """Set the result of a job, or the error if the answer is one, unless nobody waits for it any more."""
        error = answer if isinstance(answer, BaseException) else None
        if job.name:
            self.counters.called(job.name, job.began, error, is_gone=job.done.done())
        if job.done.done():
            return
        if job.finish is not None:
            job.done.set_result(job.finish(error, None if error is not None else answer))
        elif error is not None:
            job.done.set_exception(error)
            job.done.exception()  # mark it as retrieved: not everybody who submits a job waits for it
        else:
            job.done.set_result(answer)

    # -- writing

    def _write(self) -> None:
        """Carry out one batch after the other, for ever; on the thread that writes."""
        while (job := self._writes.get()) is not None:
            jobs, answers = [job], list[Any]()
            try:
                with self._store.batch():
                    self._run_batch(jobs, answers)
            except Exception as failure:  # boundary: no answer may claim what is not durable (G1)
                if not isinstance(failure, PostroomError):
                    log.exception("writes could not be made durable because of a bug")
                # Each call has run, but none is safe: even those that succeeded are answered with the failure.
                answers = [_not_durable(answer, failure) for answer in answers] or [failure]
            self._report(jobs, answers)

    def _run_batch(self, jobs: list[Job], answers: list[Any]) -> None:
        """Carry out jobs, and those that come meanwhile, for BATCH_SECONDS. Those who came first then get their
        answers; the others follow with a sync of their own.
        """
        end = perf_counter() + BATCH_SECONDS
        answers.append(self._execute(jobs[0]))
        while len(jobs) < MAX_BATCH and not self._writes.empty() and perf_counter() < end:
            job = self._writes.get()
            if job is None:
                self._writes.put(None)  # the end, behind all jobs
                return
            jobs.append(job)
            answers.append(self._execute(job))

    # -- waiting

    def _wait(self, request: Verb, job: Job) -> asyncio.Future[Any]:
        """Wait for mail, and return the future reply; it may be cancelled."""

        def settle(looking: asyncio.Future[Any]) -> None:
            self._settle(job, None if looking.cancelled() else looking.exception() or looking.result())

        looking = asyncio.ensure_future(self._look_until_found(request, job.run, job.caller))
        looking.add_done_callback(settle)
        job.done.add_done_callback(lambda _: looking.cancel())
        return job.done

    async def _look_until_found(self, request: Verb, run: Callable[[], Any], caller: object) -> Any:
        """Look until there is a result that is not empty, or the time is over; return it as JSON. Between two
        looks it sleeps until a mailbox is notified, or until a letter in it comes due.
        """

        def look() -> tuple[Any, float]:
            """Return what is there, and for how long to sleep if that is nothing."""
            began = self.core.now()
            result = run()
            if not request.is_empty(result):
                return in_json(request, result), 0.0
            return in_json(request, result), seconds_to_sleep(self.core, request.mailboxes(), began)

        def look_again() -> asyncio.Future[tuple[Any, float]]:
            return self._add(Job(look, caller, threads, is_wait=True))

        threads = None if request.declaration().writes else self._pools[Schedule.READ]
        end = self._loop.time() + patience(request)
        found, nap = await look_again()
        if not nap:
            return found
        with self._watcher.listen(request.mailboxes()) as notified:
            while True:
                notified.clear()  # before looking: what comes during the look must wake us
                found, nap = await look_again()
                left = end - self._loop.time()
                if not nap or left <= 0:
                    return found
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


def _closing_error() -> StoreBusy:
    return StoreBusy("the post room closes", hint="try again")
