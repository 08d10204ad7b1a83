"""MAP over WebSocket, at `/map`: one message in each text frame.

Behind each message to an agent goes `map/ping`. Its answer is the receipt of the message: the programs of the SDK
answer it, if only to say that they know no such method, once they have handled what came before. Of clients that
leave it unanswered, a message is taken as received after MUTE_AFTER seconds. uvicorn disconnects a client that
does not answer the pings of the WebSocket protocol: one that is connected still has answered one behind the
message.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..federation.connection import is_near
from ..server.http import CONNECTION, PING
from ..server.streams import WebSocketConnection, run_until_closed
from .connection import MapConnection

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..server.callers import RequestCaller
    from ..server.http import Receive, Scope, Send
    from ..server.http_app import HttpApp
    from ..server.protocol import Request
    from .server import MapServer


_BAD_FRAMES = {1002: "frames that are none", 1007: "text that is none", 1009: "a frame that is too large"}
MUTE_AFTER = 2 * PING + 1  # seconds after a message, until which a client has answered a ping or is disconnected


class MapFrames(WebSocketConnection):
    """One MAP connection over WebSocket."""

    def __init__(
        self, app: HttpApp, map_server: MapServer, principal: Principal | None, scope: Scope, send: Send
    ) -> None:
        self._map_server = map_server
        self._certificate: str = scope["state"][CONNECTION].certificate
        host = (scope.get("client") or ("",))[0]
        self._is_near = is_near(f"ws://[{host}]" if ":" in host else f"ws://{host}")
        self._written = 0  # the last message that was written
        super().__init__(app, principal, scope, send)

    def _open_caller(self, principal: Principal | None) -> RequestCaller:
        self._conn = MapConnection(
            self._map_server, self.push, self._end, principal, self._certificate, is_near=self._is_near
        )
        return self._conn

    def _parse(self, message: str) -> Request | None:
        return self._conn.read(message.encode())  # bytes are read several times as fast

    def _on_disconnect(self, code: int) -> None:
        if code in _BAD_FRAMES:
            self._map_server.misuse.bad_frames(_BAD_FRAMES[code])

    def _end(self, code: int, reason: str, *, at_once: bool) -> None:
        self.code, self.reason = code, reason
        if at_once:
            self._outbox.drop()
        else:
            self._outbox.close()

    # -- receipts

    def _sent_mark(self) -> int:
        return self._conn.sent_count

    def _on_written(self, number: int) -> None:
        conn = self._conn
        if number > self._written and not (conn.answers_pings or conn.acknowledges):
            self._written = number
            asyncio.get_running_loop().call_later(MUTE_AFTER, self._believe, number)

    def _believe(self, number: int) -> None:
        """Take messages as received by a client that answers no `map/ping`: it is connected still, so it has sent
        the pong to a ping that was written behind them.
        """
        if not (self._outbox.is_closed or self._conn.answers_pings):
            self._conn.received_up_to(number)


async def serve_map(
    app: HttpApp, map_server: MapServer, principal: Principal | None, scope: Scope, receive: Receive, send: Send
) -> None:
    """Serve one WebSocket until either side ends it."""
    await receive()  # "websocket.connect"
    await send({"type": "websocket.accept"})
    await run_until_closed(MapFrames(app, map_server, principal, scope, send), receive)
