"""Frames are heard in sips, so that everybody else gets a turn between two of them.

A frame can be six bytes, and each is work. The loop of events may read megabytes of them before it looks at
anybody else. So what was read waits here, nothing more is read meanwhile, and each turn of the loop hears a little
of it. Only what makes frames counts: the bytes of a large one go on at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from asyncio import Handle

    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent

SIP = 1024  # bytes

_NOTHING = memoryview(b"")


class Sips(WebSocketsSansIOProtocol):
    """One connection that was upgraded. Whoever tears it off is not heard to the end."""

    _unheard = _NOTHING
    _turn: Handle | None = None  # the next one, when something is unheard
    _has_heard = False  # a frame, in this turn?

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)  # the head, which is one piece
            self._refuse_bad_head()
            return
        self._unheard = memoryview(bytes(self._unheard) + data if self._unheard else data)
        if self._turn is None and not self.read_paused:
            self._hear()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unheard = _NOTHING
        super().connection_lost(exc)

    def handle_events(self) -> None:
        self._has_heard = bool(self.conn.events)
        super().handle_events()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._await_turn()  # it may have gone on reading
        return message

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        self._await_turn()  # likewise

    def _refuse_bad_head(self) -> None:
        """A head that was good enough before, and is not here: uvicorn would let its sender wait forever."""
        if not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.close()

    def _hear(self) -> None:
        self._turn, self._has_heard = None, False
        while self._unheard and not self._has_heard and not self.transport.is_closing():
            sip, self._unheard = self._unheard[:SIP], self._unheard[SIP:]
            super().data_received(sip)  # type: ignore[arg-type] # it is only added to what is there
        if self.transport.is_closing():
            self._unheard = _NOTHING
        elif self._unheard:
            self._await_turn()
        elif not self.read_paused:
            self.transport.resume_reading()

    def _await_turn(self) -> None:
        """The rest is heard in the next turn, unless whoever serves the frames has enough of them."""
        if self._unheard and not self.read_paused and self._turn is None and not self.transport.is_closing():
            self.transport.pause_reading()
            self._turn = self.loop.call_soon(self._hear)
