"""A mailbox's verbs for special occasions, awaited: what `errands.py` gives to a program. Above it stands `aio`.

They run in the threads of the room, as the daily ones do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from .aio import AsyncRoom
    from .fields import Fields
    from .mailbox import Mailbox
    from .model.escalation import Escalation
    from .model.message import Message
    from .service.sending import Receipt


class AsyncErrands:
    """The verbs of an async mailbox for special occasions."""

    room: AsyncRoom
    mailbox: Mailbox

    async def unsend(self, id: str) -> Message:
        return await self.room.run(self.mailbox.unsend, id)

    async def sent(self, limit: int = 20) -> list[Message]:
        return await self.room.run(self.mailbox.sent, limit)

    async def send_template(
        self, to: Any, name: str, values: Mapping[str, Any] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        return await self.room.run(self.mailbox.send_template, to, name, values, **fields)

    async def escalate(
        self, body: Any = None, *, reason: str, ladder: Sequence[str] | None = None, **fields: Unpack[Fields]
    ) -> Receipt:
        return await self.room.run(self.mailbox.escalate, body, reason=reason, ladder=ladder, **fields)

    async def escalations(self, *, open_only: bool = True) -> list[Escalation]:
        return await self.room.run(self.mailbox.escalations, open_only=open_only)

    async def resolve(self, id: str) -> Escalation:
        return await self.room.run(self.mailbox.resolve, id)

    async def block(self, name: str) -> list[str]:
        return await self.room.run(self.mailbox.block, name)

    async def unblock(self, name: str) -> list[str]:
        return await self.room.run(self.mailbox.unblock, name)

    async def blocked(self) -> list[str]:
        return await self.room.run(self.mailbox.blocked)
