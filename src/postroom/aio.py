"""The async face, for people in asyncio: the same room, the same core, run in a few threads.

    async with postroom.aio.open() as room:
        letter = await room.mailbox("researcher").wait(timeout=30)
        await letter.reply("merge sort")

Any number of tasks may wait at once: they share one ear on the event loop and hold no thread while they sleep.
"""

from __future__ import annotations

import asyncio
import functools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from . import room as sync
from .aio_errands import AsyncErrands
from .aio_letter import AsyncBatch, AsyncLetter, AsyncWork
from .aio_task import AsyncTask
from .errors import BadStore
from .model.names import check_agent
from .service.given import listed
from .service.waiting import check_timeout, seconds_to_sleep
from .store.ears import POLL

if TYPE_CHECKING:
    import builtins
    import os
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from types import TracebackType
    from typing import Unpack

    from .fields import Fields, Filters, Wanted, When
    from .letter import Batch
    from .mailbox import Mailbox
    from .model.card import Agent
    from .model.change import Cursor
    from .model.handoff import Handoff
    from .model.message import Message
    from .model.stats import Tally
    from .model.thread import Conversation, Thread, Turn
    from .model.trace import Trace
    from .service.compose import Draft
    from .service.sending import Receipt
    from .store.base import Store, Watch

__all__ = ["AsyncBatch", "AsyncLetter", "AsyncMailbox", "AsyncRoom", "AsyncTask", "AsyncWork", "open"]

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 8  # SQLite writes one at a time anyway; a few more may wait for the disk


def open(store: str | os.PathLike[str] | None = None, **settings: Any) -> AsyncRoom:
    """Open a room as `postroom.open` does. Use it with `async with`, or close it."""
    return AsyncRoom(sync.open(store, **settings))


class Ears:
    """One watch for all waiting tasks of a room; wakes those whose mailbox rang."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch: Watch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._poll: asyncio.TimerHandle | None = None

    @contextmanager
    def listen(self, mailboxes: Sequence[str]) -> Iterator[asyncio.Event]:
        """An event that is set whenever one of these mailboxes rings."""
        bell = asyncio.Event()
        watch = self._open()
        for mailbox in mailboxes:
            if mailbox not in self._listeners:
                watch.add(mailbox)
            self._listeners.setdefault(mailbox, set()).add(bell)
        try:
            yield bell
        finally:
            for mailbox in mailboxes:
                self._listeners.get(mailbox, set()).discard(bell)

    def close(self) -> None:
        """Stop listening. Whoever still waits is woken, to find the room closed."""
        for bell in {bell for bells in self._listeners.values() for bell in bells}:
            bell.set()
        self._listeners.clear()
        if self._poll is not None:
            self._poll.cancel()
        if self._watch is not None:
            if self._watch.fileno() >= 0 and self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _open(self) -> Watch:
        loop = asyncio.get_running_loop()
        if self._watch is not None and self._loop is not loop:  # a room may outlive an event loop
            self.close()
        if self._watch is None:
            self._loop, self._watch = loop, self._store.watch(())
            if self._watch.fileno() >= 0:
                loop.add_reader(self._watch.fileno(), self._hear)
            else:
                self._look_again(loop)
        return self._watch

    def _look_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Where nothing becomes readable, look at the bells now and then."""
        self._hear()
        self._poll = loop.call_later(POLL, self._look_again, loop)

    def _hear(self) -> None:
        if self._watch is not None:
            for mailbox in self._watch.rung():
                for bell in self._listeners.get(mailbox, ()):
                    bell.set()


class AsyncRoom:
    """A post room inside an event loop."""

    def __init__(self, room: sync.Room) -> None:
        self.room = room  # the same room, for calls that may block
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="postroom")
        self._ears = Ears(room._office.store)
        self._closed = False

    def mailbox(self, name: str) -> AsyncMailbox:
        return AsyncMailbox(self, self.room.mailbox(name))

    async def wait(
        self,
        mailboxes: Sequence[str],
        timeout: float = 30.0,
        *,
        since: Cursor | str | None = None,
        peek: bool = False,
        **wanted: Unpack[Wanted],
    ) -> AsyncLetter | None:
        """The next letter at any of these mailboxes; None when the time is up."""
        names = [check_agent(name, "mailboxes") for name in listed(mailboxes, "mailboxes")]
        look = functools.partial(self.room.wait, names, 0, since=since, peek=peek, **wanted)
        letter = await self._wait_until(names, timeout, look)
        return None if letter is None else AsyncLetter(self, letter)

    async def agent(self, name: str) -> Agent:
        return await self.run(self.room.agent, name)

    async def agents(
        self, *, scope: str | None = None, capability: str | None = None, gone: bool = False
    ) -> list[Agent]:
        return await self.run(self.room.agents, scope=scope, capability=capability, gone=gone)

    async def search(self, query: str, *, limit: int = 20, ranked: bool = False) -> list[Message]:
        return await self.run(self.room.search, query, limit=limit, ranked=ranked)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Any call of the sync room, in one of its threads: `await room.run(room.room.sweep)`.

        What was started is finished even if the task is cancelled: a letter is never half sent.
        """
        if self._closed:
            raise BadStore("the room is closed", field="room")
        call = functools.partial(function, *args, **kwargs)
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    async def close(self) -> None:
        """Let go of threads and files. Tasks that still wait are told."""
        self._closed = True
        self._ears.close()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self.room.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _wait_until(
        self, mailboxes: Sequence[str], timeout: float, look: Callable[[], T | None]
    ) -> T | None:
        """As `service.waiting.wait_until`, without a thread that sleeps."""
        seconds = check_timeout(timeout)
        found = await self.run(look)
        if found or seconds == 0:
            return found
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._ears.listen(mailboxes) as bell:
            while True:
                bell.clear()
                found = await self.run(look)
                left = end - loop.time()
                if found or left <= 0:
                    return found
                nap = await self.run(seconds_to_sleep, self.room._office, mailboxes)
                await _wait_for_bell(bell, min(left, nap))


class AsyncMailbox(AsyncErrands):
    """One agent's mailbox; every verb of `Mailbox`, awaited."""

    def __init__(self, room: AsyncRoom, mailbox: Mailbox) -> None:
        self.room = room
        self.mailbox = mailbox
        self.name = mailbox.name

    async def send(self, to: Any, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        return await self.room.run(self.mailbox.send, to, body, **fields)

    async def send_many(self, drafts: Sequence[Draft]) -> builtins.list[Receipt]:
        return await self.room.run(self.mailbox.send_many, drafts)

    async def reply(
        self, id: str, /, body: Any = None, *, to_all: bool = False, **fields: Unpack[Fields]
    ) -> Receipt:
        return await self.room.run(self.mailbox.reply, id, body, to_all=to_all, **fields)

    async def forward(self, id: str, /, to: Any, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        return await self.room.run(self.mailbox.forward, id, to, body, **fields)

    async def broadcast(
        self, scope: str, /, body: Any = None, *, exclude: Sequence[str] = (), **fields: Unpack[Fields]
    ) -> Receipt:
        return await self.room.run(self.mailbox.broadcast, scope, body, exclude=exclude, **fields)

    async def handoff(self, to: Any, handoff: Handoff, **fields: Unpack[Fields]) -> Receipt:
        return await self.room.run(self.mailbox.handoff, to, handoff, **fields)

    async def check(
        self,
        limit: int | None = 20,
        *,
        unread_only: bool = True,
        peek: bool = False,
        **filters: Unpack[Filters],
    ) -> builtins.list[AsyncLetter]:
        call = functools.partial(self.mailbox.check, limit, unread_only=unread_only, peek=peek, **filters)
        return [AsyncLetter(self.room, letter) for letter in await self.room.run(call)]

    async def read(self, id: str) -> AsyncLetter:
        return AsyncLetter(self.room, await self.room.run(self.mailbox.read, id))

    async def counts(self) -> dict[str, int]:
        return await self.room.run(self.mailbox.counts)

    async def search(self, query: str, *, limit: int = 20, ranked: bool = False) -> builtins.list[Message]:
        return await self.room.run(self.mailbox.search, query, limit=limit, ranked=ranked)

    async def stats(self) -> Tally:
        return await self.room.run(self.mailbox.stats)

    async def trace(self, id: str) -> Trace:
        return await self.room.run(self.mailbox.trace, id)

    async def thread(self, id: str) -> builtins.list[Message]:
        return await self.room.run(self.mailbox.thread, id)

    async def digest(self, *, budget: int = 4000, most: int = 5, longest: int = 500) -> str:
        return await self.room.run(self.mailbox.digest, budget=budget, most=most, longest=longest)

    async def tagged(self, tag: str, scope: str | None = None) -> builtins.list[Message]:
        return await self.room.run(self.mailbox.tagged, tag, scope)

    async def reply_chain(self, id: str) -> builtins.list[Message]:
        return await self.room.run(self.mailbox.reply_chain, id)

    async def threads(self, limit: int = 50) -> builtins.list[Thread]:
        return await self.room.run(self.mailbox.threads, limit)

    async def conversations(self, *, scope: str | None = None, limit: int = 50) -> builtins.list[Conversation]:
        return await self.room.run(self.mailbox.conversations, scope=scope, limit=limit)

    async def conversation(self, id: str) -> Conversation:
        return await self.room.run(self.mailbox.conversation, id)

    async def turns(self, conversation: str) -> builtins.list[Turn]:
        return await self.room.run(self.mailbox.turns, conversation)

    async def held(self, id: str, token: str) -> AsyncWork:
        return AsyncWork(self.room, await self.room.run(self.mailbox.held, id, token))

    async def dead(self, limit: int | None = None) -> builtins.list[AsyncLetter]:
        return [AsyncLetter(self.room, letter) for letter in await self.room.run(self.mailbox.dead, limit)]

    async def revive(self, *ids: str) -> builtins.list[AsyncLetter]:
        return [AsyncLetter(self.room, letter) for letter in await self.room.run(self.mailbox.revive, *ids)]

    async def purge(self, *ids: str) -> int:
        return await self.room.run(self.mailbox.purge, *ids)

    async def give_task(
        self,
        to: str,
        body: Any = None,
        *,
        deadline: When | None = None,
        session: dict[str, Any] | None = None,
        **fields: Unpack[Fields],
    ) -> Receipt:
        call = functools.partial(self.mailbox.give_task, to, body, deadline=deadline, session=session, **fields)
        return await self.room.run(call)

    async def task(self, id: str | AsyncLetter) -> AsyncTask:
        letter = id if isinstance(id, AsyncLetter) else None
        found = await self.room.run(self.mailbox.task, id._letter if isinstance(id, AsyncLetter) else id)
        return AsyncTask(self.room, found, letter)

    async def tasks(
        self, role: str = "any", *, states: str | Sequence[str] | None = None, limit: int = 50
    ) -> builtins.list[AsyncTask]:
        call = functools.partial(self.mailbox.tasks, role, states=states, limit=limit)
        return [AsyncTask(self.room, task) for task in await self.room.run(call)]

    async def register(self, **card: Any) -> Agent:
        return await self.room.run(self.mailbox.register, **card)

    async def heartbeat(
        self,
        *,
        current_tasks: Sequence[str] | None = None,
        poll_interval: float | None = None,
        active: bool = False,
    ) -> Agent:
        call = functools.partial(
            self.mailbox.heartbeat, current_tasks=current_tasks, poll_interval=poll_interval, active=active
        )
        return await self.room.run(call)

    async def leave(self) -> Agent:
        return await self.room.run(self.mailbox.leave)

    async def wait(
        self,
        timeout: float = 30.0,
        *,
        since: Cursor | str | None = None,
        peek: bool = False,
        **wanted: Unpack[Wanted],
    ) -> AsyncLetter | None:
        """The next unread letter. If the task is cancelled just then, it may be stamped as read; it stays in
        the inbox all the same.
        """
        return await self.room.wait([self.name], timeout, since=since, peek=peek, **wanted)

    @overload
    async def claim(
        self,
        count: None = None,
        *,
        lease: float | None = None,
        timeout: float = 0,
        holder: str | None = None,
        **filters: Unpack[Filters],
    ) -> AsyncWork | None: ...
    @overload
    async def claim(
        self,
        count: int,
        *,
        lease: float | None = None,
        timeout: float = 0,
        holder: str | None = None,
        **filters: Unpack[Filters],
    ) -> AsyncBatch: ...
    async def claim(
        self,
        count: int | None = None,
        *,
        lease: float | None = None,
        timeout: float = 0,
        holder: str | None = None,
        **filters: Unpack[Filters],
    ) -> AsyncWork | AsyncBatch | None:
        """As `Mailbox.claim`. What is claimed for a cancelled task is given back."""
        taken: list[Batch] = []

        def take() -> Batch:
            wanted = 1 if count is None else count
            taken.append(self.mailbox.claim(wanted, lease=lease, holder=holder, **filters))
            return taken[-1]

        try:
            await self.room._wait_until([self.name], timeout, take)
        except asyncio.CancelledError:
            if taken:
                await self.room.run(taken[-1].release)
            raise
        batch = AsyncBatch(self.room, taken[-1])
        if count is None:
            return batch[0] if batch else None
        return batch

    async def work(
        self,
        *,
        batch: int = 1,
        lease: float | None = None,
        timeout: float | None = None,
        **filters: Unpack[Filters],
    ) -> AsyncGenerator[AsyncWork, None]:
        """A worker loop, as `Mailbox.work`. An async loop left by an error is only closed later, by the garbage
        collector: use `contextlib.aclosing`, or `async with work`, where that matters.
        """
        wait = 3600.0 if timeout is None else timeout
        while True:
            claimed = await self.claim(batch, lease=lease, timeout=wait, **filters)
            if not claimed and timeout is not None:
                return
            held_since = time.monotonic()
            for place, work in enumerate(claimed):
                if time.monotonic() - held_since > (lease or self.mailbox._office.limits.lease) / 2:
                    await claimed._hold_on(place, lease)
                    held_since = time.monotonic()
                try:
                    yield work
                except (GeneratorExit, asyncio.CancelledError):
                    await claimed._leave_at(place)
                    raise
            await claimed.ack()


async def _wait_for_bell(bell: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await bell.wait()
