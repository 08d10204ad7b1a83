"""One connection on which either side may call the other: calls and their answers, and what is said unasked.

It refuses to know sockets: it is given a way to send a message, and the texts, or the answers, that came.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import random
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from ..formats.errors import METHOD_NOT_FOUND
from ..formats.map import request
from ..model.codec import encode
from ..server.protocol import notification
from ..server.tls import dialling, fingerprint, is_pinned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from websockets.asyncio.client import ClientConnection


if TYPE_CHECKING:
    Serve = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]

log = logging.getLogger("postroom")
_CUT = "the connection was cut"
_numbers = itertools.count(
    1
)  # of questions, each its own: on one connection there may be two lines, one after the other
MOST_SERVED = 128  # calls of the other side that are carried out at once; then it is not read any more


class MapRefusal(Exception):
    """The server's error, with its number."""

    def __init__(self, error: Any) -> None:
        result = error if isinstance(error, dict) else {}
        data = result.get("data")
        self.error = result
        self.code = result.get("code")
        self.is_temporary = isinstance(data, dict) and data.get("retryable") is True
        self.is_unknown_method = self.code == METHOD_NOT_FOUND
        super().__init__(f"{str(result.get('message'))[:300]} ({self.code})")


class LineLost(Exception):
    """The server cannot be reached, or does not answer any more."""


Told = dict[str, Any] | MapRefusal


class Line:
    """Made inside an event loop. `heard` is told of each notification, in order; `patience`: seconds for one
    answer; `serve` carries out what the other side calls, and gives back a `result` or an `error`.
    """

    def __init__(
        self,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        received: Callable[[str, Mapping[str, Any]], None],
        patience: float,
        serve: Serve | None = None,
    ) -> None:
        self._send = send
        self._heard = received
        self._patience = patience
        self._serve = serve
        self._served: set[asyncio.Future[None]] = set()
        self._turns = asyncio.Semaphore(MOST_SERVED)
        self._asked: dict[int, asyncio.Future[Told | LineLost]] = {}
        self.lost = asyncio.Event()

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        """The result; of one that is a list, the `items`. MapRefusal: the server said no. LineLost: it said
        nothing in time.
        """
        (result,) = await self.ask_in_turn((method, params))
        if isinstance(result, MapRefusal):
            raise result
        return result

    async def ask_in_turn(self, *calls: tuple[str, Mapping[str, Any]]) -> list[Told]:
        """Several calls in this order, each said before the one ahead of it is answered. A refusal stands in the
        place of its result.
        """
        if self.lost.is_set():
            raise LineLost(_CUT)
        answers = [self._expected() for _ in calls]
        try:
            async with asyncio.timeout(self._patience):
                for (id, _), (method, params) in zip(answers, calls, strict=True):
                    await self._send(request(id, method, **params))
                results = [await answer for _, answer in answers]
        except TimeoutError:
            method = next(call[0] for call, (_, answer) in zip(calls, answers, strict=True) if not _is_in(answer))
            raise LineLost(f"no answer to {method} in {self._patience:g} s") from None
        finally:
            for id, _ in answers:
                del self._asked[id]
        return [_unless_lost(one) for one in results]

    def _expected(self) -> tuple[int, asyncio.Future[Told | LineLost]]:
        """The number of a call, and what will be its answer."""
        id = next(_numbers)
        answer: asyncio.Future[Told | LineLost] = asyncio.get_running_loop().create_future()
        self._asked[id] = answer
        return id, answer

    async def tell(self, method: str, /, **params: Any) -> None:
        """Something that is not answered."""
        await self._send(notification(method, params))

    async def came(self, text: str | bytes) -> None:
        """A frame. What is no message of the protocol is passed over: the server's log is the place for it."""
        try:
            args = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return
        if not isinstance(args, dict):
            return
        method, id = args.get("method"), args.get("id")
        params = args.get("params")
        if not isinstance(method, str):
            self.answered(id, args)
        elif id is None:
            self._heard(method, params if isinstance(params, dict) else {})
        elif self._serve is None:
            error = {"code": METHOD_NOT_FOUND, "message": f"{method} is nothing that is asked of a guest"}
            await self._send({"jsonrpc": "2.0", "id": id, "error": error})
        else:
            await self._turns.acquire()
            serving = asyncio.ensure_future(self._answer(id, method, params if isinstance(params, dict) else {}))
            self._served.add(serving)
            serving.add_done_callback(self._done)

    async def _answer(self, id: Any, method: str, params: dict[str, Any]) -> None:
        assert self._serve is not None  # noqa: S101 - asked before
        result = await self._serve(method, params)
        with suppress(LineLost):
            await self._send({"jsonrpc": "2.0", "id": id} | result)

    def _done(self, serving: asyncio.Future[None]) -> None:
        self._served.discard(serving)
        self._turns.release()
        if not serving.cancelled() and (fault := serving.exception()) is not None:
            log.error("a call of the other side failed by a fault of ours", exc_info=fault)

    def answered(self, id: Any, params: Mapping[str, Any]) -> None:
        """An answer came."""
        answer = self._asked.get(id) if isinstance(id, int) else None
        if answer is None or answer.done():
            return
        if params.get("error") is not None:
            answer.set_result(MapRefusal(params["error"]))
        else:
            answer.set_result(_object(params.get("result")))

    def cut(self) -> None:
        """The connection is gone: nothing more is answered."""
        self.lost.set()
        for serving in list(self._served):
            serving.cancel()
        for answer in self._asked.values():
            if not answer.done():
                answer.set_result(LineLost(_CUT))


def _object(result: Any) -> dict[str, Any]:
    if isinstance(result, list):
        return {"items": result}
    return result if isinstance(result, dict) else {}


def _is_in(answer: asyncio.Future[Any]) -> bool:
    return answer.done() and not answer.cancelled()


def _unless_lost(result: Told | LineLost) -> Told:
    if isinstance(result, LineLost):
        raise result
    return result


# Opens a line over WebSocket, and says how long to wait before the next try: ever longer, never all at once.

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

    async def send(params: dict[str, Any]) -> None:
        try:
            await socket.send(encode(params).decode())
        except ConnectionClosed as closed:
            raise LineLost(str(closed)) from None

    return send


async def read(line: Line, socket: ClientConnection) -> None:
    """Until it ends; LineLost, always."""
    async for frame in socket:
        await line.came(frame)
    raise LineLost("the other side closed the connection")


# Two lines of which each is the other's far end, with nothing in between: two post rooms in one process.


class Side(Protocol):
    """Who is at one end."""

    def notified(self, method: str, params: Mapping[str, Any]) -> None: ...
    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any]: ...


def paired(first: Side, second: Side, patience: float) -> tuple[Line, Line]:
    """The line of the first and that of the second. Who cuts one has cut both."""
    lines: list[Line] = []

    def to(number: int) -> Callable[[dict[str, Any]], Awaitable[None]]:
        async def send(params: dict[str, Any]) -> None:
            if any(line.lost.is_set() for line in lines):
                raise LineLost("the connection was cut")
            await lines[number].came(encode(params))

        return send

    lines += [
        Line(to(1), first.notified, patience, first.answer),
        Line(to(0), second.notified, patience, second.answer),
    ]
    return lines[0], lines[1]


# Is an address on this machine? Asked where nothing of a network is installed, too.


def is_near(server: str) -> bool:
    """Is it on this machine?"""
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
