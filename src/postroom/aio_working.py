"""Working on mail inside an event loop: what `working.py` gives to a program, awaited. Above it stands `aio`."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .aio_letter import AsyncBatch, AsyncLetter, AsyncWork

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from typing import Unpack

    from .aio import AsyncRoom
    from .fields import Filters
    from .letter import Batch
    from .mailbox import Mailbox
    from .service.compose import Draft
    from .service.sending import Receipt

T = TypeVar("T")


class AsyncWorking:
    """The verbs of an async mailbox for mail that is worked on."""

    name: str
    room: AsyncRoom
    mailbox: Mailbox

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

    async def held(self, id: str, token: str) -> AsyncWork:
        return AsyncWork(self.room, await self.room.run(self.mailbox.held, id, token))

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
        """What is no list of letters is refused by the verb itself."""
        is_list = isinstance(letters, (list, tuple))
        held = [one._letter if isinstance(one, AsyncLetter) else one for one in letters] if is_list else letters
        done = await self.room.run(verb, held)
        for letter in letters:
            letter.delivery = letter._letter.delivery
        return done

    async def dead(self, limit: int | None = None) -> list[AsyncLetter]:
        return [AsyncLetter(self.room, letter) for letter in await self.room.run(self.mailbox.dead, limit)]

    async def revive(self, *ids: str) -> list[AsyncLetter]:
        return [AsyncLetter(self.room, letter) for letter in await self.room.run(self.mailbox.revive, *ids)]

    async def purge(self, *ids: str) -> int:
        return await self.room.run(self.mailbox.purge, *ids)
