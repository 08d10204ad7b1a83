"""The connection of agent-inbox, as a line to a peer: letters go as messages to an agent do.

It knows no receipt. So behind a letter goes a question, and its answer, also that there is no such method, comes
after the letter was handled. One goes before the first letter, too: agent-inbox hangs up its handler behind the
answer to its registration, and would lose what it reads before that.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import Invalid
from ..lines.line import Line, LineLost, MapRefusal
from ..wire.federation_inbox import messages_of
from ..wire.federation_problems import federation_error
from ..wire.map_names import FIND, MESSAGE, PING, ROUTE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

READY = 0.25  # seconds, after which the answer to its registration is on its way


class InboxLine(Line):
    def __init__(
        self,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        heard: Callable[[str, Mapping[str, Any]], None],
        patience: float,
    ) -> None:
        super().__init__(send, heard, patience)
        self._ready_at = asyncio.get_running_loop().time() + READY
        self._is_ready = False
        self._beginning = asyncio.Lock()

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        await self._begin()
        if method == FIND:  # it cannot be asked
            return {"has": False}
        if method != ROUTE:
            return await super().ask(method, **params)
        try:
            messages = messages_of(msgspec.json.decode(params["envelope"]))
        except Invalid as wrong:
            raise MapRefusal(federation_error(wrong)) from None
        for message in messages:
            await self.tell(MESSAGE, message=message)
        await self._has_read()
        return {"routed": True}

    async def _begin(self) -> None:
        async with self._beginning:
            if not self._is_ready:
                await asyncio.sleep(self._ready_at - asyncio.get_running_loop().time())
                await self._has_read()
                self._is_ready = True

    async def _has_read(self) -> None:
        """Until it has handled all that it was told so far."""
        with suppress(MapRefusal):
            await super().ask(PING)

    async def tell(self, method: str, /, **params: Any) -> None:
        """Of what systems tell each other it understands letters, and nothing else."""
        if self.lost.is_set():
            raise LineLost("the connection was cut")
        if method == MESSAGE:
            await super().tell(method, **params)
