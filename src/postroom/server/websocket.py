"""What waits to be written to one caller. It is bounded: a caller that does not read is told no more for a while,
and hears the rest from its cursor when it reads again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from ..model.codec import encode
from .callers import Caller
from .executor import ReplyQueue
from .http import read_rpc
from .uvicorn_protocol import ABORT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..core.authorize import Principal
    from .executor import JobFuture
    from .http import Receive, Scope, Send
    from .http_app import HttpApp
    from .protocol import Request


GRACE = 0.5  # seconds for the last of it to be written, before the connection is cut
MOST = 256 * 1024  # bytes that may wait; one notice more than that at most


class Outbox:
    """Filled by whoever has something to say, emptied by the one who writes. `cut` ends the connection."""

    def __init__(self, cut: Callable[[], object]) -> None:
        self._cut = cut
        self._cutting: asyncio.TimerHandle | None = None
        self._pieces: list[bytes] = []
        self._size = 0
        self._ready = asyncio.Event()
        self.is_closed = False
        self.has_refused = False  # was something not taken since the last `take`?

    @property
    def is_full(self) -> bool:
        return self._size >= MOST

    def offer(self, piece: bytes) -> bool:
        """False: not taken, there is no room for it now."""
        if not self.has_room():
            return False
        self.add(piece)
        return True

    def has_room(self) -> bool:
        """May something be offered? Who is told no is told again when there is."""
        if self.is_closed or self.is_full:
            self.has_refused = True
            return False
        return True

    def add(self, piece: bytes) -> None:
        """What is owed; whoever owes sees to it that there is not too much of it."""
        self._pieces.append(piece)
        self._size += len(piece)
        self._ready.set()

    async def take(self) -> list[bytes]:
        """All that waits, as soon as there is something. Nothing: it is over."""
        await self._ready.wait()
        pieces, self._pieces, self._size = self._pieces, [], 0
        if not self.is_closed:
            self._ready.clear()
        return pieces

    def close(self) -> None:
        """What waits may still be taken, for a moment: the other side may never read it."""
        if not self.is_closed:
            self.is_closed = True
            self._cutting = asyncio.get_running_loop().call_later(GRACE, self._cut)
            self._ready.set()

    def drop(self) -> None:
        """Over at once: what waits is for nobody."""
        self._pieces, self._size = [], 0
        self.close()

    def emptied(self) -> None:
        """All of it was written."""
        if self._cutting is not None:
            self._cutting.cancel()


# `/ws`: JSON-RPC in text frames, both ways. Replies come in the order of what was said, notices between them.
#
# A caller that does not read is not read from either, so that its replies take bounded memory.


class Speaker(Protocol):
    """Who carries out what is said in frames."""

    def carry_out(self, request: Request) -> JobFuture: ...
    def replies_sent(self) -> None: ...
    def resume(self) -> None: ...
    def close(self) -> None: ...


GOING_AWAY, NOT_TEXT, EXPELLED = 1001, 1003, 1008


class Talk:
    """One caller."""

    def __init__(self, house: HttpApp, principal: Principal | None, scope: Scope, send: Send) -> None:
        self._house = house
        self._send = send
        self._outbox = Outbox(scope["state"][ABORT])
        self._room = asyncio.Event()  # can something be begun?
        self.code, self.reason = GOING_AWAY, ""  # why it ends, when we end it
        self._caller: Speaker = self._open_caller(principal)
        self._owing = ReplyQueue(self._caller.carry_out, self._settle)

    def _open_caller(self, principal: Principal | None) -> Speaker:
        assert principal is not None  # noqa: S101 - nobody gets here without a token
        house = self._house
        return Caller(house.executor, house.broker, push=self.push, expel=self._expel, principal=principal)

    def _understood(self, text: str) -> Request | dict[str, Any] | None:
        return read_rpc(text, self._house.limits)

    async def run(self, receive: Receive) -> None:
        reading = asyncio.ensure_future(self._read(receive))
        reading.add_done_callback(lambda _: self._outbox.close())
        try:
            with self._house.ended_by(self._outbox.close):
                await self._write()
        finally:
            reading.cancel()
            self._caller.close()  # a letter is not handed to nobody
        if reading.done() and not reading.cancelled():
            reading.result()

    # -- what it says

    async def _read(self, receive: Receive) -> None:
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self._ended(message.get("code", 0))
                return
            if (text := message.get("text")) is None:
                self.code = NOT_TEXT
                return
            while not self._owing.may_hear(len(text)):
                await self._until_room()
            request = self._understood(text)
            if request is None:
                continue
            while self._outbox.is_full or not self._owing.has_room(request):
                await self._until_room()
            self._owing.begin(request, len(text))

    async def _until_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    def _ended(self, code: int) -> None:
        """Why the connection was ended, by them or by what they sent."""

    def _settle(self) -> None:
        """What is answered, as far as it is in order."""
        for reply in self._owing.take():
            piece = encode(reply)
            self._owing.note_size(len(piece))
            self._outbox.add(piece)
        self._caller.replies_sent()
        self._room.set()

    # -- what it hears

    def push(self, notice: dict[str, Any]) -> bool:
        return self._outbox.has_room() and self._outbox.offer(encode(notice))

    def _expel(self) -> None:
        self.code = EXPELLED
        self._outbox.drop()

    async def _write(self) -> None:
        while pieces := await self._outbox.take():
            params = self._said_so_far()
            for piece in pieces:
                await self._send({"type": "websocket.send", "text": piece.decode()})
            self._wrote(params)
            self._room.set()
            if self._outbox.has_refused and not self._outbox.is_closed:
                self._outbox.has_refused = False
                self._caller.resume()

    async def say_why(self) -> None:
        """The last word. Whoever does not take it in time is cut off."""
        await self._send({"type": "websocket.close", "code": self.code, "reason": self.reason})
        self._outbox.emptied()

    def _said_so_far(self) -> int:
        """A number for what was taken to be written."""
        return 0

    def _wrote(self, params: int) -> None:
        """What had this number was written."""


async def serve_frames(house: HttpApp, principal: Principal, scope: Scope, receive: Receive, send: Send) -> None:
    """Until either side ends it."""
    await receive()  # that it wants to connect
    await send({"type": "websocket.accept"})
    await until_end(Talk(house, principal, scope, send), receive)


async def until_end(talk: Talk, receive: Receive) -> None:
    await talk.run(receive)
    await talk.say_why()
