"""The ASGI app: which path is served by what, the health check, and the mounted MCP app.

POST /mcp, GET /mcp, ...  the mounted app
POST /v1/VERB             a verb, with its parameters as a JSON object
POST anything else        JSON-RPC
GET /openapi.json         the verbs and their parameters
GET /subscribe            server-sent events
GET /healthz, /metrics    health and numbers
/dashboard/               the dashboard: its page and files, and the code that opens a visit
/ws                       JSON-RPC in WebSocket frames
/map                      MAP in WebSocket frames
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from .. import __version__
from ..core import core
from ..errors import PostroomError
from .callers import Caller
from .dashboard import is_here, serve_dashboard, serve_front, wants_page
from .describe import openapi
from .http import (
    CLOSING,
    CONNECTION,
    DESCRIPTION,
    PRINCIPAL,
    READ_METHODS,
    RETRY,
    VERBS_AT,
    Disconnected,
    Refusal,
    content_length,
    error_reply,
    header_values,
    json_reply,
    reply_for_error,
    send_reply,
    serve_call,
    serve_verb,
    too_large,
)
from .metrics import metrics
from .protocol import largest_frame
from .streams import serve_frames, serve_stream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, MutableMapping
    from contextlib import AbstractAsyncContextManager

    from ..core.authorize import Principal
    from ..map.server import MapServer
    from ..policy.limits import Limits
    from .broker import Broker
    from .executor import Executor
    from .http import HttpAuth, Receive, Reply, Scope, Send


log = logging.getLogger("postroom")
REUSE_SECONDS = 1.0  # for which a result of the health check is reused
WRITE_SECONDS = 5.0  # after which a write counts as failed


class HealthCheck:
    """`/healthz`: a real write to the room, at most one every REUSE_SECONDS."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._checking: asyncio.Task[dict[str, Any]] | None = None
        self._started = 0.0

    async def check(self, *, is_detailed: bool) -> Reply:
        """Return the reply. A client without a token learns only whether the server is healthy."""
        if self._checking is None or (self._checking.done() and perf_counter() - self._started > REUSE_SECONDS):
            self._started = perf_counter()
            self._checking = asyncio.ensure_future(self._check())
        found = await asyncio.shield(self._checking)
        return json_reply(200 if found["ok"] else 503, found if is_detailed else {"ok": found["ok"]})

    async def _check(self) -> dict[str, Any]:
        began, problem = perf_counter(), None
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._executor.submit(partial(core.probe_store, self._executor.core))
        except PostroomError as failed:
            problem = str(failed)
        except TimeoutError:
            problem = f"no write was done within {WRITE_SECONDS:g} seconds"
        return {
            "ok": problem is None,
            "problem": problem,
            "write_seconds": round(perf_counter() - began, 6),
            "uptime_seconds": round(self._executor.counters.uptime, 3),
            "version": __version__,
        }


class MountableApp(Protocol):
    """An ASGI app that serves while `running()` is entered."""

    def running(self) -> AbstractAsyncContextManager[None]: ...
    async def __call__(self, scope: Any, receive: Any, send: Any, /) -> None: ...


class AppMissing(PostroomError):
    """The package that serves this path is not installed."""

    code = 7001


class MountedApp:
    """An ASGI app below a path, loaded at the first request, because it may be larger than all the rest.

    `load` makes the app, on a thread of its own; it may raise `AppMissing`.
    """

    def __init__(self, load: Callable[[], Awaitable[MountableApp]]) -> None:
        self._load = load
        self._stop = asyncio.Event()
        self._loaded: asyncio.Future[MountableApp] | None = None
        self._task: asyncio.Task[None] | None = None

    async def serve(
        self, principal: Principal, limits: Limits, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            app = await self._get_app()
        except AppMissing as missing:
            raise Refusal(error_reply(503, str(missing))) from None
        if app is None or self._stop.is_set():
            raise Refusal(CLOSING)
        most = largest_frame(limits)
        if content_length(scope["headers"]) > most:
            raise Refusal(too_large(most))
        await app({**scope, PRINCIPAL: principal}, _bounded(receive, most), send)

    async def stop(self) -> None:
        """End the app; one that is still loading is not waited for."""
        self._stop.set()
        if self._task is not None and self._loaded is not None:
            if not self._loaded.done():
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _get_app(self) -> MountableApp | None:
        """Return the app, loaded once for all requests, or None if the server closes. A load that failed is tried
        again: the package may have been installed since.
        """
        if self._task is None or self._loaded is None or self._task.done():
            if self._stop.is_set():
                return None
            self._loaded = asyncio.get_running_loop().create_future()
            self._task = asyncio.ensure_future(self._run_app(self._loaded))
            # Mark its error as retrieved: the requests may be gone by then.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        loaded, task = self._loaded, self._task
        both: list[asyncio.Future[Any]] = [loaded, task]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not loaded.done() and not task.cancelled():
            task.result()  # raises why it was not loaded
        return loaded.result() if loaded.done() else None

    async def _run_app(self, loaded: asyncio.Future[MountableApp]) -> None:
        """Load, run and end the app in one task: anyio demands that a context is left in the task
        that entered it.
        """
        app = await self._load()
        async with app.running():
            loaded.set_result(app)
            await self._stop.wait()


def _bounded(receive: Receive, most: int) -> Receive:
    """Return a `receive` that reports a disconnect to the app when a body is too large."""
    left = most

    async def receive_bounded() -> MutableMapping[str, Any]:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return receive_bounded


HEALTH, METRICS, SUBSCRIBE, FRAMES, MCP = "/healthz", "/metrics", "/subscribe", "/ws", "/mcp"
MAP = "/map"
MAX_UNKNOWN = 20  # WebSockets of pages that have not said who they are, at once
_READ_AT = {METRICS, SUBSCRIBE, DESCRIPTION, MCP}
MCP_LISTEN = "subscriptions/listen"  # a stream by POST, of MCP's revision of 2026


class HttpApp:
    """The ASGI app of a post room."""

    def __init__(
        self,
        executor: Executor,
        broker: Broker,
        auth: HttpAuth,
        mcp: MountedApp | None,
        map_server: MapServer | None = None,
    ) -> None:
        self.executor = executor
        self.broker = broker
        self.limits: Limits = executor.core.limits
        self._auth = auth
        self._mcp = mcp
        self._map = map_server
        self._health = HealthCheck(executor)
        self._closers: dict[object, Callable[[], object]] = {}
        self._is_closed = False
        self.unknown = 0  # WebSockets of pages that have not said who they are

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with scope["state"][CONNECTION].serving():
            try:
                reply = await self._serve(scope, receive, send)
            except Disconnected:
                return
            except Refusal as refused:
                reply = refused.reply
            except PostroomError as wrong:  # raised before anything was sent
                reply = reply_for_error(wrong)
            except Exception:  # boundary: a bug met by one request; uvicorn answers it
                log.exception("a request failed because of a bug")
                raise
            if reply is not None:
                await send_reply(scope, send, reply)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        """Return the reply, or None if it was sent already."""
        headers, path = scope["headers"], scope["path"]
        wrong = self._auth.check_request(scope)
        if wrong is not None:
            if path == MAP and self._map is not None and wrong.status == 403:
                self._map.misuse.bad_frames(
                    "it names another machine, or is a page of another site (serve --http-name)"
                )
            return wrong
        if scope["type"] == "websocket":
            return await self._serve_websocket(scope, receive, send)
        reply = await self._serve_anybody(scope, receive)
        if reply is not None:
            return reply
        caller = await self._auth.authenticate(headers)
        if path.rstrip("/") == MCP and self._mcp is not None and not caller.visit:
            return await self._serve_mcp(self._mcp, caller, scope, receive, send)
        return await self._answer(caller, scope, receive, send)

    async def _serve_anybody(self, scope: Scope, receive: Receive) -> Reply | None:
        """Return the reply to a request that needs no token; None if it needs one."""
        headers, path = scope["headers"], scope["path"]
        if is_here(path):
            return await serve_dashboard(self, scope, receive)
        if scope["method"] not in READ_METHODS or self._auth.has_credentials(headers):
            return None
        if path == HEALTH:
            return await self._health.check(is_detailed=False)
        return serve_front(scope) if path not in _READ_AT and wants_page(headers) else None

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        if scope["path"] == MAP and self._map is not None:
            return await self._serve_map(self._map, scope, receive, send)
        headers = scope["headers"]
        is_page = not self._auth.has_credentials(headers) and bool(header_values(headers, b"origin"))
        caller = None if is_page else await self._auth.authenticate(headers)
        if scope["path"] != FRAMES:
            return error_reply(404, f"the WebSockets are at {FRAMES} and {MAP}")
        if caller is None and self.unknown >= MAX_UNKNOWN:
            return error_reply(503, "too many connections that have not said who they are", RETRY)
        await serve_frames(self, caller, scope, receive, send)
        return None

    async def _serve_map(self, map_server: MapServer, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        """Serve MAP. Its clients send their token in their first message; a token in the header is
        accepted, too.
        """
        headers = scope["headers"]
        try:
            caller = await self._auth.authenticate(headers) if self._auth.has_credentials(headers) else None
        except Refusal:
            map_server.misuse.bad_frames("the token in its header is none")
            raise
        if caller is not None and caller.visit:
            map_server.misuse.bad_frames("a visit of the dashboard speaks no MAP")
            return _NO_METHOD
        if caller is None and map_server.is_full:
            return error_reply(503, "too many connections that have not said who they are", RETRY)
        await map_server.serve_frames(self, caller, scope, receive, send)
        return None

    async def _serve_mcp(
        self, mcp: MountedApp, caller: Principal, scope: Scope, receive: Receive, send: Send
    ) -> Reply | None:
        """Serve MCP. A stream ends when its token is revoked. The SDK refuses a request whose method in the header
        is not that in the body, so the header can be trusted here.
        """
        is_stream = scope["method"] == "GET" or MCP_LISTEN in header_values(scope["headers"], b"mcp-method")
        expel = scope["state"][CONNECTION].abort if is_stream else None
        user = Caller(self.executor, self.broker, expel=expel, principal=caller)
        try:
            await mcp.serve(caller, self.limits, scope, receive, send)
        finally:
            user.close()
        return None

    async def _answer(self, caller: Principal, scope: Scope, receive: Receive, send: Send) -> Reply | None:
        path, method = scope["path"], scope["method"]
        if method == "POST":
            serve = serve_verb if path.startswith(VERBS_AT) else serve_call
            return await serve(self, caller, scope, receive)
        if method not in READ_METHODS or caller.visit:
            return _NO_METHOD
        if path == SUBSCRIBE and method == "GET":
            await serve_stream(self, caller, scope, receive, send)
            return None
        replies: dict[str, Callable[[], Awaitable[Reply]]] = {
            HEALTH: partial(self._health.check, is_detailed=True),
            METRICS: partial(metrics, self.executor, caller),
            DESCRIPTION: self._describe,
        }
        return await replies[path]() if path in replies else _NO_METHOD

    async def _describe(self) -> Reply:
        return json_reply(200, await self.executor.run_slow(openapi))

    # -- requests that stay

    @contextmanager
    def closing_with(self, close_it: Callable[[], object]) -> Iterator[None]:
        """Call `close_it` if the server closes while the block runs, or has closed already."""
        key = object()
        self._closers[key] = close_it
        if self._is_closed:  # while the caller was found out
            close_it()
        try:
            yield
        finally:
            del self._closers[key]

    async def close(self) -> None:
        """Ask all requests that stay to end."""
        if self._map is not None:
            self._map.close()
        self._is_closed = True
        for close_it in list(self._closers.values()):
            close_it()
        if self._mcp is not None:
            await self._mcp.stop()


_NO_METHOD = error_reply(
    405,
    "calls are sent by POST; GET serves /openapi.json, /subscribe, /healthz and /metrics; /ws and /map are"
    " WebSockets",
    (b"allow", b"POST"),
)
