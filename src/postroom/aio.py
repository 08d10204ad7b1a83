"""The Python API for asyncio: a room, mailboxes, letters and tasks whose verbs are awaited.

    async with postroom.aio.open() as room:
        letter = await room.mailbox("researcher").wait(timeout=30)
        await letter.reply("merge sort")

Each object holds the sync object it stands for and runs its verbs in one of the room's threads. Any number of
tasks may wait at once: they share one watcher on the event loop and hold no thread while they sleep. A call that
was started is finished even if its task is cancelled, so a letter is never half sent.
"""

from __future__ import annotations

import asyncio
import functools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from . import room as postroom_room
from .core import alerts, inbox
from .core.inbox import LONGEST_SLEEP, check_timeout, seconds_to_sleep
from .core.validation import as_list
from .errors import BadStore
from .letter import LetterView
from .model.names import check_agent
from .model.query import Found
from .store.notification import POLL
from .task import TaskView

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
    from types import TracebackType
    from typing import Unpack

    from .core.compose import Draft
    from .core.messages import Receipt
    from .keywords import Fields, Filters, Wanted, When
    from .letter import Batch, Letter, Work
    from .mailbox import Mailbox
    from .model.agent import Agent
    from .model.alert import DeadAlertRow, Later, Rung
    from .model.message import Handoff, Message
    from .model.query import Tally
    from .model.record import Cursor
    from .model.report import Trace
    from .model.task import Escalation, TaskState
    from .model.thread import Conversation, Thread, Turn
    from .policy.admission import Judge
    from .store.protocol import Store, Watch
    from .task import Task

__all__ = ["AsyncBatch", "AsyncLetter", "AsyncMailbox", "AsyncRoom", "AsyncTask", "AsyncWork", "open"]

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 8  # SQLite writes one at a time anyway; a few more may wait for the disk


def open(store: str | os.PathLike[str] | None = None, **settings: Any) -> AsyncRoom:
    """Open a room as `postroom.open` does. Use it with `async with`, or close it."""
    return AsyncRoom(postroom_room.open(store, **settings))


class AsyncRoom:
    """A post room inside an event loop."""

    def __init__(self, room: postroom_room.Room) -> None:
        self.room = room  # the sync room, for calls that may block
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="postroom")
        self._watcher = SharedWatcher(room.core.store)
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
        """Return the next letter at any of these mailboxes; None after `timeout` seconds."""
        names = [check_agent(name, "mailboxes") for name in as_list(mailboxes, "mailboxes")]
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
        """Run any call of the sync room in one of its threads: `await room.run(room.room.sweep)`.

        A call that was started is finished even if the task is cancelled: a letter is never half sent.
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
        """Release threads and files. Tasks that still wait get BadStore."""
        self._closed = True
        self._watcher.close()
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
        longest_sleep: Callable[[], float] = lambda: LONGEST_SLEEP,
    ) -> T | None:
        """Do what `core.inbox.wait_until` does, without a thread that sleeps."""
        seconds = check_timeout(timeout)
        found = await self.run(look)
        if found or seconds == 0:
            return found
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._watcher.listen(mailboxes) as event:
            while True:
                event.clear()  # before the look: a letter that comes during it sets the event again
                found = await self.run(look)
                left = end - loop.time()
                if found or left <= 0:
                    return found
                timer = await self.run(seconds_to_sleep, self.room.core, mailboxes)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, longest_sleep(), timer)):
                        await event.wait()


class AsyncMailbox:
    """One agent's mailbox: every verb of `Mailbox`, awaited."""

    def __init__(self, room: AsyncRoom, mailbox: Mailbox) -> None:
        self.room = room
        self.mailbox = mailbox
        self.name = mailbox.name

    # -- sending

    async def send(self, to: Any = None, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        return await self.room.run(self.mailbox.send, to, body, **fields)

    async def send_many(self, drafts: Sequence[Draft]) -> list[Receipt]:
        return await self.room.run(self.mailbox.send_many, drafts)

    async def send_template(
        self, to: Any, name: str, values: Mapping[str, Any] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        return await self.room.run(self.mailbox.send_template, to, name, values, **fields)

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

    async def unsend(self, id: str) -> Message:
        return await self.room.run(self.mailbox.unsend, id)

    async def sent(self, limit: int = 20) -> list[Message]:
        return await self.room.run(self.mailbox.sent, limit)

    # -- reading

    async def check(
        self,
        limit: int | None = 20,
        *,
        unread_only: bool = True,
        peek: bool = False,
        **filters: Unpack[Filters],
    ) -> list[AsyncLetter]:
        call = functools.partial(self.mailbox.check, limit, unread_only=unread_only, peek=peek, **filters)
        return [AsyncLetter(self.room, letter) for letter in await self.room.run(call)]

    async def read(self, id: str) -> AsyncLetter:
        return AsyncLetter(self.room, await self.room.run(self.mailbox.read, id))

    async def counts(self) -> dict[str, int]:
        return await self.room.run(self.mailbox.counts)

    async def stats(self) -> Tally:
        return await self.room.run(self.mailbox.stats)

    async def trace(self, id: str) -> Trace:
        return await self.room.run(self.mailbox.trace, id)

    async def wait(
        self,
        timeout: float = 30.0,
        *,
        since: Cursor | str | None = None,
        peek: bool = False,
        **wanted: Unpack[Wanted],
    ) -> AsyncLetter | None:
        """Return the next unread letter, as `Mailbox.wait` does.

        If the task is cancelled at that moment, the letter may be stamped as read; it stays in the inbox.
        """
        return await self.room.wait([self.name], timeout, since=since, peek=peek, **wanted)

    async def search(self, query: str, *, limit: int = 20, ranked: bool = False) -> list[Message]:
        return await self.room.run(self.mailbox.search, query, limit=limit, ranked=ranked)

    async def digest(self, *, budget: int = 4000, most: int = 5, longest: int = 500) -> str:
        return await self.room.run(self.mailbox.digest, budget=budget, most=most, longest=longest)

    # -- claiming

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
        """Claim as `Mailbox.claim` does. Letters claimed for a cancelled task are released."""
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
        """Yield claimed letters, as `Mailbox.work` does.

        An async loop left by an error is only closed later, by the garbage collector: use
        `contextlib.aclosing`, or `async with work`, where that matters.
        """
        wait = 3600.0 if timeout is None else timeout
        while True:
            claimed = await self.claim(batch, lease=lease, timeout=wait, **filters)
            if not claimed and timeout is not None:
                return
            held_since = time.monotonic()
            for place, work in enumerate(claimed):
                if time.monotonic() - held_since > (lease or self.mailbox.core.limits.lease) / 2:
                    await claimed._hold_on(place, lease)
                    held_since = time.monotonic()
                try:
                    yield work
                except (GeneratorExit, asyncio.CancelledError):
                    await claimed._leave_at(place)
                    raise
            await claimed.ack()

    async def held(self, id: str, token: str) -> AsyncWork:
        return AsyncWork(self.room, await self.room.run(self.mailbox.held, id, token))

    # -- settling, any number of letters in one commit: all or none

    async def ack(self, letters: Sequence[AsyncLetter], *, archive: bool = True) -> None:
        await self._settle(letters, functools.partial(self.mailbox.ack, archive=archive))

    async def ack_and_send(
        self, letters: Sequence[AsyncLetter], drafts: Sequence[Draft], *, archive: bool = True
    ) -> list[Receipt]:
        call = functools.partial(self.mailbox.ack_and_send, drafts=drafts, archive=archive)
        return await self._settle(letters, call)

    async def fail(self, letters: Sequence[AsyncLetter], reason: str, *, retry: bool = True) -> None:
        await self._settle(letters, functools.partial(self.mailbox.fail, reason=reason, retry=retry))

    async def reject(self, letters: Sequence[AsyncLetter], reason: str) -> None:
        await self._settle(letters, functools.partial(self.mailbox.reject, reason=reason))

    async def release(self, letters: Sequence[AsyncLetter]) -> None:
        await self._settle(letters, self.mailbox.release)

    async def renew(self, letters: Sequence[AsyncLetter], lease: float | None = None) -> None:
        await self._settle(letters, functools.partial(self.mailbox.renew, lease=lease))

    async def _settle(self, letters: Sequence[AsyncLetter], verb: Callable[[Any], T]) -> T:
        """Run the verb with the sync letters; it refuses by itself an argument that is no list of letters."""
        is_list = isinstance(letters, (list, tuple))
        held = [one._letter if isinstance(one, AsyncLetter) else one for one in letters] if is_list else letters
        done = await self.room.run(verb, held)
        for letter in letters:
            letter.delivery = letter._letter.delivery
        return done

    # -- dead letters

    async def dead(self, limit: int | None = None) -> list[AsyncLetter]:
        return [AsyncLetter(self.room, letter) for letter in await self.room.run(self.mailbox.dead, limit)]

    async def revive(self, *ids: str) -> list[AsyncLetter]:
        return [AsyncLetter(self.room, letter) for letter in await self.room.run(self.mailbox.revive, *ids)]

    async def purge(self, *ids: str) -> int:
        return await self.room.run(self.mailbox.purge, *ids)

    # -- tasks

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
    ) -> list[AsyncTask]:
        call = functools.partial(self.mailbox.tasks, role, states=states, limit=limit)
        return [AsyncTask(self.room, task) for task in await self.room.run(call)]

    # -- escalation

    async def escalate(
        self, body: Any = None, *, reason: str, ladder: Sequence[str] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        return await self.room.run(self.mailbox.escalate, body, reason=reason, ladder=ladder, **fields)

    async def escalations(self, *, open_only: bool = True) -> list[Escalation]:
        return await self.room.run(self.mailbox.escalations, open_only=open_only)

    async def resolve(self, id: str) -> Escalation:
        return await self.room.run(self.mailbox.resolve, id)

    # -- threads

    async def thread(self, id: str) -> list[Message]:
        return await self.room.run(self.mailbox.thread, id)

    async def tagged(self, tag: str, scope: str | None = None) -> list[Message]:
        return await self.room.run(self.mailbox.tagged, tag, scope)

    async def reply_chain(self, id: str) -> list[Message]:
        return await self.room.run(self.mailbox.reply_chain, id)

    async def threads(self, limit: int = 50) -> list[Thread]:
        return await self.room.run(self.mailbox.threads, limit)

    async def conversations(self, *, scope: str | None = None, limit: int = 50) -> list[Conversation]:
        return await self.room.run(self.mailbox.conversations, scope=scope, limit=limit)

    async def conversation(self, id: str) -> Conversation:
        return await self.room.run(self.mailbox.conversation, id)

    async def turns(self, conversation: str) -> list[Turn]:
        return await self.room.run(self.mailbox.turns, conversation)

    # -- directory

    async def register(
        self,
        *,
        display_name: str | None = None,
        description: str | None = None,
        capabilities: Sequence[str] | None = None,
        program: str | None = None,
        model: str | None = None,
        scopes: Sequence[str] | None = None,
        allow_from: Sequence[str] | None = None,
        max_concurrent_tasks: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Agent:
        call = functools.partial(
            self.mailbox.register,
            display_name=display_name,
            description=description,
            capabilities=capabilities,
            program=program,
            model=model,
            scopes=scopes,
            allow_from=allow_from,
            max_concurrent_tasks=max_concurrent_tasks,
            metadata=metadata,
            extra=extra,
        )
        return await self.room.run(call)

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

    # -- refusing senders

    async def block(self, name: str) -> list[str]:
        return await self.room.run(self.mailbox.block, name)

    async def unblock(self, name: str) -> list[str]:
        return await self.room.run(self.mailbox.unblock, name)

    async def blocked(self) -> list[str]:
        return await self.room.run(self.mailbox.blocked)

    # -- alerts

    async def begin_rings(self, way: str, *, backlog: bool = False) -> int:
        return await self.room.run(self.mailbox.begin_rings, way, backlog=backlog)

    async def try_ring(
        self, way: str, *, may_ring: Callable[[], bool] | None = None, within: float | None = None
    ) -> Rung | Later:
        """Decide as `Mailbox.try_ring` does; `may_ring` is called in a thread of the room."""
        return await self.room.run(self.mailbox.try_ring, way, may_ring=may_ring, within=within)

    async def wait_to_ring(
        self,
        way: str,
        timeout: float = 30.0,
        *,
        may_ring: Callable[[], bool] | None = None,
        within: float | None = None,
    ) -> Rung | None:
        """Return the next alert, as `Mailbox.wait_to_ring` does, without holding a thread.

        If the task is cancelled at that moment, an alert may be lost, unless `within` was given.
        """
        inbox.check_timeout(timeout)
        await self.begin_rings(way)
        box = self.mailbox
        poll = alerts.AlertPoll(box.core, box.principal, box.name, way, may_ring, within=within)
        return await self.room._wait_until([box.name], timeout, poll.look, poll.longest_sleep)

    async def ring_done(self, way: str, ids: str | Sequence[str]) -> None:
        await self.room.run(self.mailbox.ring_done, way, ids)

    async def ring_failed(self, way: str, ids: str | Sequence[str], why: str) -> int:
        return await self.room.run(self.mailbox.ring_failed, way, ids, why)

    async def dead_rings(self) -> list[DeadAlertRow]:
        return await self.room.run(self.mailbox.dead_rings)

    async def retry_rings(self, *, way: str | None = None, ids: str | Sequence[str] | None = None) -> int:
        return await self.room.run(self.mailbox.retry_rings, way=way, ids=ids)

    async def mark_shown(self, ids: str | Sequence[str], host: str, where: str = "", *, read: bool = True) -> int:
        return await self.room.run(self.mailbox.mark_shown, ids, host, where, read=read)


class AsyncLetter(LetterView):
    """A letter that was read, not claimed: `Letter`, awaited."""

    def __init__(self, room: AsyncRoom, letter: Letter) -> None:
        super().__init__(Found(letter.message, letter.delivery))
        self._room = room
        self._letter = letter

    @property
    def cursor(self) -> Cursor:
        """The position of this letter: `wait(since=letter.cursor)` goes on after it."""
        return self._letter.cursor

    async def reply(self, body: Any = None, *, to_all: bool = False, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._letter.reply, body, to_all=to_all, **fields))

    async def forward(self, to: Any, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._letter.forward, to, body, **fields))

    async def ack(self, *, archive: bool = True) -> None:
        await self._call(functools.partial(self._letter.ack, archive=archive))

    async def ack_and_reply(
        self, body: Any = None, *, to_all: bool = False, archive: bool = True, **fields: Unpack[Fields]
    ) -> Receipt:
        call = functools.partial(self._letter.ack_and_reply, body, to_all=to_all, archive=archive, **fields)
        return await self._call(call)

    async def ack_and_send(self, drafts: Sequence[Draft], *, archive: bool = True) -> list[Receipt]:
        return await self._call(functools.partial(self._letter.ack_and_send, drafts, archive=archive))

    async def reject(self, reason: str) -> None:
        await self._call(functools.partial(self._letter.reject, reason))

    def to_markdown(self) -> str:
        return self._letter.to_markdown()

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await self._room.run(call)
        finally:
            self.delivery = self._letter.delivery


class AsyncWork(AsyncLetter):
    """A claimed letter: `Work`, awaited. As an async context manager it is acknowledged, or failed on an error."""

    def __init__(self, room: AsyncRoom, work: Work) -> None:
        super().__init__(room, work)
        self._work = work

    @property
    def is_settled(self) -> bool:
        return self._work.is_settled

    async def fail(self, reason: str, *, retry: bool = True) -> None:
        await self._call(functools.partial(self._work.fail, reason, retry=retry))

    async def release(self) -> None:
        await self._call(self._work.release)

    async def renew(self, lease: float | None = None) -> None:
        await self._call(functools.partial(self._work.renew, lease))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._call(functools.partial(self._work.__exit__, kind, error, trace))


class AsyncBatch(list[AsyncWork]):
    """Several letters claimed at once: `Batch`, awaited. May be empty."""

    def __init__(self, room: AsyncRoom, batch: Batch) -> None:
        super().__init__(AsyncWork(room, work) for work in batch)
        self._room = room
        self._batch = batch

    @property
    def unsettled(self) -> list[AsyncWork]:
        return [work for work in self if not work.is_settled]

    async def ack(self, *, archive: bool = True) -> None:
        await self._settle(functools.partial(self._batch.ack, archive=archive))

    async def fail(self, reason: str, *, retry: bool = True) -> None:
        await self._settle(functools.partial(self._batch.fail, reason, retry=retry))

    async def release(self) -> None:
        await self._settle(self._batch.release)

    async def renew(self, lease: float | None = None) -> None:
        await self._settle(functools.partial(self._batch.renew, lease))

    async def _hold_on(self, place: int, lease: float | None) -> None:
        await self._settle(functools.partial(self._batch._hold_on, place, lease))

    async def _leave_at(self, place: int) -> None:
        await self._settle(functools.partial(self._batch._leave_at, place))

    async def _settle(self, call: Callable[[], None]) -> None:
        await self._room.run(call)
        for work in self:
            work.delivery = work._work.delivery

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._settle(functools.partial(self._batch.__exit__, kind, error, trace))


class AsyncTask(TaskView):
    """A task that was given or received at a mailbox: `Task`, awaited."""

    def __init__(self, room: AsyncRoom, task: Task, letter: AsyncLetter | None = None) -> None:
        self._room = room
        self._task = task
        self._letter = letter
        self.standing = task.standing
        self.session = task.session

    async def accept(self, body: Any = None, *, ack: bool = True, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._task.accept, body, ack=ack, **fields))

    async def admit(self, judge: Judge | None = None, *, ack: bool = True) -> bool:
        return await self._call(functools.partial(self._task.admit, judge, ack=ack))

    async def reject(self, reason: str, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._task.reject, reason, **fields))

    async def start(self, body: Any = None, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._task.start, body, **fields))

    async def complete(self, result: Any = None, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._task.complete, result, **fields))

    async def fail(self, reason: str, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._task.fail, reason, **fields))

    async def ask(self, question: Any, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._task.ask, question, **fields))

    async def answer(self, body: Any, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._task.answer, body, **fields))

    async def cancel(self, reason: str | None = None, **fields: Unpack[Fields]) -> Receipt:
        return await self._call(functools.partial(self._task.cancel, reason, **fields))

    async def refresh(self) -> TaskState:
        return await self._call(self._task.refresh)

    async def letters(self) -> list[Message]:
        return await self._call(self._task.letters)

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await self._room.run(call)
        finally:
            self.standing = self._task.standing
            if self._letter is not None:
                self._letter.delivery = self._letter._letter.delivery


class SharedWatcher:
    """One store watch for all waiting tasks of a room; wakes the tasks whose mailbox was notified.

    The server's executor uses it too. Used from one event loop at a time, never from a thread.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._watch: Watch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: dict[str, set[asyncio.Event]] = {}
        self._poll: asyncio.TimerHandle | None = None

    @contextmanager
    def listen(self, mailboxes: Sequence[str]) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever one of these mailboxes is notified."""
        event = asyncio.Event()
        self._open()
        for mailbox in mailboxes:
            if mailbox not in self._listeners:
                self._add(mailbox)
            self._listeners.setdefault(mailbox, set()).add(event)
        try:
            yield event
        finally:
            for mailbox in mailboxes:
                self._listeners.get(mailbox, set()).discard(event)
            self._rest()

    def close(self) -> None:
        """Stop listening, and wake every waiting task, which then finds the room closed."""
        self._wake_all()
        self._listeners.clear()
        self._stop()

    def _wake_all(self) -> None:
        for event in {event for events in self._listeners.values() for event in events}:
            event.set()

    def _stop(self) -> None:
        if self._poll is not None:
            self._poll.cancel()
        if self._watch is not None:
            if self._watch.fileno() >= 0 and self._loop is not None and not self._loop.is_closed():
                self._loop.remove_reader(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _open(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watch is not None and self._loop is not loop:  # a room may outlive an event loop
            self.close()
        if self._watch is None:
            self._loop, self._watch = loop, self._store.watch(tuple(self._listeners))
            if self._watch.fileno() >= 0:
                loop.add_reader(self._watch.fileno(), self._wake_notified)
            else:
                self._poll_again(loop)

    def _add(self, mailbox: str) -> None:
        """Watch one more mailbox.

        If the watch cannot take it (inotify's limits), open a new watch of whatever kind is possible for all
        mailboxes, and wake every waiting task once: a notification may have been lost in between.
        """
        try:
            if self._watch is not None:
                self._watch.add(mailbox)
        except OSError:
            self._stop()
            self._listeners[mailbox] = set()
            self._open()
            self._wake_all()

    def _rest(self) -> None:
        """Stop polling when no task waits; the next task may get a watch with a descriptor."""
        if self._watch is not None and self._watch.fileno() < 0 and not any(self._listeners.values()):
            self._stop()

    def _poll_again(self, loop: asyncio.AbstractEventLoop) -> None:
        """Poll the watch now and then: without a descriptor, nothing becomes readable."""
        self._wake_notified()
        self._poll = loop.call_later(POLL, self._poll_again, loop)

    def _wake_notified(self) -> None:
        if self._watch is not None:
            for mailbox in self._watch.notified():
                for event in self._listeners.get(mailbox, ()):
                    event.set()
