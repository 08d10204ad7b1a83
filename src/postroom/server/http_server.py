"""Listens, and ends. uvicorn does the work, without its signal handlers, its logs and its ticking."""

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
from .http import HEAD_BYTES, LOOPBACK, HttpAuth, largest
from .http_app import HttpApp
from .tls import admitting
from .uvicorn_protocol import Frames, Http

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ..map.server import MapServer
    from .broker import Broker
    from .executor import Executor
    from .http_app import Mounted


GRACE = 1  # seconds for what is under way when the daemon stops
KEEP_ALIVE = 30  # seconds that a connection may do nothing between two requests
PING = 20.0  # seconds between two pings, and for a pong
_BACKLOG = 512


class Place(Struct, frozen=True, kw_only=True):
    """Where to listen, and how."""

    host: str
    port: int  # 0: any that is free
    names: tuple[str, ...] = ()  # by which we are called besides
    certificate: str = ""
    key: str = ""

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"


class HttpServer:
    """One address."""

    def __init__(
        self,
        executor: Executor,
        broker: Broker,
        place: Place,
        mcp: Mounted | None = None,
        map_server: MapServer | None = None,
    ) -> None:
        self._executor = executor
        self._broker = broker
        self._place = place
        self._mcp = mcp
        self._map_server = map_server
        self._house: HttpApp | None = None
        self._quiet: Quiet | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""
        self.gate: HttpAuth | None = None

    async def start(self) -> None:
        listening = _bind(self._place)
        try:
            port: int = listening.getsockname()[1]
            shown = _shown(self._place.host)
            self.url = f"{self._place.scheme}://{shown}:{port}"
            self.gate = HttpAuth(
                self._executor.room, self._place.scheme, {*LOOPBACK, shown, *self._place.names}, port
            )
            self._house = HttpApp(self._executor, self._broker, self.gate, self._mcp, self._map_server)
            self._quiet = Quiet(self._config(self._house))
        except BaseException:
            listening.close()
            raise
        self._serving = asyncio.ensure_future(self._quiet.serve([listening]))
        self._executor.counters.connections["http"] = self._count
        ready = asyncio.ensure_future(self._quiet.ready.wait())
        await asyncio.wait([self._serving, ready], return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            ready.cancel()
            await self._serving  # it says why it did not start

    async def stop(self) -> None:
        """Nobody new; who stays is asked to go; then everybody goes."""
        if self._house is None or self._quiet is None or self._serving is None:
            return
        self._quiet.end()
        await self._house.close()
        await self._serving
        for connection in list(self._quiet.server_state.connections):
            connection.transport.abort()  # it has had its time

    def admit(self, certificates: Sequence[str]) -> None:
        """Ask who calls by TLS for a certificate, and let in these (PEM) beside who shows none."""
        context = None if self._quiet is None else self._quiet.config.ssl
        if context is not None and certificates:
            admitting(context, certificates)

    def _count(self) -> int:
        return len(self._quiet.server_state.connections) if self._quiet is not None else 0

    def _config(self, house: HttpApp) -> uvicorn.Config:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # else it tells paths with their queries
        config = uvicorn.Config(
            house,
            http=Http,
            ws=Frames,
            ws_max_size=largest(self._executor.room.settings),
            ws_ping_interval=PING,
            ws_ping_timeout=PING,
            ws_per_message_deflate=False,
            lifespan="off",
            workers=1,  # else it asks the environment
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE,
            h11_max_incomplete_event_size=HEAD_BYTES,
            ssl_certfile=self._place.certificate or None,
            ssl_keyfile=self._place.key or None,
        )
        try:
            config.load()
        except OSError as wrong:  # ssl's own errors are some too
            raise Invalid(f"the certificate or its key cannot be used: {wrong}", field="tls") from None
        return config


class Quiet(uvicorn.Server):
    """uvicorn, which sleeps until there is something to do."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._ended = asyncio.Event()

    def end(self) -> None:
        self._ended.set()

    async def main_loop(self) -> None:
        self.ready.set()
        await self._ended.wait()

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override] # signals are the daemon's
        return nullcontext()


def _bind(place: Place) -> socket.socket:
    host = "127.0.0.1" if place.host == "localhost" else place.host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Said to be TCP: else asyncio does not send small answers at once, and each costs 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, place.port))
        listening.listen(_BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        with suppress(OSError):
            listening.close()
        if error.errno == errno.EADDRINUSE:
            text = f"port {place.port} of {place.host} is taken"
            other = f"{_shown(place.host)}:{_next(place.port)}"
            hint = f"choose another, such as --http {other} or POSTROOM_HTTP={other}; off is none"
            raise NameTaken(text, field="http", hint=hint) from None
        raise Invalid(f"cannot listen at {place.host}:{place.port}: {error.strerror}", field="http") from None
    return listening


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _next(port: int) -> int:
    """Another port to try."""
    return port + 1 if port < 65535 else port - 1
