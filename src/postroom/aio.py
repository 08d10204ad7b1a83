"""The Python API for asyncio: a room, mailboxes, letters and tasks whose verbs are awaited.

    async with postroom.aio.open() as room:
        letter = await room.mailbox("researcher").wait(timeout=30)
        await letter.reply("merge sort")

Each class here is made from the sync class that it stands for: `_face_of` gives it every method of that class,
awaited, and every attribute. A method runs in one of the room's threads, and what it returns is wrapped in turn.
The types that a type checker sees stand in `aio.pyi`, which `make pages` writes from the sync classes.

Any number of tasks may wait at once: they share one watcher on the event loop and hold no thread while they sleep.
A call that was started is finished even if its task is cancelled, so a letter is never half sent.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING

from . import room as postroom_room
from .core.verb import LONGEST_SLEEP, authorised, seconds_to_sleep
from .errors import BadStore, PostroomError
from .letter import Batch, Letter, Shift, Work
from .mailbox import Mailbox
from .model.values import check_seconds
from .room import Room
from .task import Task
from .watcher import SharedWatcher

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from types import TracebackType
    from typing import Any, ParamSpec, Self, TypeVar, Unpack

    from .keywords import Filters

    P = ParamSpec("P")
    T = TypeVar("T")

__all__ = ["AsyncBatch", "AsyncLetter", "AsyncMailbox", "AsyncRoom", "AsyncTask", "AsyncWork", "open"]

THREADS = 8  # SQLite writes one at a time anyway; a few more may wait for the disk
_WRAPPED = re.compile(r"\b(Batch|Letter|Task|Work)\b")


def open(store: str | os.PathLike[str] | None = None, **settings: Any) -> AsyncRoom:
    """Open a room as `postroom.open` does. Use it with `async with`, or close it."""
    return AsyncRoom(postroom_room.open(store, **settings))


def _face_of(sync, *, plain=(), without=()):
    """Give a class every public method of the sync class, awaited, and its attributes.

    Methods in `plain` need no thread: they are called at once. Those in `without` are left out.
    """

    def complete(cls):
        for owner in reversed(sync.__mro__):
            if not owner.__module__.startswith("postroom."):
                continue
            types = vars(owner).get("__annotations__", {})
            for name in (*types, *vars(owner)):
                if name[0] != "_" and name not in without and not hasattr(cls, name):
                    setattr(cls, name, _member(vars(owner).get(name), name, types, is_plain=name in plain))
        return cls

    return complete


def _member(member, name, types, *, is_plain):
    if not inspect.isfunction(member):
        getter = _get(name)
        if isinstance(member, property):
            functools.update_wrapper(getter, member.fget)
        else:
            getter.__annotations__ = {"return": types[name]}
        return property(getter)
    call = _call_at_once(name) if is_plain else _call(name)
    functools.update_wrapper(call, member)
    seen = inspect.signature(member)
    params = [one.replace(annotation=_as_async(one.annotation)) for one in seen.parameters.values()]
    call.__signature__ = seen.replace(parameters=params, return_annotation=_as_async(seen.return_annotation))
    return call


def _get(name):
    return lambda self: getattr(self._sync, name)


def _call(name):
    async def call(self, *args, **kwargs):
        return await self._room._call(getattr(self._sync, name), args, kwargs)

    return call


def _call_at_once(name):
    def call(self, *args, **kwargs):
        return getattr(self._sync, name)(*args, **kwargs)

    return call


def _as_async(annotation):
    """Return an annotation with the async classes in place of those they stand for."""
    return _WRAPPED.sub(r"Async\1", annotation) if isinstance(annotation, str) else annotation


class _Pause:
    """A call that waits for mail: its request, and what makes the result of an answer to it.

    It takes the place of `Room._wait`, which blocks, in the copy of the room that the async face calls.
    """

    def __init__(self, request, found):
        self.request = request
        self.found = found


@_face_of(Room, plain=("digest", "markdown"), without=("acting_as", "export", "system"))
class AsyncRoom:
    """A post room inside an event loop."""

    def __init__(self, room: Room) -> None:
        self.room = room  # the sync room, for calls that may block
        self._room = self
        # A copy, because the program may use the sync room itself, where waiting has to block.
        self._sync = copy(room)
        self._sync._wait = _Pause
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="postroom")
        self._watcher = SharedWatcher(room.core)
        self._closed = False

    def mailbox(self, name: str) -> AsyncMailbox:
        """Return an agent's mailbox. It need not exist: a program can wait for mail before any is sent."""
        return AsyncMailbox(self, self.room.mailbox(name))

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run any call of the sync room in one of its threads: `await room.run(room.room.sweep)`.

        A call that was started is finished even if the task is cancelled: a letter is never half sent.
        """
        if self._closed:
            raise BadStore("the room is closed", field="room")
        call = functools.partial(function, *args, **kwargs)
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            # The thread cannot be stopped: a cancelled task waits until the commit is known.
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    async def close(self) -> None:
        """Release threads and files. Tasks that still wait get BadStore."""
        await self._let_go()
        self.room.close()

    async def _let_go(self):
        """Release everything but the sync room."""
        self._closed = True
        self._watcher.close()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        except RuntimeError:  # the program ends: no thread takes work, and the loop has nothing else to do
            self._threads.shutdown()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _call(self, method, args, kwargs):
        """Call a method of a sync object in a thread, sleep outside of it if it waits, and wrap the result."""
        sync_args = [_sync_of(one) for one in args]
        outcome = await self.run(method, *sync_args, **{name: _sync_of(one) for name, one in kwargs.items()})
        if isinstance(outcome, _Pause):
            outcome = await self._perform(outcome.request, outcome.found)
        return self._wrap(outcome)

    async def _perform(self, request, found):
        """Do what `core.verb.perform` does for a request that waits, without a thread that sleeps."""
        results = []  # of the last look, and what was made of it if it was not empty

        def look():
            results[:] = [look_once()]
            if request.is_empty(results[0]):
                return False
            results.append(found(results[0]))
            return True

        look_once = authorised(self.room.core, self.room.principal, request)
        try:
            await self._wait_until(request.mailboxes(), request.timeout, look, request.longest_sleep)
        except asyncio.CancelledError:
            # The claim was committed while the task was cancelled: nobody else would know of it.
            if results[1:] and isinstance(results[1], (Work, Batch)):
                with suppress(PostroomError):  # then the letters come back when the lease runs out
                    await self.run(results[1].release)
            raise
        return results[1] if results[1:] else found(results[0])

    async def _wait_until(self, mailboxes, timeout, look, longest_sleep=lambda: LONGEST_SLEEP):
        """Wait as `core.verb.perform` does, without a thread that sleeps."""
        seconds = check_seconds(timeout, "timeout")
        found = await self.run(look)
        if found or seconds == 0:
            return found
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        with self._watcher.listen(mailboxes) as event:
            while True:
                event.clear()  # before the look: a letter that comes during it sets the event again
                began = self.room.core.now()
                found = await self.run(look)
                left = end - loop.time()
                if found or left <= 0:
                    return found
                timer = await self.run(seconds_to_sleep, self.room.core, mailboxes, began)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, longest_sleep(), timer)):
                        await event.wait()

    def _wrap(self, value):
        match value:
            case Batch():
                return AsyncBatch(self, value)
            case Work():
                return AsyncWork(self, value)
            case Letter():
                return AsyncLetter(self, value)
            case Task():
                return AsyncTask(self, value)
            case list() if value and isinstance(value[0], (Letter, Task)):
                return [self._wrap(one) for one in value]
            case _:
                return value


def _sync_of(value):
    """Return what a sync method takes in place of an async object, or of a list of them."""
    if isinstance(value, (_Face, AsyncBatch)):
        return value._sync
    if isinstance(value, (list, tuple)) and any(isinstance(one, _Face) for one in value):
        return [_sync_of(one) for one in value]
    return value


class _Face:
    """An object that stands for a sync one."""

    def __init__(self, room, sync):
        self._room = room
        self._sync = sync

    def __repr__(self) -> str:
        return repr(self._sync).replace(type(self._sync).__name__, type(self).__name__, 1)


@_face_of(Mailbox)
class AsyncMailbox(_Face):
    """One agent's mailbox: every verb of `Mailbox`, awaited."""

    def __init__(self, room: AsyncRoom, mailbox: Mailbox) -> None:
        super().__init__(room, Mailbox(room._sync, mailbox.name))
        self.room = room
        self.mailbox = mailbox
        self.name = mailbox.name

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
        shift = Shift(self.mailbox, lease)
        try:
            while True:
                patience = shift.patience(timeout)
                claimed = await self.claim(batch, lease=lease, timeout=patience, **filters)
                if not claimed:
                    await self.room.run(shift.give_back)
                    if patience == timeout:
                        return
                shift.begin(claimed._sync)
                while (work := await self.room.run(shift.next)) is not None:
                    yield AsyncWork(self.room, work)
        finally:
            await self.room.run(shift.leave)

    async def serve(
        self,
        handler: Callable[[AsyncWork], Awaitable[Any]],
        *,
        concurrency: int = 1,
        lease: float | None = None,
        grace: float = 30.0,
        timeout: float | None = None,
        **filters: Unpack[Filters],
    ) -> None:
        """Await the handler for each letter, for up to `concurrency` letters at once, as `Mailbox.serve` does.

        If the task is cancelled, so are the handlers, and their letters are released.
        """
        from .service import Service  # noqa: PLC0415 - it imports this module

        await Service(self._sync, self, handler, concurrency, lease, grace, timeout, filters).run()


@_face_of(Letter, plain=("to_markdown",))
class AsyncLetter(_Face):
    """A letter that was read, not claimed: `Letter`, awaited."""

    def __init__(self, room: AsyncRoom, letter: Letter) -> None:
        super().__init__(room, letter)


class _Block:
    """An async context manager that leaves the block of the sync object."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._room.run(self._sync.__exit__, kind, error, trace)


@_face_of(Work)
class AsyncWork(_Block, AsyncLetter):
    """A claimed letter: `Work`, awaited. As an async context manager it is acknowledged, or failed on an error."""

    def __init__(self, room: AsyncRoom, work: Work) -> None:
        super().__init__(room, work)


@_face_of(Batch)
class AsyncBatch(_Block, list):
    """Several letters claimed at once: `Batch`, awaited. May be empty."""

    def __init__(self, room: AsyncRoom, batch: Batch) -> None:
        super().__init__(AsyncWork(room, work) for work in batch)
        self._room = room
        self._sync = batch

    @property
    def unsettled(self) -> list[AsyncWork]:
        return [work for work in self if not work.is_settled]


@_face_of(Task)
class AsyncTask(_Face):
    """A task that was given or received at a mailbox: `Task`, awaited."""

    def __init__(self, room: AsyncRoom, task: Task) -> None:
        super().__init__(room, task)
