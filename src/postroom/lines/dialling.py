"""Opens a line over WebSocket, and says how long to wait before the next try: ever longer, never all at once."""

from __future__ import annotations

import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from ..model.codec import encode
from ..tls import dialling, fingerprint, is_pinned
from .line import LineLost
from .near import is_near

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from websockets.asyncio.client import ClientConnection

    from .line import Line

FIRST, MOST = 0.5, 60.0  # seconds before dialling again
PATIENCE = 10.0  # seconds for the handshake, and for a sign of life
CLOSING = 0.3  # seconds for the other side's goodbye
CUT = (OSError, ConnectionClosed, InvalidHandshake, InvalidURI, TimeoutError, LineLost)


class WrongCertificate(LineLost):
    """Somebody else answers, or its certificate was changed."""

    def __init__(self, found: str) -> None:
        super().__init__(f"its certificate is {found}, which is not the one that is pinned")
        self.found = found


def why(cut: BaseException) -> str:
    """Why a connection is gone, for people: what the other side said as it ended it, without its number."""
    if isinstance(cut, ConnectionClosed) and cut.rcvd is not None and cut.rcvd.reason:
        return f"the other side ended it: {cut.rcvd.reason}"
    return str(cut) or type(cut).__name__


def pause(tries: int) -> float:
    """Seconds to wait after this many tries in vain: doubling, and a part of it by chance."""
    longest: float = min(FIRST * 2 ** min(tries - 1, 30), MOST)
    return longest * random.uniform(0.5, 1.0)


@asynccontextmanager
async def dial(
    server: str, largest: int, *, pin: str = "", certificate: str = "", key: str = ""
) -> AsyncIterator[ClientConnection]:
    """An open connection; `largest`: bytes of one frame. With a `pin` its certificate must be that one, whoever
    signed it. `certificate` and `key` are files: what we show of ourselves, to who asks for it.
    """
    secret = dialling(pin, certificate, key) if urlsplit(server).scheme == "wss" else None
    async with connect(
        server, open_timeout=PATIENCE, ping_interval=PATIENCE, ping_timeout=PATIENCE, close_timeout=CLOSING,
        proxy=None if is_near(server) else True, max_size=largest, ssl=secret, compression=None,
    ) as socket:  # fmt: skip
        if pin:
            check_pin(socket, pin)
        yield socket


def check_pin(socket: ClientConnection, pin: str) -> None:
    """Before a word is said, so that no token is shown to somebody else."""
    tunnel = socket.transport.get_extra_info("ssl_object")
    shown = None if tunnel is None else tunnel.getpeercert(binary_form=True)
    if not is_pinned(pin, shown):
        raise WrongCertificate("none" if shown is None else fingerprint(shown))


def sender(socket: ClientConnection) -> Callable[[dict[str, Any]], Awaitable[None]]:
    """What a line sends by."""

    async def send(said: dict[str, Any]) -> None:
        try:
            await socket.send(encode(said).decode())
        except ConnectionClosed as closed:
            raise LineLost(str(closed)) from None

    return send


async def read(line: Line, socket: ClientConnection) -> None:
    """Until it ends; LineLost, always."""
    async for frame in socket:
        await line.came(frame)
    raise LineLost("the other side closed the connection")
