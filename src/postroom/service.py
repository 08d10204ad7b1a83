"""Serve a mailbox: call a handler for each letter, keep its lease meanwhile, and settle it by the outcome.

`Service` runs on an event loop: that of an async program, or one that `Mailbox.serve` starts. It acknowledges a
letter only after its handler has returned, in the commit that sends the answer. If the process dies before, the
lease runs out and the letter is offered again.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .aio import AsyncRoom
from .errors import Invalid, LeaseLost, PostroomError
from .letter import Work
from .model.message import is_part_type, same_name
from .model.query import Found
from .model.values import check_count, check_seconds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import FrameType

    from .aio import AsyncMailbox, AsyncWork
    from .mailbox import Mailbox


log = logging.getLogger("postroom")
FOR_EVER = 3600.0  # seconds of one wait for mail
RENEWALS = 3  # in the time of one lease
BEAT = 1.0  # seconds between two looks at the main thread
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 10.0  # seconds between attempts while the store fails


def serve(
    mailbox: Mailbox,
    handler: Callable[[Work], Any],
    *,
    concurrency: int,
    lease: float | None,
    grace: float,
    timeout: float | None,
    filters: dict[str, Any],
) -> None:
    """Serve a mailbox with a handler that is called in threads."""
    if not callable(handler):
        raise Invalid(f"must be a function, not {type(handler).__name__}", field="handler")
    # Threads of their own: handlers that are slow must not keep claims and renewals from running.
    threads = ThreadPoolExecutor(check_count(concurrency, "concurrency"), thread_name_prefix="postroom-handler")

    async def in_thread(work: AsyncWork) -> Any:
        held = Work(mailbox, Found(work.message, work.delivery))
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, handler, held)
        finally:
            work._sync.delivery = held.delivery

    async def run() -> None:
        room = AsyncRoom(mailbox.room)
        try:
            await service_of(room).run()
        finally:
            await room._let_go()

    def service_of(room: AsyncRoom) -> Service:
        return Service(mailbox, room.mailbox(mailbox.name), in_thread, concurrency, lease, grace, timeout, filters)

    try:
        with _signals():
            asyncio.run(run())
    finally:
        threads.shutdown(wait=False)


class Service:
    """A mailbox that is served."""

    def __init__(
        self,
        owner: Mailbox,
        mailbox: AsyncMailbox,
        handler: Callable[[AsyncWork], Awaitable[Any]],
        concurrency: int,
        lease: float | None,
        grace: float,
        timeout: float | None,
        filters: dict[str, Any],
    ) -> None:
        if not callable(handler):
            raise Invalid(f"must be a function, not {type(handler).__name__}", field="handler")
        self.owner = owner
        self._mailbox = mailbox
        self._handler = handler
        self._concurrency = check_count(concurrency, "concurrency")
        self._lease = (
            mailbox.mailbox.core.limits.lease if lease is None else check_seconds(lease, "lease", above=0)
        )
        self._grace = check_seconds(grace, "grace")
        self._timeout = None if timeout is None else check_seconds(timeout, "timeout")
        self._filters = filters
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._hurried = asyncio.Event()
        self._in_hand: dict[asyncio.Task[None], Work] = {}  # the letter as its keeper knows it

    def stop(self) -> None:
        """Claim nothing more, and finish what is in hand; said twice, release what is in hand. From any thread."""
        # From a signal handler or another thread: only this call of a loop is safe there.
        with suppress(RuntimeError):  # the loop is closed: it is over already
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        (self._hurried if self._stopping.is_set() else self._stopping).set()

    async def run(self) -> None:
        """Serve until it is stopped, or until nothing came for so long."""
        with _signals(), _listed(self):
            chores = [asyncio.create_task(one) for one in (self._renew(), self._end_with_program())]
            try:
                await self._claim_and_handle()
                # What is in hand gets its time; a second stop ends that time at once.
                if self._in_hand:
                    finished = asyncio.gather(*self._in_hand, return_exceptions=True)
                    await self._first_of(self._hurried, finished, seconds=self._grace)
            finally:
                # A handler that is cancelled here gives its letter back (`_handle`), so that nobody waits for
                # the lease.
                for task in (*self._in_hand, *chores):
                    task.cancel()
                await asyncio.gather(*self._in_hand, *chores, return_exceptions=True)

    async def _end_with_program(self) -> None:
        """Stop when the main thread has ended: from then on Python starts no thread, and waits for this one."""
        while threading.main_thread().is_alive():  # noqa: ASYNC110 - no event says that it ended
            await asyncio.sleep(BEAT)
        self._stop()

    async def _claim_and_handle(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            free = self._concurrency - len(self._in_hand)
            if not free:
                await self._first_of(self._stopping, *self._in_hand)
                continue
            try:
                claimed = await self._claim(free)
                pause = FIRST_PAUSE
            except RuntimeError:  # no thread can be started any more: the program ends
                return
            except Exception as error:  # boundary: whatever the store meets, it may recover
                if isinstance(error, PostroomError) and error.fault == "caller":
                    raise
                log.warning("mail for %s cannot be claimed: %s", self._mailbox.name, error)
                await self._first_of(self._stopping, seconds=pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            # Not while a letter is in hand: its answer may bring the next one.
            if not claimed and self._timeout is not None and not self._in_hand:
                return
            for work in claimed:
                task = asyncio.create_task(self._handle(work))
                # Its own object: the handler may settle the letter in its thread while the lease is renewed
                # here.
                self._in_hand[task] = Work(work._sync._mailbox, Found(work.message, work.delivery))
                task.add_done_callback(self._in_hand.pop)

    async def _claim(self, most: int) -> list[AsyncWork]:
        """Wait for mail and claim it; nothing when it is time to stop. What is claimed meanwhile is released."""
        seconds = FOR_EVER if self._timeout is None else self._timeout
        claiming = asyncio.create_task(
            self._mailbox.claim(most, lease=self._lease, timeout=seconds, **self._filters)
        )
        try:
            await self._first_of(self._stopping, claiming)
            return claiming.result() if claiming.done() else []
        finally:
            # The claim may commit while it is cancelled. The wait lets it give those letters back.
            if not claiming.done():
                claiming.cancel()
                await asyncio.wait([claiming])

    async def _handle(self, work: AsyncWork) -> None:
        """Call the handler, and settle the letter by what came of it."""
        try:
            answer = await self._handler(work)
        except asyncio.CancelledError:
            with suppress(PostroomError):  # then it comes back when the lease runs out
                await work.release()
            raise
        except Exception as error:  # boundary: an error of one letter is no error of the others
            log.warning("letter %s at %s failed: %r", work.id, self._mailbox.name, error)
            await self._settle(work, partial(work.fail, _words(error)))
        else:
            # What Postroom itself wrote, such as a bounce, cannot be answered.
            if answer is None or work.message.is_automatic:
                await self._settle(work, work.ack)
            elif isinstance(answer, dict) and not is_part_type(answer.get("type")):
                await self._settle(work, partial(work.ack_and_reply, data=answer))
            else:
                await self._settle(work, partial(work.ack_and_reply, answer))

    async def _settle(self, work: AsyncWork, settle: Callable[[], Awaitable[object]]) -> None:
        """Settle the letter unless its handler did; again while the store fails, as long as the lease is kept."""
        # The handler has run: if its result were dropped because the store is busy, the work would be done
        # twice.
        pause = FIRST_PAUSE
        while not work.is_settled:
            try:
                await settle()
            except LeaseLost as error:
                log.warning("letter %s at %s is offered again: %s", work.id, self._mailbox.name, error)
                return
            except Exception as error:  # boundary: as above
                if isinstance(error, PostroomError) and not error.temporary:
                    log.warning("the answer to %s cannot be sent: %s", work.id, error)
                    settle = partial(work.fail, _words(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    async def _renew(self) -> None:
        """Extend the leases of the letters in hand, a few times in the time of each."""
        while True:
            await asyncio.sleep(self._lease / RENEWALS)
            for task, keeper in list(self._in_hand.items()):
                try:
                    await self._mailbox.room.run(keeper.renew, self._lease)
                except LeaseLost:  # settled, or offered again: its own end of the call sees which
                    pass
                except Exception as error:  # boundary: there are two more tries in the time of a lease
                    if not task.done():
                        log.warning("the lease on %s cannot be renewed: %s", keeper.id, error)

    async def _first_of(
        self, event: asyncio.Event, *others: asyncio.Future[Any], seconds: float | None = None
    ) -> None:
        """Wait until the event is set, one of the others is done, or the time is up."""
        happens = asyncio.create_task(event.wait())
        try:
            await asyncio.wait({happens, *others}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            happens.cancel()


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# -- what stops a service: a signal, or `stop` of its mailbox

_running: list[Service] = []
_usual_handlers: dict[int, Any] = {}
_depth = 0


@contextmanager
def _listed(service: Service) -> Iterator[None]:
    _running.append(service)
    try:
        yield
    finally:
        _running.remove(service)


def stop(mailbox: Mailbox) -> None:
    """Stop the services of this mailbox that this process runs in the same room, whichever object began them."""
    for service in _running:
        if service.owner.core is mailbox.core and same_name(service.owner.name, mailbox.name):
            service.stop()


@contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM and SIGINT stop all services, where the program has no handlers of its own for them."""
    global _depth  # noqa: PLW0603 - signals belong to the whole process
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for number, usual in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        # A program with handlers of its own keeps them, and calls `stop` itself.
        if signal.getsignal(number) is usual or signal.getsignal(number) == usual:
            _usual_handlers[number] = signal.signal(number, _stop_all)
    _depth += 1
    try:
        yield
    finally:
        _depth -= 1
        # Services may be nested; only the outermost one puts the handlers back.
        while not _depth and _usual_handlers:
            signal.signal(*_usual_handlers.popitem())


def _stop_all(number: int, _frame: FrameType | None) -> None:
    if not _running:  # before the first letter, or after the last
        raise SystemExit(128 + number)
    for service in _running:
        service.stop()
