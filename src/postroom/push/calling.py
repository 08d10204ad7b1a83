"""One call of a webhook. The host is looked up once; every address that comes of it is checked; one of these very
addresses is connected to. So a name that leads elsewhere a moment later leads nowhere.

No redirect is followed and no proxy is asked. Each call has its time as a whole, and as much of an answer is read
as it needs. It all happens in the event loop but for two things that cannot: to look a name up, and to read the
machine's authorities. They have threads of their own, a bounded number of them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..model.signing import signed_headers
from ..model.target import read_target
from ..policy.reach import why_not
from .answers import Outcome, outcome_of, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from ..model.target import Target
    from ..model.webhook import Webhook

WHOLE = 10.0  # seconds for a call, from the name to the answer
CONNECT = 5.0  # seconds of them for one address, TLS included
FAREWELL = 0.5  # seconds for the rest of an answer, and for an orderly end
MOST = 16  # calls at once
LONGEST_HEAD = 16 * 1024  # bytes of an answer's lines
LONGEST_BODY = 64 * 1024  # bytes that are read to be thrown away
MOST_LINES = 100

Address = tuple[socket.AddressFamily, tuple[Any, ...]]


class NotCalled(Exception):
    """Nothing came of a call; why, in our own words."""


class Telephone:
    """Made inside an event loop."""

    def __init__(
        self,
        look_up: Callable[..., list[Any]] = socket.getaddrinfo,
        trust: Callable[[], ssl.SSLContext] = ssl.create_default_context,
    ) -> None:
        self._look_up = look_up
        self._trust = trust
        self._lines = asyncio.Semaphore(MOST)
        self._threads = ThreadPoolExecutor(MOST, thread_name_prefix="postroom-push")

    def close(self) -> None:
        """Names that are still looked up are nobody's affair any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def call(self, webhook: Webhook, id: str, body: bytes, now: Callable[[], datetime]) -> Outcome:
        """Say this there, signed in the moment in which it is said. What goes wrong is told, never raised."""
        async with self._lines:
            at = now()
            headers = signed_headers(webhook.secrets(at), id, int(at.timestamp()), body)
            try:
                async with asyncio.timeout(WHOLE):
                    status, told = await self._say(webhook, headers, body)
            except TimeoutError:
                return Outcome(problem=f"there was no answer within {WHOLE:g} seconds")
            except NotCalled as failed:
                return Outcome(problem=str(failed))
            return outcome_of(status, told, now())

    async def _say(self, webhook: Webhook, headers: Mapping[str, str], body: bytes) -> tuple[int, dict[str, str]]:
        target = read_target(webhook.url)
        reader, writer = await self._connect(target, allow_private=webhook.allow_private)
        try:
            writer.write(request_of(target, headers, body))
            await writer.drain()
            status, told = await _read_head(reader)
            await _hear_out(reader)
        except (OSError, ValueError, asyncio.IncompleteReadError) as broken:
            raise NotCalled(f"{target.host} broke off: {_words(broken)}") from None
        finally:
            await _hang_up(writer)
        return status, told

    async def _connect(
        self, target: Target, *, allow_private: bool
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To the first that answers, of the addresses that were checked; all of them were."""
        addresses, context = await asyncio.get_running_loop().run_in_executor(
            self._threads, self._prepare, target, allow_private
        )
        why: Exception = NotCalled(f"{target.host} has no address")
        for family, address in addresses:
            try:
                async with asyncio.timeout(CONNECT):
                    return await self._open(family, address, target.host, context)
            except (OSError, TimeoutError) as failed:
                why = NotCalled(f"{target.host} cannot be reached: {_words(failed)}")
        raise why

    async def _open(
        self, family: socket.AddressFamily, address: tuple[Any, ...], host: str, context: ssl.SSLContext | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """To this very address; with TLS it must prove to be this host."""
        plain = await self._dial(family, address)
        try:
            name = None if context is None else host
            return await asyncio.open_connection(sock=plain, ssl=context, server_hostname=name, limit=LONGEST_HEAD)
        except BaseException:
            plain.close()
            raise

    async def _dial(self, family: socket.AddressFamily, address: tuple[Any, ...]) -> socket.socket:
        plain = socket.socket(family, socket.SOCK_STREAM)
        try:
            plain.setblocking(False)
            await asyncio.get_running_loop().sock_connect(plain, address)
        except BaseException:
            plain.close()
            raise
        return plain

    def _prepare(self, target: Target, allow_private: bool) -> tuple[list[Address], ssl.SSLContext | None]:
        """On a thread: the addresses of a host, all of which may be called; and whom to trust there."""
        try:
            found = self._look_up(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
        except (OSError, UnicodeError) as unknown:
            raise NotCalled(f"{target.host} has no address: {_words(unknown)}") from None
        addresses = [(family, address) for family, _, _, _, address in found]
        for _, address in addresses:
            if told := why_not(target.host, address[0], allow_private=allow_private):
                raise NotCalled(told)
        return addresses, self._trust() if target.scheme == "https" else None


def request_of(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """All of it is made of checked pieces: a target, numbers, base64."""
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.header}",
        f"User-Agent: postroom/{__version__}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
        "Connection: close",
    ]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The number of the answer, and its headers. What only says that the answer comes is passed over."""
    left = LONGEST_HEAD
    for _ in range(3):
        lines: list[bytes] = []
        while line := (raw := await reader.readline()).rstrip(b"\r\n"):
            lines.append(line)
            left -= len(raw)
            if left < 0 or len(lines) > MOST_LINES:
                raise ValueError("its answer has no end")
        if not lines:
            raise ValueError("it said nothing")
        status = status_of(lines[0])
        if status is None:
            raise ValueError("its answer is no HTTP")
        if status >= 200:
            return status, _headers(lines[1:])
    raise ValueError("its answer never came")


def _headers(lines: list[bytes]) -> dict[str, str]:
    pairs = (line.decode("latin-1").partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _hear_out(reader: asyncio.StreamReader) -> None:
    """So that who answers is not cut off in the middle of it. What is said does not matter any more."""
    left = LONGEST_BODY
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(FAREWELL):
            while left > 0 and (piece := await reader.read(left)):
                left -= len(piece)


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(TimeoutError, OSError):
        async with asyncio.timeout(FAREWELL):
            await writer.wait_closed()
    writer.transport.abort()


def _words(broken: BaseException) -> str:
    if isinstance(broken, TimeoutError):
        return f"no connection within {CONNECT:g} seconds"
    if isinstance(broken, ssl.SSLCertVerificationError):
        return f"its certificate is not good: {broken.verify_message}"
    number = None if isinstance(broken, ssl.SSLError) else getattr(broken, "errno", None)
    if number is not None and number > 0:
        return os.strerror(number)  # asyncio has words of its own, with the address in them
    return getattr(broken, "strerror", None) or str(broken) or type(broken).__name__
