"""Answers as ASGI wants them. Whatever goes wrong is told in the words of JSON-RPC, also where nobody spoke it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import Busy, Invalid, Missing, NotAllowed, TooLarge
from ..model.codec import encode
from ..wire.problems import INVALID_REQUEST, rpc_error
from ..wire.rpc import failure

if TYPE_CHECKING:
    from ..errors import PostroomError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

CLOSE = (b"connection", b"close")
JSON = b"application/json"
CHALLENGE = (b"www-authenticate", b'Bearer realm="postroom"')
_NOT_KEPT = (b"cache-control", b"no-store")
_NOT_GUESSED = (b"x-content-type-options", b"nosniff")
# What is wrong, and the status that says so. The first that fits.
STATUS: tuple[tuple[type[PostroomError], int], ...] = (
    (TooLarge, 413),
    (Invalid, 400),
    (NotAllowed, 403),
    (Missing, 404),
    (Busy, 503),
)


class Reply(Struct, frozen=True):
    """One whole answer."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    type: bytes = JSON


def told(status: int, value: Any, *headers: tuple[bytes, bytes]) -> Reply:
    return Reply(status, encode(value), headers)


def refused(status: int, why: str, *headers: tuple[bytes, bytes], code: int = INVALID_REQUEST) -> Reply:
    return told(status, failure(code, why), *headers)


def sorry(error: PostroomError) -> Reply:
    """What went wrong, outside of any call."""
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    return told(status, {"jsonrpc": "2.0", "id": None, "error": rpc_error(error)})


async def answer(scope: Scope, send: Send, reply: Reply) -> None:
    """To a request, or in place of an upgrade."""
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    headers: Headers = [_NOT_KEPT, _NOT_GUESSED, *reply.headers]
    if reply.status != 204:
        headers += [(b"content-type", reply.type), (b"content-length", b"%d" % len(reply.body))]
    await send({"type": f"{kind}.response.start", "status": reply.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": reply.body})
