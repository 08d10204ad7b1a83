"""Letters inside an event loop: what `letter.py` gives to a program, awaited.

Each holds the sync letter it stands for and runs its verbs in one of the room's threads. Above it stands `aio`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .letter import LetterView
from .model.query import Found

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Unpack

    from .aio import AsyncRoom
    from .fields import Fields
    from .letter import Batch, Letter, Work
    from .model.change import Cursor
    from .service.compose import Draft
    from .service.sending import Receipt

T = TypeVar("T")


class AsyncLetter(LetterView):
    """Mail that was looked at."""

    def __init__(self, room: AsyncRoom, letter: Letter) -> None:
        super().__init__(Found(letter.message, letter.delivery))
        self._room = room
        self._letter = letter

    @property
    def cursor(self) -> Cursor:
        """Up to and with this letter: `wait(since=letter.cursor)` goes on after it."""
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
    """Mail that was claimed; as an async context manager done on exit, back in the inbox on an error."""

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
    """Several letters claimed at once. May be empty."""

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
