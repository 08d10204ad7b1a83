"""One gateway among those of its agent: it signs that it is there, and leaves to the others what is theirs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from ..model.delivery import State
from ..model.query import Query
from . import homes
from .reach import NEVER

if TYPE_CHECKING:
    from ..aio_letter import AsyncWork
    from .post import Post
    from .sorting import Errand

BETWEEN_SIGNS = 20.0  # seconds


class Reach(Protocol):
    async def reaches(self, channel: str) -> bool: ...


class Lodging:
    """Where this gateway lives, and the letters that it has seen to be for another."""

    def __init__(self, post: Post, reach: Reach, signed: str) -> None:
        self._post = post
        self._reach = reach
        self._signed = signed
        self._signed_at = 0.0  # seconds of a steady clock
        self._left: dict[str, Errand] = {}

    @property
    def left(self) -> frozenset[str]:
        """The letters that are not to be claimed here."""
        return frozenset(self._left)

    async def arrive(self) -> None:
        await self._post.room.run(homes.forget_old, self._post.office, self._post.name)
        await self._sign()

    async def stay(self) -> None:
        if time.monotonic() - self._signed_at >= BETWEEN_SIGNS:
            await self._sign()

    async def depart(self) -> bool:
        """Says whether nobody else is there."""
        await self._sign(left=True)
        return await self._post.room.run(
            homes.is_alone, self._post.office, self._post.name, self._post.home, self._signed
        )

    async def _sign(self, *, left: bool = False) -> None:
        self._signed_at = time.monotonic()
        post = self._post
        await post.room.run(homes.sign, post.office, post.name, post.home, self._signed, left=left)

    async def is_left(self, work: AsyncWork, errand: Errand) -> bool:
        """Is it for another gateway? Then it is put back, and not taken again."""
        if not await self._is_elsewhere(work.id, errand):
            return False
        self._left[work.id] = errand
        await work.release()
        return True

    async def look_again(self) -> None:
        """What the others took is forgotten; what they will not take is for us."""
        if not self._left:
            return
        query = Query(mailbox=self._post.name, states=(State.UNREAD,), message_ids=tuple(self._left))
        waiting = {found.message.id for found in await self._post.room.run(self._post.office.store.find, query)}
        for letter, errand in list(self._left.items()):
            is_new = _is_new(letter, errand)  # who had its thread may be another by now: it is sorted again
            if letter not in waiting or is_new or not await self._is_elsewhere(letter, errand):
                del self._left[letter]

    async def _is_elsewhere(self, letter: str, errand: Errand) -> bool:
        post, where = self._post, errand.asked
        if errand.home in {"", post.home} or (where is not None and where.channel in NEVER):
            return False
        if _is_new(letter, errand):  # it can be done without what was before
            return await post.room.run(homes.is_there, post.office, post.name, errand.home)
        if await post.room.run(homes.is_awaited, post.office, post.name, errand.home):
            return True
        return errand.what == "tell" and where is not None and not await self._reach.reaches(where.channel)


def _is_new(letter: str, errand: Errand) -> bool:
    """Is it no answer to anything that this agent has begun?"""
    return errand.what == "work" and errand.answers in {None, letter}
