"""The connections of HTTP and WebSocket clients: uvicorn's own, with limits around them.

uvicorn has no limit for a client that sends slowly, or sends without end. So each of its connections stands inside
one of ours, which uvicorn's settings `http` and `ws` name. It sees the bytes before uvicorn does, hands them over
in small pieces, so that the event loop serves others in between, and may end the connection.

- A client that has not sent a whole request in HEAD_SECONDS is disconnected, however slowly it sends.
- A client that comes when there are MAX_CONNECTIONS is refused at once.
- A WebSocket client that sends more than two of the largest messages without completing one is disconnected.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import MAX_LINE_LENGTH, MAX_NUM_HEADERS

from .http import HEAD_TOO_LONG
from .tls import fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from uvicorn import Config
    from uvicorn.server import ServerState


HEAD_SECONDS = 10.0  # to receive the head of a request
MAX_CONNECTIONS = 1000
MAX_UNSERVED = 8 * 1024 * 1024  # bytes of a body that are dropped after an early answer, so that it is read
HTTP_BYTES = 64 * 1024  # handed over in one piece
# Of WebSocket frames: one may be six bytes, and each is work. uvloop reads 32 pieces before it serves others.
FRAME_BYTES = 1024
CONNECTION = "postroom.connection"  # in the state of a scope: the connection that it came by
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 20\r\n"
    b"retry-after: 5\r\nconnection: close\r\n\r\ntoo many connections"
)

_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(HEAD_TOO_LONG.body), HEAD_TOO_LONG.body)
)


class Guard(asyncio.BufferedProtocol):
    """One connection of uvicorn, and what it may receive. Its timer runs until a request is complete enough to be
    served.
    """

    piece = HTTP_BYTES

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._server_state = server_state
        self._inner = self.make({**app_state, CONNECTION: self})
        self._buffer = memoryview(bytearray(self.piece))
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_serving = False
        self.certificate = ""  # the fingerprint of the client's certificate

    def make(self, state: dict[str, Any]) -> Any:
        """Return the connection of uvicorn."""
        raise NotImplementedError

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def abort(self) -> None:
        """End the connection, whatever waits to be written."""
        if self._transport is not None:
            self._transport.abort()

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Stop the timer while a request is served."""
        self._is_serving = True
        self._stop_timer()
        try:
            yield
        finally:
            self._is_serving = False

    def start_timer(self) -> None:
        if self._timer is None and not self._is_serving:
            self._timer = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        tunnel = transport.get_extra_info("ssl_object")
        shown = None if tunnel is None else tunnel.getpeercert(binary_form=True)
        self.certificate = fingerprint(shown) if shown else ""
        self._inner.connection_made(transport)
        self.start_timer()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the signature of asyncio
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        stays_open: bool | None = self._inner.eof_received()
        return stays_open

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._inner.connection_lost(exc)


class HttpGuard(Guard):
    """One HTTP connection. The timer runs again from the first byte after a reply, so that it ends a body that
    nobody waits for, too.
    """

    _unserved = 0  # bytes that came while no request was served

    def make(self, state: dict[str, Any]) -> H11Protocol:
        return H11Protocol(self._config, self._server_state, state)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if len(self._server_state.connections) > MAX_CONNECTIONS and self._transport is not None:
            self._transport.write(_FULL)
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self.start_timer()
        self._unserved = 0 if self._is_serving else self._unserved + len(data)
        if self._unserved > MAX_UNSERVED:
            self.abort()
            return
        super().data_received(data)
        if self._transport is not None and self._transport.get_protocol() is not self:  # it is a WebSocket now
            self._stop_timer()


class WebSocketGuard(Guard):
    """One WebSocket connection. Pings and pieces of a message cost memory before the app sees anything of them, so
    they are counted until a message is complete.
    """

    piece = FRAME_BYTES
    _has_head = False

    def make(self, state: dict[str, Any]) -> WebSocketsSansIOProtocol:
        self._received = 0  # bytes since the app got a message
        return WebSocketsSansIOProtocol(self._config, self._server_state, state)

    def data_received(self, data: bytes) -> None:
        if not self._has_head:  # it comes in one piece, from the HTTP connection
            self._has_head = True
            lines = data.split(b"\r\n")
            if len(lines) > MAX_NUM_HEADERS or max(map(len, lines)) > MAX_LINE_LENGTH - len(b"\r\n"):
                self._refuse_long_head()
                return
        self._received += len(data)
        if self._received > 2 * self._config.ws_max_size:
            self.abort()
        else:
            super().data_received(data)

    def _refuse_long_head(self) -> None:
        """Refuse an upgrade that h11 accepts and websockets does not: it would wait for ever."""
        if self._transport is not None:
            self._transport.write(_LONG)
            self._transport.close()

    def note_message(self) -> None:
        """Note that the app got a message."""
        self._received = 0
