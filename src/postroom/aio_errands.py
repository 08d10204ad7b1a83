"""A mailbox's verbs for special occasions, awaited: what `errands.py` gives to a program. Above it stands `aio`.

They run in the threads of the room, as the daily ones do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .model.message import Message

if TYPE_CHECKING:
    from .aio import AsyncRoom
    from .mailbox import Mailbox


class AsyncErrands:
    """The verbs of an async mailbox for special occasions."""

    room: AsyncRoom
    mailbox: Mailbox

    async def unsend(self, id: str) -> Message:
        return await self.room.run(self.mailbox.unsend, id)

    async def block(self, name: str) -> list[str]:
        return await self.room.run(self.mailbox.block, name)

    async def unblock(self, name: str) -> list[str]:
        return await self.room.run(self.mailbox.unblock, name)

    async def blocked(self) -> list[str]:
        return await self.room.run(self.mailbox.blocked)
