"""A JSON-RPC connection on which either side may call the other.

`RpcConnection` knows no sockets: it is given a function that sends a message, and the texts or answers that came.
`dialler` opens a WebSocket for it; `connected_pair` connects two of them inside one process.

`AgentInboxConnection` is that of agent-inbox, which connects to us: letters go to it as messages to an agent. It
has no receipts, so behind each letter goes a ping, whose answer, also that there is no such method, comes after
the letter was handled. A ping goes before the first letter, too: agent-inbox sets its message handler only after
the answer to its registration, and would lose what it reads before that.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ..core.peers import is_loopback
from ..errors import Invalid
from ..formats.errors import METHOD_NOT_FOUND
from ..formats.federation import encode_messages, federation_error
from ..formats.map import FIND, MESSAGE, PING, ROUTE, request
from ..model.codec import encode
from ..server.protocol import notification

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from msgspec import Raw

    from ..model.peer import Envelope
    from .peer_calls import PeerHandler

    Serve = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

log = logging.getLogger("postroom")
_CUT = "the connection was cut"
_numbers = itertools.count(1)  # of calls. Unique in the process: one WebSocket may have two RpcConnections in turn
MOST_SERVED = 128  # calls of the other side that are carried out at once; more are not read


class MapRefusal(Exception):
    """An error that the other side answered, with its number."""

    def __init__(self, error: Any) -> None:
        result = error if isinstance(error, dict) else {}
        data = result.get("data")
        self.error = result
        self.code = result.get("code")
        self.is_temporary = isinstance(data, dict) and data.get("retryable") is True
        self.is_unknown_method = self.code == METHOD_NOT_FOUND
        super().__init__(f"{str(result.get('message'))[:300]} ({self.code})")


class ConnectionLost(Exception):
    """The other side cannot be reached, or does not answer any more."""


async def refuse(method: str, _params: dict[str, Any]) -> dict[str, Any]:
    error = {"code": METHOD_NOT_FOUND, "message": f"method {method} is not available on this connection"}
    return {"error": error}


class RpcConnection:
    """Calls and their answers over one connection, made inside an event loop.

    `on_notification` gets each notification, in order; `patience`: seconds for one answer; `serve` carries out
    what the other side calls and returns a `result` or an `error`.
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        on_notification: Callable[[str, Mapping[str, Any]], None],
        patience: float,
        serve: Serve = refuse,
    ) -> None:
        self._send = send
        self._on_notification = on_notification
        self._patience = patience
        self._serve = serve
        self._served: set[asyncio.Future[None]] = set()
        self._turns = asyncio.Semaphore(MOST_SERVED)
        self._pending: dict[int, asyncio.Future[dict[str, Any] | MapRefusal | ConnectionLost]] = {}
        self.lost = asyncio.Event()

    async def call(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Call a method and return its result; a list becomes its `items`.

        MapRefusal: the other side refused. ConnectionLost: it did not answer in time.
        """
        if self.lost.is_set():
            raise ConnectionLost(_CUT)
        id = next(_numbers)
        answer: asyncio.Future[dict[str, Any] | MapRefusal | ConnectionLost]
        answer = self._pending[id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._patience):
                await self._send(request(id, method, **params))
                result = await answer
        except TimeoutError:
            raise ConnectionLost(f"no answer to {method} in {self._patience:g} s") from None
        finally:
            del self._pending[id]
        if isinstance(result, Exception):
            raise result
        return result

    async def route(self, envelope: Envelope, encoded: Raw, after: Mapping[str, str]) -> dict[str, Any]:
        """Send one letter. `after`: by recipient, the id of the letter before it that is not answered."""
        more = {"after": after} if after else {}
        return await self.call(ROUTE, systemId=envelope.target, envelope=encoded, **more)

    async def notify(self, method: str, /, **params: Any) -> None:
        """Send a notification."""
        await self._send(notification(method, params))

    async def receive(self, text: str | bytes) -> None:
        """Take a frame that came in. What is no message of the protocol is ignored."""
        try:
            args = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        if not isinstance(args, dict):
            return
        method, id = args.get("method"), args.get("id")
        params = args.get("params")
        if not isinstance(method, str):
            self.receive_response(id, args)
        elif id is None:
            self._on_notification(method, params if isinstance(params, dict) else {})
        else:
            # Waiting here stops the reading of frames, so a peer cannot pile up calls (threat 7).
            await self._turns.acquire()
            handler = asyncio.ensure_future(self._answer(id, method, params if isinstance(params, dict) else {}))
            self._served.add(handler)
            handler.add_done_callback(self._served.discard)
            handler.add_done_callback(lambda _: self._turns.release())

    async def _answer(self, id: Any, method: str, params: dict[str, Any]) -> None:
        try:
            result = await self._serve(method, params)
            with suppress(ConnectionLost):
                await self._send({"jsonrpc": "2.0", "id": id} | result)
        except Exception:  # the connection must go on: only this call has no answer
            log.exception("a call of the other side failed because of an internal error")

    def receive_response(self, id: Any, params: Mapping[str, Any]) -> None:
        """Take the answer to a call of ours."""
        answer = self._pending.get(id) if isinstance(id, int) else None
        # An answer that came too late, or to a call that was never made.
        if answer is None or answer.done():
            return
        if params.get("error") is not None:
            answer.set_result(MapRefusal(params["error"]))
        else:
            result = params.get("result")
            found = {"items": result} if isinstance(result, list) else result
            answer.set_result(found if isinstance(found, dict) else {})

    def abort(self) -> None:
        """Mark the connection as lost: calls that wait for an answer raise ConnectionLost."""
        self.lost.set()
        for handler in list(self._served):
            handler.cancel()
        for answer in self._pending.values():
            if not answer.done():
                # As a result: an exception that nobody awaits would be logged by asyncio as never retrieved.
                answer.set_result(ConnectionLost(_CUT))


# -- agent-inbox

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


# -- inside one process


def connected_pair(
    first: PeerHandler, second: PeerHandler, patience: float
) -> tuple[RpcConnection, RpcConnection]:
    """Connect two handlers; to abort one connection is to abort both."""
    rpcs: list[RpcConnection] = []

    def to(number: int) -> Callable[[dict[str, Any]], Awaitable[None]]:
        async def send(params: dict[str, Any]) -> None:
            if any(rpc.lost.is_set() for rpc in rpcs):
                raise ConnectionLost("the connection was cut")
            await rpcs[number].receive(encode(params))

        return send

    rpcs += [
        RpcConnection(to(1), first.notified, patience, first.answer),
        RpcConnection(to(0), second.notified, patience, second.answer),
    ]
    return rpcs[0], rpcs[1]


def is_near(server: str) -> bool:
    """Return whether this URL is on this machine."""
    return is_loopback(urlsplit(server).hostname or "")
