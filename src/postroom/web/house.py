"""Which path is answered by whom, and who stays for longer than one answer.

POST /mcp, GET /mcp, ...  the mounted app
POST anything else        JSON-RPC
GET /subscribe            events
GET /healthz, /metrics    how we are
/ws                       JSON-RPC in frames
/map                      MAP in frames
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..callers import Caller
from ..errors import PostroomError
from .calls import RETRY, Gone, serve_call
from .frames import serve_frames
from .gate import every
from .health import Pulse
from .metrics import metrics
from .protocol import ABORT
from .replies import Reply, answer, refused, sorry
from .stream import serve_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..desk import Desk
    from ..hub import Hub
    from ..map_server.reception import Reception
    from ..policy.limits import Limits
    from ..service.authorize import Principal
    from .gate import Gate
    from .mounted import Mounted
    from .outbox import Outbox
    from .replies import Receive, Scope, Send

HEALTH, METRICS, SUBSCRIBE, FRAMES, MCP = "/healthz", "/metrics", "/subscribe", "/ws", "/mcp"
MAP = "/map"
LISTEN = "subscriptions/listen"  # the stream of MCP's revision of 2026, by POST
KEEP_ALIVE = 20.0  # seconds between two signs of life on a stream
_LOOKS = ("GET", "HEAD")


class House:
    """The ASGI app."""

    def __init__(
        self, desk: Desk, hub: Hub, gate: Gate, mcp: Mounted | None, reception: Reception | None = None
    ) -> None:
        self.desk = desk
        self.hub = hub
        self.limits: Limits = desk.room.settings
        self._gate = gate
        self._mcp = mcp
        self._map = reception
        self._pulse = Pulse(desk)
        self._ends: dict[object, Callable[[], object]] = {}
        self._streams: dict[Outbox, bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._serve(scope, receive, send)
        except Gone:
            return
        except PostroomError as wrong:  # raised before anything was sent
            reply = sorry(wrong)
        if reply is not None:
            await answer(scope, send, reply)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        """The reply; None when whoever serves it has answered already."""
        headers, path = scope["headers"], scope["path"]
        wrong = self._gate.wrong(scope)
        if wrong is not None:
            if path == MAP and self._map is not None and wrong.status == 403:
                self._map.complaints.of_frames(
                    "it names another machine, or is a page of another site (serve --http-name)"
                )
            return wrong
        looks = scope["type"] == "http" and scope["method"] in _LOOKS
        if path == HEALTH and looks and not self._gate.shows_something(headers):
            return await self._pulse.ask(knows_us=False)
        if scope["type"] == "websocket":
            return await self._upgrade(scope, receive, send)
        caller = self._gate.caller(headers)
        if isinstance(caller, Reply):
            return caller
        if path.rstrip("/") == MCP and self._mcp is not None:
            return await self._visit(self._mcp, caller, scope, receive, send)
        return await self._answer(caller, scope, receive, send)

    async def _upgrade(self, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        if scope["path"] == MAP and self._map is not None:
            return await self._meet(self._map, scope, receive, send)
        caller = self._gate.caller(scope["headers"])
        if isinstance(caller, Reply):
            return caller
        if scope["path"] != FRAMES:
            return refused(404, f"the WebSockets are at {FRAMES} and {MAP}")
        await serve_frames(self, caller, scope, receive, send)
        return None

    async def _meet(self, reception: Reception, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        """MAP's clients show their token in their first word; who shows it in the header may."""
        caller = self._gate.caller(scope["headers"]) if self._gate.shows_something(scope["headers"]) else None
        if isinstance(caller, Reply):
            reception.complaints.of_frames("the token in its header is none")
            return caller
        if caller is None and reception.is_full:
            return refused(503, "too many connections that have not said who they are", RETRY)
        await reception.serve_frames(self, caller, scope, receive, send)
        return None

    async def _visit(
        self, mcp: Mounted, caller: Principal, scope: Scope, receive: Receive, send: Send
    ) -> Reply | None:
        """A stream there ends with its token. The method in the header is that in the body, or it is refused."""
        is_stream = scope["method"] == "GET" or LISTEN in every(scope["headers"], b"mcp-method")
        expel = scope["state"][ABORT] if is_stream else None
        guest = Caller(self.desk, self.hub, expel=expel, principal=caller)
        try:
            await mcp.serve(guest.room, scope, receive, send)
        finally:
            guest.close()
        return None

    async def _answer(self, caller: Principal, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        path, method = scope["path"], scope["method"]
        if method == "POST":
            return await serve_call(self, caller, scope, receive)
        if method not in _LOOKS:
            return _NO_METHOD
        if path == HEALTH:
            return await self._pulse.ask(knows_us=True)
        if path == METRICS:
            return await metrics(self.desk, caller)
        if path == SUBSCRIBE and method == "GET":
            await serve_stream(self, caller, scope, receive, send)
            return None
        return _NO_METHOD

    # -- who stays

    @contextmanager
    def ended_by(self, end: Callable[[], object]) -> Iterator[None]:
        """Somebody stays; `end` is called when the house closes."""
        key = object()
        self._ends[key] = end
        try:
            yield
        finally:
            del self._ends[key]

    @contextmanager
    def kept_alive(self, outbox: Outbox, sign: bytes) -> Iterator[None]:
        """One timer for all streams."""
        self._streams[outbox] = sign
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE, self._show_life)
        try:
            yield
        finally:
            del self._streams[outbox]

    def _show_life(self) -> None:
        self.hub.look()  # a bell may have been missed
        for outbox, sign in self._streams.items():
            if not outbox.is_full:  # whoever does not read needs no sign of life
                outbox.offer(sign)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(KEEP_ALIVE, self._show_life) if self._streams else None

    async def close(self) -> None:
        """Everybody who stays is asked to go."""
        if self._timer is not None:
            self._timer.cancel()
        if self._map is not None:
            self._map.close()
        for end in list(self._ends.values()):
            end()
        if self._mcp is not None:
            await self._mcp.stop()


_NO_METHOD = refused(
    405,
    "calls are sent by POST; GET serves /subscribe, /healthz and /metrics; /ws and /map are WebSockets",
    (b"allow", b"POST"),
)
