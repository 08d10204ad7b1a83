"""`/ws`: JSON-RPC in text frames, both ways. Replies come in the order of what was said, notices between them.

A caller that does not read is not read from either, so that its replies take bounded memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from ..callers import Caller
from ..model.codec import encode
from ..wire.session import Asked
from .calls import read_rpc
from .outbox import Outbox
from .protocol import ABORT

if TYPE_CHECKING:
    from ..service.authorize import Principal
    from .house import House
    from .replies import Receive, Scope, Send

MOST_ASKED = 64  # calls of one caller that are under way at once
GOING_AWAY, NOT_TEXT, EXPELLED = 1001, 1003, 1008


class Talk:
    """One caller."""

    def __init__(self, house: House, principal: Principal, scope: Scope, send: Send) -> None:
        self._house = house
        self._send = send
        self._outbox = Outbox(scope["state"][ABORT])
        self._replies: deque[asyncio.Future[Any]] = deque()  # in the order they are owed
        self._is_alone = False  # is something carried out that nothing may overtake?
        self._room = asyncio.Event()  # can something be begun?
        self.code = GOING_AWAY  # why it ends, when we end it
        self._caller = Caller(house.desk, house.hub, push=self._push, expel=self._expel, principal=principal)

    async def run(self, receive: Receive) -> None:
        reading = asyncio.ensure_future(self._read(receive))
        reading.add_done_callback(lambda _: self._outbox.close())
        try:
            with self._house.ended_by(self._outbox.close):
                await self._write()
        finally:
            reading.cancel()
            for owed in self._replies:
                if self._is_alone:  # a letter is not handed to nobody
                    owed.cancel()
            self._caller.close()
        if reading.done() and not reading.cancelled():
            reading.result()

    # -- what it says

    async def _read(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return
            while not self._can_begin():
                self._room.clear()
                await self._room.wait()
            if (text := message.get("text")) is None:
                self.code = NOT_TEXT
                return
            self._begin(read_rpc(text, self._house.limits))

    def _can_begin(self) -> bool:
        return not (self._is_alone or self._outbox.is_full or len(self._replies) >= MOST_ASKED)

    def _begin(self, asked: Asked | dict[str, Any]) -> None:
        if isinstance(asked, Asked):
            self._is_alone = asked.is_long
            owed = self._caller.carry_out(asked)
        else:
            owed = asyncio.get_running_loop().create_future()
            owed.set_result(asked)
        self._replies.append(owed)
        if owed.done():
            self._settle()
        else:
            owed.add_done_callback(lambda _: self._settle())

    def _settle(self) -> None:
        """What is answered, as far as it is in order."""
        while self._replies and self._replies[0].done():
            owed = self._replies.popleft()
            reply = None if owed.cancelled() else owed.result()
            if reply is not None:
                self._outbox.add(encode(reply))
        self._is_alone = self._is_alone and bool(self._replies)
        self._room.set()

    # -- what it hears

    def _push(self, notice: dict[str, Any]) -> bool:
        return self._outbox.offer(encode(notice))

    def _expel(self) -> None:
        self.code = EXPELLED
        self._outbox.drop()

    async def _write(self) -> None:
        while pieces := await self._outbox.take():
            for piece in pieces:
                await self._send({"type": "websocket.send", "text": piece.decode()})
            self._room.set()
            if self._outbox.has_refused and not self._outbox.is_closed:
                self._outbox.has_refused = False
                self._caller.resume()
        self._outbox.emptied()


async def serve_frames(house: House, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
    """Until either side ends it."""
    await receive()  # that it wants to connect
    await send({"type": "websocket.accept"})
    talk = Talk(house, principal, scope, send)
    await talk.run(receive)
    await send({"type": "websocket.close", "code": talk.code})
