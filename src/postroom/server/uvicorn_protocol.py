"""Frames are heard in sips, so that everybody else gets a turn between two of them.

A frame can be six bytes, and each is work. The loop of events may read megabytes of them before it looks at
anybody else. So what was read waits here, nothing more is read meanwhile, and each turn of the loop hears a little
of it. Only what makes frames counts: the bytes of a large one go on at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from .http import HEAD_BYTES, LONG_HEAD
from .tls import fingerprint

if TYPE_CHECKING:
    import asyncio
    from asyncio import Handle, TimerHandle
    from collections.abc import Callable

    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
    from websockets.frames import Frame
    from websockets.http11 import Request


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


# Connections, as uvicorn makes them, that cannot wear us out: not by being many, nor by being slow.
#
# Whoever has not sent a whole head in time is ended, however it trickles. Whoever comes when there are too
# many is told so at once. Whoever sends pings and reads no answers gets no more of them.

HEAD_SECONDS = 10.0  # for the head of a request
MOST_CONNECTIONS = 1000
MOST_PIECES = 10_000  # of one message in frames
MOST_UNREAD = 8 * 1024 * 1024  # bytes of a body that is not wanted any more, so that its sender gets to our answer
SIGNS = "postroom.signs"  # in the state of a scope of frames: pings of our own
_SIGN = b"postroom:"  # so they begin
ABORT = "postroom.abort"  # in the state of a scope: ends this connection, whatever waits to be written
CERTIFICATE = "postroom.certificate"  # in the state of a scope: the fingerprint of what its TLS showed
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 20\r\n"
    b"retry-after: 5\r\nconnection: close\r\n\r\ntoo many connections"
)
_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(LONG_HEAD.body), LONG_HEAD.body)
)


class Http(H11Protocol):
    """One connection."""

    _timer: TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        self.app_state = {**self.app_state, ABORT: transport.abort, CERTIFICATE: _certificate(transport)}
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.write(_FULL)
            transport.close()
            return
        self._time_the_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_the_head()
        if self._is_answered_early():
            self._unread += len(data)
            if self._unread > MOST_UNREAD:
                self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._stop_timing()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Nothing came of what was sent. A head that is too long is told so."""
        if self.conn.our_state is h11.IDLE and len(self.conn.trailing_data[0]) > HEAD_BYTES:
            self.transport.write(_LONG)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _time_the_head(self) -> None:
        """The clock runs from the first byte of a head, or from the start, until the head is whole; and for the
        rest of a body that was answered before it was read.
        """
        is_slow = self.conn.their_state is h11.IDLE or self._is_answered_early()
        is_waiting = is_slow and not self.transport.is_closing()
        if not is_waiting or self.timeout_keep_alive_task is not None:
            self._stop_timing()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _is_answered_early(self) -> bool:
        return self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY

    def _stop_timing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _certificate(transport: asyncio.Transport) -> str:
    tunnel = transport.get_extra_info("ssl_object")
    shown = None if tunnel is None else tunnel.getpeercert(binary_form=True)
    return fingerprint(shown) if shown else ""


class Signs:
    """Pings of our own, each with a number; `answered` hears of the pong to one. Those of the connection, by which
    it is known to live, are others.
    """

    def __init__(self, ping: Callable[[bytes], None]) -> None:
        self._ping = ping
        self.answered: Callable[[int], None] = lambda _: None

    def send(self, number: int) -> None:
        self._ping(_SIGN + b"%d" % number)

    def hear(self, data: bytes) -> bool:
        """Is it the pong to one of ours?"""
        digits = data.removeprefix(_SIGN)
        if digits == data or not digits.isdigit() or len(digits) > 18:
            return False
        self.answered(int(digits))
        return True


class Frames(Sips):
    """One connection that was upgraded."""

    _signs: Signs | None = None

    def handle_connect(self, event: Request) -> None:
        self._signs = Signs(self._ping)
        self.app_state = {**self.app_state, SIGNS: self._signs}
        super().handle_connect(event)

    def _ping(self, data: bytes) -> None:
        if not self.close_sent and not self.transport.is_closing():
            self.conn.send_ping(data)
            self.transport.write(b"".join(self.conn.data_to_send()))

    def handle_pong(self, event: Frame) -> None:
        if self._signs is None or not self._signs.hear(bytes(event.data)):
            super().handle_pong(event)

    async def send(self, message: ASGISendEvent) -> None:
        """An upgrade that was refused is answered: without this uvicorn would log it as an error. Nothing is
        written to a connection that broke just now: asyncio would log each piece of it.
        """
        if message["type"] == "websocket.send" and self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def handle_cont(self, event: Frame) -> None:
        """Empty pieces weigh nothing on the wire's scale, and something here."""
        if len(self.frames) >= MOST_PIECES:
            self.conn.fail(CloseCode.POLICY_VIOLATION, "too many pieces")
            self.handle_parser_exception()
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # a pong to somebody who does not read
