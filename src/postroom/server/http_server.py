"""The HTTP server: binds an address and runs the app in uvicorn, without its signal handlers, logs and timer."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import uvicorn
from msgspec import Struct

from ..errors import Invalid, NameTaken
from .http import HEAD_BYTES, LOOPBACK, PING, HttpAuth, max_body_bytes
from .http_app import HttpApp
from .http_connection import HttpGuard, WebSocketGuard
from .tls import accept_certificates

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ..map.server import MapServer
    from .broker import Broker
    from .executor import Executor
    from .http_app import MountedApp


GRACE = 1  # seconds for requests under way when the server stops
KEEP_ALIVE = 30  # seconds that a connection may be idle between two requests
_BACKLOG = 512


class HttpAddress(Struct, frozen=True, kw_only=True):
    """Where the server listens, its host names, and its certificate."""

    host: str
    port: int  # 0: any free port
    names: tuple[str, ...] = ()  # further host names
    certificate: str = ""
    key: str = ""

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"


class HttpServer:
    """Serves HTTP, WebSocket and MCP at one address."""

    def __init__(
        self,
        executor: Executor,
        broker: Broker,
        address: HttpAddress,
        mcp: MountedApp | None = None,
        map_server: MapServer | None = None,
    ) -> None:
        self._executor = executor
        self._broker = broker
        self._address = address
        self._mcp = mcp
        self._map_server = map_server
        self._app: HttpApp | None = None
        self._uvicorn: QuietServer | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""
        self.auth: HttpAuth | None = None

    async def start(self) -> None:
        listening = _bind(self._address)
        try:
            port: int = listening.getsockname()[1]
            shown = _shown(self._address.host)
            self.url = f"{self._address.scheme}://{shown}:{port}"
            self.auth = HttpAuth(
                self._executor.core, self._address.scheme, {*LOOPBACK, shown, *self._address.names}, port
            )
            self._app = HttpApp(self._executor, self._broker, self.auth, self._mcp, self._map_server)
            self._uvicorn = QuietServer(self._config(self._app))
        except BaseException:
            listening.close()
            raise
        self._serving = asyncio.ensure_future(self._uvicorn.serve([listening]))
        self._executor.counters.connections["http"] = self._count
        ready = asyncio.ensure_future(self._uvicorn.ready.wait())
        await asyncio.wait([self._serving, ready], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._serving  # raises the reason why it did not start

    async def stop(self) -> None:
        """Accept no more connections, ask those that stay to end, then close all."""
        if self._app is None or self._uvicorn is None or self._serving is None:
            return
        self._uvicorn.end()
        await self._app.close()
        await self._serving
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()

    def admit(self, certificates: Sequence[str]) -> None:
        """Ask TLS clients for a certificate: these (PEM) are accepted, and so are clients without one."""
        context = None if self._uvicorn is None else self._uvicorn.config.ssl
        if context is not None and certificates:
            accept_certificates(context, certificates)

    def _count(self) -> int:
        return len(self._uvicorn.server_state.connections) if self._uvicorn is not None else 0

    def _config(self, app: HttpApp) -> uvicorn.Config:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it logs paths with their queries
        config = uvicorn.Config(
            app,
            http=HttpGuard,  # type: ignore[arg-type] # a BufferedProtocol serves as well
            ws=WebSocketGuard,  # type: ignore[arg-type]
            ws_max_size=max_body_bytes(self._executor.core.limits),
            ws_ping_interval=PING,
            ws_ping_timeout=PING,
            ws_per_message_deflate=False,
            lifespan="off",
            workers=1,  # else it reads an environment variable
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE,
            h11_max_incomplete_event_size=4 * HEAD_BYTES,  # the app says more about one that is too long
            ssl_certfile=self._address.certificate or None,
            ssl_keyfile=self._address.key or None,
        )
        try:
            config.load()
        except OSError as wrong:  # errors of ssl are OSErrors, too
            raise Invalid(f"the certificate or its key cannot be used: {wrong}", field="tls") from None
        return config


class QuietServer(uvicorn.Server):
    """A uvicorn server that sleeps until it is asked to end, in place of waking ten times a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._end_requested = asyncio.Event()

    def end(self) -> None:
        self._end_requested.set()

    async def main_loop(self) -> None:
        self.ready.set()
        await self._end_requested.wait()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override] # signals are the daemon's
        return nullcontext()


def _bind(address: HttpAddress) -> socket.socket:
    host = "127.0.0.1" if address.host == "localhost" else address.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol must be given: else asyncio does not set TCP_NODELAY, and each small answer costs 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, address.port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        with suppress(OSError):
            listening.close()
        if error.errno == errno.EADDRINUSE:
            text = f"port {address.port} of {address.host} is taken"
            other = f"{_shown(address.host)}:{_next(address.port)}"
            hint = f"choose another, such as --http {other} or POSTROOM_HTTP={other}; off is none"
            raise NameTaken(text, field="http", hint=hint) from None
        raise Invalid(f"cannot listen at {address.host}:{address.port}: {error.strerror}", field="http") from None
    return listening


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _next(port: int) -> int:
    """Return another port to try."""
    return port + 1 if port < 65535 else port - 1
