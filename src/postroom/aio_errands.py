"""A mailbox's verbs for special occasions, awaited: what `errands.py` gives to a program. Above it stands `aio`.

They run in the threads of the room, as the daily ones do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import service

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Unpack

    from .aio import AsyncRoom
    from .fields import Fields
    from .mailbox import Mailbox
    from .model.escalation import Escalation
    from .model.message import Message
    from .model.ring import Later, LostRing, Rung
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

    async def begin_rings(self, way: str, *, backlog: bool = False) -> int:
        return await self.room.run(self.mailbox.begin_rings, way, backlog=backlog)

    async def try_ring(
        self, way: str, *, may_ring: Callable[[], bool] | None = None, within: float | None = None
    ) -> Rung | Later:
        """`may_ring` is called in a thread of the room."""
        return await self.room.run(self.mailbox.try_ring, way, may_ring=may_ring, within=within)

    async def wait_to_ring(
        self,
        way: str,
        timeout: float = 30.0,
        *,
        may_ring: Callable[[], bool] | None = None,
        within: float | None = None,
    ) -> Rung | None:
        """Holds no thread while it sleeps. If the task is cancelled just then, a ring may be lost, unless it was
        to be said to be done `within` some time.
        """
        service.waiting.check_timeout(timeout)
        await self.begin_rings(way)
        box = self.mailbox
        patience = service.ringing.Patience(box._office, box._caller, box.name, way, may_ring, within=within)
        return await self.room._wait_until([box.name], timeout, patience.look, patience.nap)

    async def ring_done(self, way: str, ids: str | Sequence[str]) -> None:
        await self.room.run(self.mailbox.ring_done, way, ids)

    async def ring_failed(self, way: str, ids: str | Sequence[str], why: str) -> int:
        return await self.room.run(self.mailbox.ring_failed, way, ids, why)

    async def dead_rings(self) -> list[LostRing]:
        return await self.room.run(self.mailbox.dead_rings)

    async def retry_rings(self, *, way: str | None = None, ids: str | Sequence[str] | None = None) -> int:
        return await self.room.run(self.mailbox.retry_rings, way=way, ids=ids)

    async def mark_shown(self, ids: str | Sequence[str], host: str, where: str = "", *, read: bool = True) -> int:
        return await self.room.run(self.mailbox.mark_shown, ids, host, where, read=read)

    async def block(self, name: str) -> list[str]:
        return await self.room.run(self.mailbox.block, name)

    async def unblock(self, name: str) -> list[str]:
        return await self.room.run(self.mailbox.unblock, name)

    async def blocked(self) -> list[str]:
        return await self.room.run(self.mailbox.blocked)
