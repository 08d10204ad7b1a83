"""The async face, for people in asyncio: the same room, the same core, run in a few threads.

    async with postroom.aio.open() as room:
        letter = await room.mailbox("researcher").wait(timeout=30)
        await letter.reply("merge sort")

Any number of tasks may wait at once: they share one ear on the event loop and hold no thread while they sleep.
"""

from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from . import room as sync
from .aio_ears import SharedEars
from .aio_errands import AsyncErrands
from .aio_letter import AsyncBatch, AsyncLetter, AsyncWork
from .aio_task import AsyncTask
from .aio_working import AsyncWorking
from .errors import BadStore
from .model.names import check_agent
from .service.given import listed
from .service.waiting import LONGEST_SLEEP, check_timeout, seconds_to_sleep

if TYPE_CHECKING:
    import builtins
    import os
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Unpack

    from .fields import Fields, Filters, Wanted, When
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

__all__ = ["AsyncBatch", "AsyncLetter", "AsyncMailbox", "AsyncRoom", "AsyncTask", "AsyncWork", "open"]

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 8  # SQLite writes one at a time anyway; a few more may wait for the disk


def open(store: str | os.PathLike[str] | None = None, **settings: Any) -> AsyncRoom:
    """Open a room as `postroom.open` does. Use it with `async with`, or close it."""
    return AsyncRoom(sync.open(store, **settings))


class AsyncRoom:
    """A post room inside an event loop."""

    def __init__(self, room: sync.Room) -> None:
        self.room = room  # the same room, for calls that may block
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="postroom")
        self._ears = SharedEars(room._office.store)
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
        self,
        mailboxes: Sequence[str],
        timeout: float,
        look: Callable[[], T | None],
        nap: Callable[[], float] = lambda: LONGEST_SLEEP,
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
                timer = await self.run(seconds_to_sleep, self.room._office, mailboxes)
                await _wait_for_bell(bell, min(left, nap(), timer))


class AsyncMailbox(AsyncWorking, AsyncErrands):
    """One agent's mailbox; every verb of `Mailbox`, awaited."""

    def __init__(self, room: AsyncRoom, mailbox: Mailbox) -> None:
        self.room = room
        self.mailbox = mailbox
        self.name = mailbox.name

    async def send(self, to: Any = None, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
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

    async def give_task(
        self,
        to: Any,
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

    async def leave(self, *, dormant: bool = False) -> Agent:
        return await self.room.run(self.mailbox.leave, dormant=dormant)

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


async def _wait_for_bell(bell: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await bell.wait()
