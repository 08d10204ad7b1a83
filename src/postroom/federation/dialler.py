"""Connections that we open: over WebSocket, to peers and MAP servers, and again whenever they are cut.

`connected` opens one, `keep_connected` opens it for ever, with growing pauses. `Dialler` does so for a peer.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..core import peers
from ..errors import PostroomError
from ..model.codec import encode
from ..server.protocol import largest_frame
from ..server.tls import client_context, fingerprint, is_pinned
from . import exposure
from .connection import ConnectionLost, MapRefusal, RpcConnection, is_near, refuse
from .link import PeerConnection
from .peer_calls import PeerHandler, abilities, handshake

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from websockets.asyncio.client import ClientConnection

    from .connection import Serve
    from .link import Link


log = logging.getLogger("postroom")
# -- over WebSocket

FIRST, MOST = 0.5, 60.0  # seconds before dialling again: the first time, at most
PATIENCE = 10.0  # seconds for the handshake, and for a pong
CLOSING = 0.3  # seconds for the other side's goodbye
STEADY = 10.0  # seconds of a connection after which the next pause is a short one again


class WrongCertificate(ConnectionLost):
    """Another server answers, or its certificate was changed."""

    def __init__(self, found: str) -> None:
        super().__init__(f"its certificate is {found}, which is not the one that is pinned")
        self.found = found


@asynccontextmanager
async def connected(
    server: str,
    largest: int,
    on_notification: Callable[[str, Mapping[str, Any]], None],
    patience: float,
    serve: Serve = refuse,
    *,
    pin: str = "",
    certificate: str = "",
    key: str = "",
) -> AsyncIterator[tuple[RpcConnection, asyncio.Future[None]]]:
    """Open a WebSocket; yield the calls over it, and the task that reads it, which ends as ConnectionLost.

    `largest`: bytes of one frame. With a `pin` the server's certificate must be that one; its signer is ignored.
    `certificate` and `key` are the files of our own certificate, for a server that asks for it.
    """
    from websockets.asyncio.client import connect  # noqa: PLC0415 - of the extra `serve`; the socket works without
    from websockets.exceptions import ConnectionClosed, WebSocketException  # noqa: PLC0415 - likewise

    async def send(params: dict[str, Any]) -> None:
        try:
            await socket.send(encode(params).decode())
        except ConnectionClosed as closed:
            raise ConnectionLost(str(closed)) from None

    async def read() -> None:
        try:
            async for frame in socket:
                await rpc.receive(frame)
        except ConnectionClosed as closed:
            # Its reason is for people, without its number.
            said = closed.rcvd.reason if closed.rcvd is not None else ""
            raise ConnectionLost(f"the other side ended it: {said}" if said else str(closed)) from None
        raise ConnectionLost("the other side closed the connection")

    secret = client_context(pin, certificate, key) if urlsplit(server).scheme == "wss" else None
    try:
        async with connect(
            server, open_timeout=PATIENCE, ping_interval=PATIENCE, ping_timeout=PATIENCE, close_timeout=CLOSING,
            # A proxy of the environment is no way to this machine itself.
            proxy=None if is_near(server) else True, max_size=largest, ssl=secret, compression=None,
        ) as socket:  # fmt: skip
            if pin:
                check_pin(socket, pin)
            rpc = RpcConnection(send, on_notification, patience, serve)
            reading = asyncio.ensure_future(read())
            reading.add_done_callback(lambda _: rpc.abort())
            try:
                yield rpc, reading
            except ConnectionLost:
                if reading.done() and not reading.cancelled():
                    reading.result()  # raises the reason
                raise
            finally:
                rpc.abort()
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
    except (OSError, TimeoutError, WebSocketException) as cut:
        raise ConnectionLost(str(cut) or type(cut).__name__) from cut


def check_pin(socket: ClientConnection, pin: str) -> None:
    """Compare the certificate before anything is sent, so that no token goes to another server."""
    tunnel = socket.transport.get_extra_info("ssl_object")
    shown = None if tunnel is None else tunnel.getpeercert(binary_form=True)
    if not is_pinned(pin, shown):
        raise WrongCertificate("none" if shown is None else fingerprint(shown))


# -- again after each cut


def pause(tries: int) -> float:
    """Return the seconds to wait after this many failed tries: doubling, and a random part of that."""
    # At most 2**30: the exponent must not overflow after days of failed tries.
    longest: float = min(FIRST * 2 ** min(tries - 1, 30), MOST)
    return longest * random.uniform(0.5, 1.0)


async def keep_connected(
    what: str,
    connect: Callable[[], Awaitable[None]],
    report: Callable[[str, float], object],
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    *,
    progress: Callable[[], int] = int,
    pauses: Callable[[int], float] = pause,
) -> None:
    """Connect for ever: `connect` ends when the connection does, and `report` gets why, and the next pause.

    `progress`: a number that grows while the connection is of use.
    """
    tries = 0
    while True:
        began, before, problem = monotonic(), progress(), ""
        try:
            await connect()
        except (ConnectionLost, MapRefusal, PostroomError, OSError) as cut:
            problem = str(cut) or type(cut).__name__
        except Exception:  # the link must be opened again, whatever went wrong
            log.exception("the link to %s broke because of an internal error", what)
        # One that takes the connection and drops it at once must not be dialled without pause.
        is_new = monotonic() - began >= STEADY or progress() > before
        tries = 1 if is_new else tries + 1
        wait = pauses(tries)
        if problem:
            report(problem, wait)
        await sleep(wait)


# -- to a peer

ANSWER = 30.0  # seconds for one answer


def map_url(url: str) -> str:
    """Return the URL at which a server speaks MAP: `/map`, unless the URL has a path."""
    return f"{url.rstrip('/')}/map" if not urlsplit(url).path.strip("/") else url


class Dialler:
    """The task of one link that dials its peer. `certificate`: our own, in files, for peers that want it."""

    def __init__(self, link: Link, certificate: tuple[str, str]) -> None:
        self._link = link
        self._certificate = certificate

    async def run(self) -> None:
        """Dial for ever; not while the peer has a connection to us."""
        link = self._link
        await keep_connected(
            f"the system {link.system}",
            self._connect_once,
            lambda problem, _: link.report_problem(problem),
            link.sleep,
            progress=lambda: link.sent + link.taken,
        )

    async def _connect_once(self) -> None:
        link, peer = self._link, self._link.peer
        await link.is_down.wait()
        certificate, key = self._certificate if peer.auth == "mtls" else ("", "")
        largest = largest_frame(link.core.limits)
        handler = PeerHandler(link)
        try:
            async with connected(
                map_url(peer.url), largest, handler.notified, ANSWER, handler.answer,
                pin=peer.pin, certificate=certificate, key=key,
            ) as (rpc, reading):  # fmt: skip
                result = await self._handshake(rpc)
                handler.leave = reading.cancel
                connection = PeerConnection(rpc, reading.cancel, is_dialled=True, **abilities(result))
                link.join(connection)
                try:
                    # `wait` does not raise; `result` does, with the reason why the connection ended.
                    await asyncio.wait((reading,))
                    if not reading.cancelled():
                        reading.result()
                finally:
                    link.leave(connection)
        except WrongCertificate as wrong:  # people are alerted of it
            await link.executor.run_slow(partial(peers.check_certificate, link.core, peer, wrong.found))

    async def _handshake(self, rpc: RpcConnection) -> dict[str, Any]:
        """Return what the peer reports of itself in the handshake."""
        link, peer, core = self._link, self._link.peer, self._link.core
        link.is_in_handshake = True
        try:
            shown = await link.executor.run_slow(partial(exposure.exposure, core, peer))
            result = await handshake(rpc, peer, link.here, shown, core.limits)
            await link.executor.submit(partial(exposure.note, core, peer.system, result.get("exposure")))
        finally:
            link.is_in_handshake = False
        return result
