"""Connections, as uvicorn makes them, that cannot wear us out: not by being many, nor by being slow.

Whoever has not sent a whole head in time is ended, however it trickles. Whoever comes when the house is full is
told so at once. Whoever sends pings and reads no answers gets no more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    import asyncio
    from asyncio import TimerHandle

HEAD_SECONDS = 10.0  # for the head of a request
MOST_CONNECTIONS = 1000
ABORT = "postroom.abort"  # in the state of a scope: ends this connection, whatever waits to be written
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 24\r\n"
    b"retry-after: 5\r\nconnection: close\r\n\r\ntoo many are here by now"
)


class Http(H11Protocol):
    """One connection."""

    _head: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, ABORT: transport.abort}
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.write(_FULL)
            transport.close()
            return
        self._time_the_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._time_the_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._stop_timing()
        super().handle_websocket_upgrade(event)

    def _time_the_head(self) -> None:
        """The clock runs from the first byte of a head, or from the start, until the head is whole."""
        is_waiting = self.conn.their_state is h11.IDLE and not self.transport.is_closing()
        if not is_waiting or self.timeout_keep_alive_task is not None:
            self._stop_timing()
        elif self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_timing(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None


class Frames(WebSocketsSansIOProtocol):
    """One connection that was upgraded."""

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # a pong to somebody who does not read
