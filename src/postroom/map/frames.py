"""`/map`: MAP in text frames.

Behind each message that is handed over goes a question, `map/ping`. Its answer is their receipt: the SDK's
programs give it, if only to say that they know no such method, once they have handled what came before. With it
goes a ping of the WebSocket. Its pong comes from the library that reads frames, maybe before the program has them,
so it is believed only of those who leave our questions unanswered: after a while at first, then at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..federation.connection import is_near
from ..model.codec import encode
from ..server.uvicorn_protocol import CERTIFICATE, SIGNS
from ..server.websocket import Talk, until_end
from .connection import Talk as MapTalk

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..server.http import Receive, Scope, Send
    from ..server.http_app import HttpApp
    from ..server.protocol import Request
    from ..server.uvicorn_protocol import Signs
    from ..server.websocket import Speaker
    from .server import MapServer


_BAD_FRAMES = {1002: "frames that are none", 1007: "text that is none", 1009: "a frame that is too large"}
MUTE_AFTER = 10.0  # seconds from a pong, in which no question was answered


class MapFrames(Talk):
    """One connection."""

    def __init__(
        self, house: HttpApp, map_server: MapServer, principal: Principal | None, scope: Scope, send: Send
    ) -> None:
        self._map_server = map_server
        self._signs: Signs = scope["state"][SIGNS]
        self._certificate: str = scope["state"][CERTIFICATE]
        self._is_near = is_near(f"ws://{_host(scope)}")
        self._signed = 0  # up to here a sign was sent
        self._is_mute = False  # does it leave our questions unanswered?
        self._doubts: asyncio.TimerHandle | None = None
        self._ponged = 0
        super().__init__(house, principal, scope, send)
        self._signs.answered = self._hear_pong

    def _open_caller(self, principal: Principal | None) -> Speaker:
        self._talk = MapTalk(self._map_server, self, principal, self._certificate, is_near=self._is_near)
        return self._talk

    def _understood(self, text: str) -> Request | dict[str, Any] | None:
        return self._talk.read(text.encode())  # bytes are read several times as fast

    def _ended(self, code: int) -> None:
        if code in _BAD_FRAMES:
            self._map_server.complaints.of_frames(_BAD_FRAMES[code])

    async def run(self, receive: Receive) -> None:
        try:
            await super().run(receive)
        finally:
            if self._doubts is not None:
                self._doubts.cancel()

    def end(self, code: int, reason: str = "", *, at_once: bool) -> None:
        self.code, self.reason = code, reason
        if at_once:
            self._outbox.drop()
        else:
            self._outbox.close()

    # -- receipts

    def _said_so_far(self) -> int:
        return self._talk.sent_count

    def _wrote(self, params: int) -> None:
        if params <= self._signed:
            return
        self._signed = params
        question = self._talk.sign(params)
        if question is None or self._outbox.is_closed:
            return
        if self._talk.signed < params:  # there was no room for it
            self._outbox.add(encode(question))
        if not self._talk.answers:
            self._signs.send(params)

    def _hear_pong(self, number: int) -> None:
        self._ponged = max(self._ponged, number)
        if self._talk.answers:
            return
        if self._is_mute:
            self._talk.received_up_to(self._ponged)
        elif self._doubts is None:
            self._doubts = asyncio.get_running_loop().call_later(MUTE_AFTER, self._believe)

    def _believe(self) -> None:
        if not self._talk.answers:
            self._is_mute = True
            self._talk.received_up_to(self._ponged)


def _host(scope: Scope) -> str:
    """From where it comes."""
    host = (scope.get("client") or ("",))[0]
    return f"[{host}]" if ":" in host else host


async def serve_map(
    house: HttpApp, map_server: MapServer, principal: Principal | None, scope: Scope, receive: Receive, send: Send
) -> None:
    """Until either side ends it."""
    await receive()  # that it wants to connect
    await send({"type": "websocket.accept"})
    await until_end(MapFrames(house, map_server, principal, scope, send), receive)
