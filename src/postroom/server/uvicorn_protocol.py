"""uvicorn's HTTP and WebSocket connections, with limits, so that many or slow clients cannot exhaust the server.

- A client that has not sent a whole head in HEAD_SECONDS is disconnected, however slowly it sends.
- A client that comes when there are MAX_CONNECTIONS is refused at once.
- A client that sends pings and does not read gets no more pongs.
- WebSocket frames are read in slices. A frame can be six bytes, and each is work; the event loop may read
  megabytes of them before it looks at other connections. So bytes that were read wait here, nothing more is read
  meanwhile, and each turn of the loop parses a few. The bytes of a large frame are not slowed down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from .http import HEAD_BYTES, HEAD_TOO_LONG
from .tls import fingerprint

if TYPE_CHECKING:
    import asyncio
    from asyncio import Handle, TimerHandle
    from collections.abc import Callable

    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent
    from websockets.frames import Frame
    from websockets.http11 import Request


HEAD_SECONDS = 10.0  # to receive the head of a request
MAX_CONNECTIONS = 1000
MAX_FRAGMENTS = 10_000  # of one WebSocket message
MAX_UNREAD = 8 * 1024 * 1024  # bytes of a body that are read and dropped after an early answer, so that it is read
SLICE_BYTES = 1024
PINGS = "postroom.pings"  # in the state of a WebSocket scope: its PingSender
_PING_PREFIX = b"postroom:"  # of the data of our own pings
ABORT = "postroom.abort"  # in the state of a scope: ends this connection, whatever waits to be written
CERTIFICATE = "postroom.certificate"  # in the state of a scope: the fingerprint of the client's certificate
_NOTHING = memoryview(b"")
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 20\r\n"
    b"retry-after: 5\r\nconnection: close\r\n\r\ntoo many connections"
)
_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(HEAD_TOO_LONG.body), HEAD_TOO_LONG.body)
)


class HttpProtocol(H11Protocol):
    """One HTTP connection."""

    _timer: TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        self.app_state = {**self.app_state, ABORT: transport.abort, CERTIFICATE: _certificate(transport)}
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.write(_FULL)
            transport.close()
            return
        self._time_the_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_the_head()
        if self._is_answered_early():
            self._unread += len(data)
            if self._unread > MAX_UNREAD:
                self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._stop_timing()
        super().handle_websocket_upgrade(event)

    def send_400_response(self, msg: str) -> None:
        """Answer 431 to a head that is too long, in place of 400."""
        if self.conn.our_state is h11.IDLE and len(self.conn.trailing_data[0]) > HEAD_BYTES:
            self.transport.write(_LONG)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def _time_the_head(self) -> None:
        """Start or stop the timer: it runs from the start of a connection or the first byte of a head until the
        head is whole, and for the rest of a body that was answered before it was read.
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


class PingSender:
    """Sends numbered pings; `answered` is called with the number of each pong. uvicorn's own keep-alive pings are
    others.
    """

    def __init__(self, ping: Callable[[bytes], None]) -> None:
        self._ping = ping
        self.answered: Callable[[int], None] = lambda _: None

    def send(self, number: int) -> None:
        self._ping(_PING_PREFIX + b"%d" % number)

    def handle_pong(self, data: bytes) -> bool:
        """Return whether a pong answers one of these pings, and report it."""
        digits = data.removeprefix(_PING_PREFIX)
        if digits == data or not digits.isdigit() or len(digits) > 18:
            return False
        self.answered(int(digits))
        return True


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One WebSocket connection, read in slices. The rest is dropped when the client closes the connection."""

    _unread_bytes = _NOTHING
    _next_turn: Handle | None = None  # the next call of `_read_on`, while bytes wait
    _has_frame = False  # was a frame parsed in this turn?
    _pings: PingSender | None = None

    def data_received(self, data: bytes) -> None:
        if not self.handshake_initiated:
            super().data_received(data)  # the head comes in one piece: the HTTP protocol has read it
            self._refuse_bad_head()
            return
        self._unread_bytes = memoryview(bytes(self._unread_bytes) + data if self._unread_bytes else data)
        if self._next_turn is None and not self.read_paused:
            self._read_on()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unread_bytes = _NOTHING
        super().connection_lost(exc)

    def handle_events(self) -> None:
        self._has_frame = bool(self.conn.events)
        super().handle_events()

    async def receive(self) -> ASGIReceiveEvent:
        message = await super().receive()
        self._await_turn()  # uvicorn may have gone on reading
        return message

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message; drop it on a connection that broke just now, for asyncio would log each piece. Mark a
        refused upgrade as answered, or uvicorn would log an error.
        """
        if message["type"] == "websocket.send" and self.transport.is_closing():
            raise ClientDisconnected
        await super().send(message)
        self._await_turn()  # uvicorn may have gone on reading
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True

    def handle_connect(self, event: Request) -> None:
        self._pings = PingSender(self._ping)
        self.app_state = {**self.app_state, PINGS: self._pings}
        super().handle_connect(event)

    def _ping(self, data: bytes) -> None:
        if not self.close_sent and not self.transport.is_closing():
            self.conn.send_ping(data)
            self.transport.write(b"".join(self.conn.data_to_send()))

    def handle_pong(self, event: Frame) -> None:
        if self._pings is None or not self._pings.handle_pong(bytes(event.data)):
            super().handle_pong(event)

    def handle_cont(self, event: Frame) -> None:
        """Refuse a message of too many fragments: empty ones count nothing towards its size, and
        take memory here.
        """
        if len(self.frames) >= MAX_FRAGMENTS:
            self.conn.fail(CloseCode.POLICY_VIOLATION, "too many fragments")
            self.handle_parser_exception()
        else:
            super().handle_cont(event)

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # drop the pong to a client that does not read

    def _refuse_bad_head(self) -> None:
        """Refuse an upgrade that h11 accepts and websockets does not: uvicorn would let the client
        wait forever.
        """
        if not self.handshake_initiated:
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = True
            self.transport.close()

    def _read_on(self) -> None:
        self._next_turn, self._has_frame = None, False
        while self._unread_bytes and not self._has_frame and not self.transport.is_closing():
            piece, self._unread_bytes = self._unread_bytes[:SLICE_BYTES], self._unread_bytes[SLICE_BYTES:]
            super().data_received(piece)  # type: ignore[arg-type] # it is appended to a bytearray
        if self.transport.is_closing():
            self._unread_bytes = _NOTHING
        elif self._unread_bytes:
            self._await_turn()
        elif not self.read_paused:
            self.transport.resume_reading()

    def _await_turn(self) -> None:
        """Read the rest in the next turn of the loop, unless uvicorn has paused reading."""
        if (
            self._unread_bytes
            and not self.read_paused
            and self._next_turn is None
            and not self.transport.is_closing()
        ):
            self.transport.pause_reading()
            self._next_turn = self.loop.call_soon(self._read_on)
