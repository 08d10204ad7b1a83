"""The connection that we open to a peer, and how agent-inbox is spoken to.

`Dialler` dials, shakes hands and serves the connection; after a cut it dials again, with growing pauses.
`AgentInboxConnection` is the RPC connection of agent-inbox, which connects to us: letters go to it as messages to
an agent. It has no receipts, so behind each letter goes a ping, whose answer, also that there is no such method,
comes after the letter was handled. A ping goes before the first letter, too: agent-inbox sets its message handler
only after the answer to its registration, and would lose what it reads before that.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..core import peers
from ..errors import Invalid, NotAllowed, PostroomError
from ..formats.federation import encode_messages, federation_error
from ..formats.map import FIND, MESSAGE, PING
from ..server.protocol import largest_frame
from . import exposure
from .connection import (
    CUT,
    ConnectionLost,
    MapRefusal,
    RpcConnection,
    WrongCertificate,
    dial,
    pause,
    read,
    sender,
    why,
)
from .link import PeerConnection
from .peer_calls import PeerHandler, abilities, handshake

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from msgspec import Raw
    from websockets.asyncio.client import ClientConnection

    from ..model.peer import Envelope
    from ..server.executor import Executor
    from .link import Link


log = logging.getLogger("postroom")
READY = 0.25  # seconds after which the answer to its registration was sent


class AgentInboxConnection(RpcConnection):
    """The RPC connection of agent-inbox."""

    def __init__(
        self,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        on_notification: Callable[[str, Mapping[str, Any]], None],
        patience: float,
    ) -> None:
        super().__init__(send, on_notification, patience)
        self._ready_at = asyncio.get_running_loop().time() + READY
        self._is_ready = False
        self._beginning = asyncio.Lock()

    async def call(self, method: str, /, **params: Any) -> dict[str, Any]:
        await self._begin()
        if method == FIND:  # it knows no such method
            return {"has": False}
        return await super().call(method, **params)

    async def route(self, envelope: Envelope, _encoded: Raw, _after: Mapping[str, str]) -> dict[str, Any]:
        await self._begin()
        try:
            messages = encode_messages(envelope)
        except Invalid as wrong:
            raise MapRefusal(federation_error(wrong)) from None
        for message in messages:
            await self.notify(MESSAGE, message=message)
        # agent-inbox confirms no letter. It handles frames in order, so its answer to a ping says that it has
        # read them.
        await self._wait_until_read()
        return {"routed": True}

    async def _begin(self) -> None:
        async with self._beginning:
            if not self._is_ready:
                await asyncio.sleep(self._ready_at - asyncio.get_running_loop().time())
                await self._wait_until_read()
                self._is_ready = True

    async def _wait_until_read(self) -> None:
        """Wait until it has handled all that was sent so far."""
        with suppress(MapRefusal):
            await super().call(PING)

    async def notify(self, method: str, /, **params: Any) -> None:
        """Send a notification, if it is a letter: agent-inbox understands no other."""
        if self.lost.is_set():
            raise ConnectionLost("the connection was cut")
        if method == MESSAGE:
            await super().notify(method, **params)


# -- dialling

ANSWER = 30.0  # seconds for one answer
STEADY = 10.0  # seconds of a connection, or one letter, after which the next pause is a short one again


def map_url(url: str) -> str:
    """Return the URL at which a server speaks MAP: `/map`, unless the URL has a path."""
    return f"{url.rstrip('/')}/map" if not urlsplit(url).path.strip("/") else url


class Dialler:
    """The task of one link that dials its peer. `certificate`: our own, in files, for peers that want it."""

    def __init__(self, executor: Executor, link: Link, here: str, certificate: tuple[str, str]) -> None:
        self._executor = executor
        self._link = link
        self._here = here
        self._certificate = certificate

    async def run(self) -> None:
        """Dial for ever; not while the peer has a connection to us."""
        tries = 0
        while True:
            await self._link.is_down.wait()
            began, transferred = monotonic(), self._link.sent + self._link.taken
            try:
                await self._connect_once()
            except WrongCertificate as wrong:
                await self._alert(wrong)
            except (*CUT, MapRefusal, PostroomError) as cut:
                self._link.report_problem(why(cut))
            except Exception:  # the link must be dialled again, whatever went wrong
                log.exception("the link to the system %s broke because of an internal error", self._link.system)
            # A peer that takes the connection and drops it at once must not be dialled without pause.
            was_useful = monotonic() - began >= STEADY or self._link.sent + self._link.taken > transferred
            tries = 1 if was_useful else tries + 1
            await self._link.sleep(pause(tries))

    async def _connect_once(self) -> None:
        peer = self._link.peer
        certificate, key = self._certificate if peer.auth == "mtls" else ("", "")
        largest = largest_frame(self._executor.core.limits)
        async with dial(map_url(peer.url), largest, pin=peer.pin, certificate=certificate, key=key) as socket:
            await self._run_connection(socket)

    async def _run_connection(self, socket: ClientConnection) -> None:
        handler = PeerHandler(self._executor, self._link, self._here)
        rpc = RpcConnection(sender(socket), handler.notified, ANSWER, handler.answer)
        reading = asyncio.ensure_future(read(rpc, socket))
        connection = None
        try:
            result = await self._handshake(rpc, reading)
            connection = PeerConnection(rpc, reading.cancel, is_dialled=True, **abilities(result))
            handler.leave = reading.cancel
            self._link.join(connection)
            # `wait` does not raise; `result` below does, with the reason why the connection ended.
            await asyncio.wait((reading,))
            if not reading.cancelled():
                reading.result()
        finally:
            if connection is not None:
                self._link.leave(connection)
            rpc.abort()
            reading.cancel()
            with suppress(asyncio.CancelledError, *CUT):
                await reading

    async def _handshake(self, rpc: RpcConnection, reading: asyncio.Future[None]) -> dict[str, Any]:
        """Return what the peer reports of itself in the handshake; raise if the connection ended meanwhile."""
        reading.add_done_callback(lambda _: rpc.abort())
        self._link.is_in_handshake = True
        peer, core = self._link.peer, self._executor.core
        try:
            shown = await self._executor.run_slow(partial(exposure.exposure, core, peer))
            result = await handshake(rpc, peer, self._here, shown, core.limits)
            await self._executor.submit(partial(exposure.note, core, peer.system, result.get("exposure")))
        except ConnectionLost:
            if reading.done() and not reading.cancelled():
                reading.result()
            raise
        finally:
            self._link.is_in_handshake = False
        return result

    async def _alert(self, wrong: WrongCertificate) -> None:
        """Record that the peer shows another certificate, so that people are alerted."""
        core, peer = self._executor.core, self._link.peer
        try:
            await self._executor.run_slow(partial(peers.check_certificate, core, peer, wrong.found))
        except NotAllowed as refused:
            self._link.report_problem(str(refused))
