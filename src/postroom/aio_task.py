"""Tasks inside an event loop: what `task.py` gives to a program, awaited. Above it stands `aio`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from .task import TaskView

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from .aio import AsyncRoom
    from .aio_letter import AsyncLetter
    from .fields import Fields
    from .model.message import Message
    from .model.task import TaskState
    from .policy.admission import Judge
    from .service.sending import Receipt
    from .task import Task

T = TypeVar("T")


class AsyncTask(TaskView):
    """A task that was given, or received, at a mailbox."""

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
