"""`/healthz`: a real write and a real read, at most once a second whoever asks how often."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from .. import __version__
from ..core import core
from ..errors import PostroomError
from .callers import Caller
from .http import (
    CLOSING,
    RETRY,
    Gone,
    Reply,
    answer,
    declared,
    every,
    json_reply,
    largest,
    refused,
    serve_call,
    sorry,
    too_large,
)
from .metrics import metrics
from .sse import serve_stream
from .uvicorn_protocol import ABORT
from .websocket import serve_frames

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping
    from contextlib import AbstractAsyncContextManager

    from ..core.authorize import Principal
    from ..map.server import MapServer
    from ..policy.limits import Limits
    from ..room import Room
    from .broker import Broker
    from .executor import Executor
    from .http import HttpAuth, Receive, Scope, Send
    from .websocket import Outbox


EVERY = 1.0  # seconds that an answer is good for
PATIENCE = 5.0  # seconds after which a write counts as failed


class Pulse:
    """The last answer, and the one that is being found out."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._looking: asyncio.Task[dict[str, Any]] | None = None
        self._at = 0.0

    async def ask(self, *, knows_us: bool) -> Reply:
        """Whoever shows no token learns whether we are well, and nothing else."""
        if self._looking is None or (self._looking.done() and perf_counter() - self._at > EVERY):
            self._at = perf_counter()
            self._looking = asyncio.ensure_future(self._look())
        found = await asyncio.shield(self._looking)
        return json_reply(200 if found["ok"] else 503, found if knows_us else {"ok": found["ok"]})

    async def _look(self) -> dict[str, Any]:
        began, problem = perf_counter(), None
        try:
            async with asyncio.timeout(PATIENCE):
                await self._executor.submit(partial(core.beat, self._executor.room._core))
        except PostroomError as failed:
            problem = str(failed)
        except TimeoutError:
            problem = f"no write was done within {PATIENCE:g} seconds"
        return {
            "ok": problem is None,
            "problem": problem,
            "write_seconds": round(perf_counter() - began, 6),
            "uptime_seconds": round(self._executor.counters.uptime, 3),
            "version": __version__,
        }


# An app of another house below a path, loaded when it is first asked for: it may weigh more than all of ours.
#
# Who calls is known by then. The app finds a room that is bound to the caller in the scope, under
# `postroom.room`.

ROOM = "postroom.room"


class App(Protocol):
    """An ASGI app that serves while `running()` is entered."""

    def running(self) -> AbstractAsyncContextManager[None]: ...
    async def __call__(self, scope: Any, receive: Any, send: Any, /) -> None: ...


class NotHere(PostroomError):
    """What serves this path is not installed."""

    code = 7001


class Mounted:
    """`load` makes the app, on a thread of its own; it may raise `NotHere`."""

    def __init__(self, load: Callable[[], Awaitable[App]]) -> None:
        self._load = load
        self._stop = asyncio.Event()
        self._app: asyncio.Future[App | None] | None = None  # None in it: we close
        self._life: asyncio.Task[None] | None = None

    async def serve(self, room: Room, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            app = await self._loaded()
        except NotHere as missing:
            await answer(scope, send, refused(503, str(missing)))
            return
        if app is None or self._stop.is_set():
            await answer(scope, send, CLOSING)
            return
        most = largest(room.settings)
        if declared(scope["headers"]) > most:
            await answer(scope, send, too_large(most))
            return
        await app({**scope, ROOM: room}, _bounded(receive, most), send)

    async def stop(self) -> None:
        """Nobody waits for what is not loaded yet."""
        self._stop.set()
        if self._life is not None:
            if self._app is not None and not self._app.done():
                self._app.set_result(None)
                self._life.cancel()
            await asyncio.wait([self._life])

    async def _loaded(self) -> App | None:
        """Once for all who ask. What failed is tried again: somebody may have installed it. None: we close."""
        if self._stop.is_set():
            return None
        if self._app is None or (self._app.done() and self._app.exception() is not None):
            self._app = asyncio.get_running_loop().create_future()
            self._life = asyncio.ensure_future(self._live(self._app))
        return await asyncio.shield(self._app)

    async def _live(self, result: asyncio.Future[App | None]) -> None:
        """Its whole life in one task: what it enters there it must leave there."""
        try:
            app = await self._load()
            async with app.running():
                result.set_result(app)
                await self._stop.wait()
        except BaseException as failed:
            if result.done() or not isinstance(failed, Exception):
                raise
            result.set_exception(failed)
            result.exception()  # whoever asked hears it; by now nobody may wait


def _bounded(receive: Receive, most: int) -> Receive:
    """Whoever sends more than was declared has hung up, as far as the app can see."""
    left = most

    async def some() -> MutableMapping[str, Any]:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return some


# Which path is answered by whom, and who stays for longer than one answer.
#
# POST /mcp, GET /mcp, ...  the mounted app
# POST anything else        JSON-RPC
# GET /subscribe            events
# GET /healthz, /metrics    how we are
# /ws                       JSON-RPC in frames
# /map                      MAP in frames

HEALTH, METRICS, SUBSCRIBE, FRAMES, MCP = "/healthz", "/metrics", "/subscribe", "/ws", "/mcp"
MAP = "/map"
LISTEN = "subscriptions/listen"  # the stream of MCP's revision of 2026, by POST
KEEP_ALIVE = 20.0  # seconds between two signs of life on a stream
_LOOKS = ("GET", "HEAD")


class HttpApp:
    """The ASGI app."""

    def __init__(
        self,
        executor: Executor,
        broker: Broker,
        gate: HttpAuth,
        mcp: Mounted | None,
        map_server: MapServer | None = None,
    ) -> None:
        self.executor = executor
        self.broker = broker
        self.limits: Limits = executor.room.settings
        self._gate = gate
        self._mcp = mcp
        self._map = map_server
        self._pulse = Pulse(executor)
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

    async def _meet(self, map_server: MapServer, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        """MAP's clients show their token in their first word; who shows it in the header may."""
        caller = self._gate.caller(scope["headers"]) if self._gate.shows_something(scope["headers"]) else None
        if isinstance(caller, Reply):
            map_server.complaints.of_frames("the token in its header is none")
            return caller
        if caller is None and map_server.is_full:
            return refused(503, "too many connections that have not said who they are", RETRY)
        await map_server.serve_frames(self, caller, scope, receive, send)
        return None

    async def _visit(
        self, mcp: Mounted, caller: Principal, scope: Scope, receive: Receive, send: Send
    ) -> Reply | None:
        """A stream there ends with its token. The method in the header is that in the body, or it is refused."""
        is_stream = scope["method"] == "GET" or LISTEN in every(scope["headers"], b"mcp-method")
        expel = scope["state"][ABORT] if is_stream else None
        guest = Caller(self.executor, self.broker, expel=expel, principal=caller)
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
            return await metrics(self.executor, caller)
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
        self.broker.look()  # a bell may have been missed
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
