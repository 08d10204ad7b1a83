"""The HTTP server: binds an address and runs the app in uvicorn, without its signal handlers, logs and timer, and
with limits around its connections.

uvicorn has no limit for a client that sends slowly, or sends without end (docs/decisions/server.md). So each of
its connections stands inside a `Guard`, which sees the bytes first, hands them over in small pieces, so that the
event loop serves others in between, and may end the connection. It calls asyncio's own methods alone.

- A client that has not sent a whole request in HEAD_SECONDS is disconnected, however slowly it sends.
- A client that comes when there are MAX_CONNECTIONS is refused at once.
- A WebSocket client that sends more than two of the largest messages without completing one is disconnected.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from websockets.exceptions import InvalidState
from websockets.http11 import MAX_LINE_LENGTH, MAX_NUM_HEADERS

from ..errors import Invalid, NameTaken
from .http import CONNECTION, HEAD_BYTES, HEAD_TOO_LONG, LOOPBACK, PING, HttpAuth
from .http_app import HttpApp
from .protocol import largest_frame
from .tls import accept_certificates, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from uvicorn import Config
    from uvicorn.server import ServerState

    from ..map.server import MapServer
    from .broker import Broker
    from .executor import Executor
    from .http import HttpAddress
    from .http_app import MountedApp


HEAD_SECONDS = 10.0  # to receive the head of a request
MAX_CONNECTIONS = 1000
MAX_UNSERVED = 8 * 1024 * 1024  # bytes of a body that are dropped after an early answer, so that it is read
HTTP_BYTES = 64 * 1024  # handed over in one piece
# Of WebSocket frames: one may be six bytes, and each is work. uvloop reads 32 pieces before it serves others.
FRAME_BYTES = 1024
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
        make: Callable[..., Any],  # a connection of uvicorn
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._config = config
        self._server_state = server_state
        self._inner = make(config=config, server_state=server_state, app_state={**app_state, CONNECTION: self})
        self._buffer = memoryview(bytearray(self.piece))
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_serving = False
        self.certificate = ""  # the fingerprint of the client's certificate

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
    _received = 0  # bytes since the app got a message

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


# -- the server


GRACE = 1  # seconds for requests under way when the server stops
KEEP_ALIVE = 30  # seconds that a connection may be idle between two requests
_BACKLOG = 512


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
                self._executor, self._address.scheme, {*LOOPBACK, shown, *self._address.names}, port
            )
            self._app = HttpApp(self._executor, self._broker, self.auth, self._mcp, self._map_server)
            self._uvicorn = QuietServer(self._config(self._app))
        except BaseException:
            listening.close()
            raise
        self._executor.visits.url = self._url_for_browsers(port)
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
        with suppress(InvalidState):  # uvicorn closes a WebSocket that its client is closing; both end below
            await self._serving
        for connection in list(self._uvicorn.server_state.connections):
            connection.transport.abort()

    def admit(self, certificates: Sequence[str]) -> None:
        """Ask TLS clients for a certificate: these (PEM) are accepted, and so are clients without one."""
        context = None if self._uvicorn is None else self._uvicorn.config.ssl
        if context is not None and certificates:
            accept_certificates(context, certificates)

    def _url_for_browsers(self, port: int) -> str:
        """Return the address at which a browser on this machine reaches us: with a certificate, by its name."""
        address = self._address
        if address.certificate and address.names:
            name = address.names[0]
            return f"https://{name if name.rpartition(':')[2].isdigit() else f'{name}:{port}'}"
        return self.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")

    def _count(self) -> int:
        return len(self._uvicorn.server_state.connections) if self._uvicorn is not None else 0

    def _config(self, app: HttpApp) -> uvicorn.Config:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it logs paths with their queries
        config = uvicorn.Config(
            app,
            http="h11",
            ws="websockets-sansio",
            ws_max_size=largest_frame(self._executor.core.limits),
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
        # The settings name the classes of the connections; each connection stands inside one of ours.
        for name, guard in (("http_protocol_class", HttpGuard), ("ws_protocol_class", WebSocketGuard)):
            setattr(config, name, partial(guard, getattr(config, name)))
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
