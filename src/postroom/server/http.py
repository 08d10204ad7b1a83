"""Answers as ASGI wants them. Whatever goes wrong is told in the words of JSON-RPC, also where nobody spoke it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..core import tokens
from ..errors import Busy, Invalid, Missing, NotAllowed, PostroomError, TooLarge
from ..formats.errors import BAD_TOKEN, INVALID_REQUEST, PARSE_ERROR, TOKEN_NEEDED, rpc_error
from ..model.codec import encode
from ..model.values import read_json
from . import protocol
from .callers import Caller
from .protocol import DEEPER, ROOM_FOR_MORE, Request, failure, read_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.authorize import Principal
    from ..policy.limits import Limits
    from ..room import Room
    from .executor import JobFuture
    from .http_app import HttpApp


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


def json_reply(status: int, value: Any, *headers: tuple[bytes, bytes]) -> Reply:
    return Reply(status, encode(value), headers)


def refused(status: int, why: str, *headers: tuple[bytes, bytes], code: int = INVALID_REQUEST) -> Reply:
    return json_reply(status, failure(code, why), *headers)


def sorry(error: PostroomError) -> Reply:
    """What went wrong, outside of any call."""
    status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
    return json_reply(status, {"jsonrpc": "2.0", "id": None, "error": rpc_error(error)})


async def answer(scope: Scope, send: Send, reply: Reply) -> None:
    """To a request, or in place of an upgrade."""
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    headers: Headers = [_NOT_KEPT, _NOT_GUESSED, *reply.headers]
    if reply.status != 204:
        headers += [(b"content-type", reply.type), (b"content-length", b"%d" % len(reply.body))]
    await send({"type": f"{kind}.response.start", "status": reply.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": reply.body})


# Who is let in. Asked on every request and on every upgrade, before a byte of a body is read.
#
# A page in a browser can send requests to this machine, by a name of its own that points here or from a site of
# its
# own. So the Host must be one of ours, exactly, and an Origin, where there is one, too. And nobody is trusted for
# calling from this machine: only a token tells who calls. It travels in a header and nowhere else; but MAP's
# clients, which can set none, show it in their first word at `/map`.

HEAD_BYTES = 16 * 1024  # of a request, at most
LONG_HEAD = refused(
    431, f"the head of a request may have {HEAD_BYTES // 1024} KiB: its target and its headers", CLOSE
)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_USUAL = {"http": 80, "https": 443}
_BEARER = b"bearer"
_HAS_PORT = re.compile(r":[0-9]+\Z")  # not the address [::1]


class HttpAuth:
    """Knows the names that this house answers to."""

    def __init__(self, room: Room, scheme: str, names: Iterable[str], port: int) -> None:
        self._core = room._core
        every = [name.lower() for name in names]
        known = {name if _HAS_PORT.search(name) else f"{name}:{port}" for name in every}
        usual = f":{_USUAL[scheme]}"
        known |= {host.removesuffix(usual) for host in known if host.endswith(usual)}
        self.hosts = frozenset(known)
        self.origins = frozenset(f"{scheme}://{host}" for host in known)

    def wrong(self, scope: Scope) -> Reply | None:
        """Is this request short enough, meant for us, and sent by a page of ours or by none?"""
        headers: Headers = scope["headers"]
        if _head_bytes(scope) > HEAD_BYTES:  # whoever reads heads looks at those alone that come in many pieces
            return LONG_HEAD
        hosts, origins = every(headers, b"host"), every(headers, b"origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return refused(403, "the Host header names another machine; postroom serve --http-name adds a name")
        if len(origins) > 1 or any(origin.lower() not in self.origins for origin in origins):
            return refused(403, "pages of other sites are not served")
        return None

    def caller(self, headers: Headers) -> Principal | Reply:
        """Who shows a token; or the answer to whoever shows none, or not a good one."""
        shown = _token(headers)
        if shown is None:
            return refused(
                401,
                "a token is needed: the header Authorization: Bearer pr_...; postroom token create makes one",
                CHALLENGE,
                code=TOKEN_NEEDED,
            )
        try:
            return tokens.holder(self._core, shown)
        except NotAllowed as unknown:
            return refused(401, str(unknown), CHALLENGE, code=BAD_TOKEN)

    @staticmethod
    def shows_something(headers: Headers) -> bool:
        return bool(every(headers, b"authorization"))


def every(headers: Headers, name: bytes) -> list[str]:
    """All values of a header. Bytes that are no ASCII fit no name of ours."""
    return [value.decode("ascii", "replace").strip() for key, value in headers if key == name]


def _head_bytes(scope: Scope) -> int:
    """With a colon, a space and the end of the line for each header."""
    line = len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def _token(headers: Headers) -> str | None:
    value = every(headers, b"authorization")
    if len(value) != 1:
        return None
    scheme, _, token = value[0].partition(" ")
    return token.strip() if scheme.lower().encode() == _BEARER else None


# JSON-RPC by POST. Nothing of a body is read before its caller is known; never more than a letter needs.

BODY_SECONDS = 30.0  # for a whole body
RETRY = (b"retry-after", b"1")
CLOSING = refused(503, "the server is shutting down; try again", RETRY)


class Gone(Exception):
    """The caller has hung up."""


def largest(limits: Limits) -> int:
    """Bytes of one body, or one frame."""
    return limits.max_message_bytes + ROOM_FOR_MORE


def read_rpc(raw: bytes | str, limits: Limits) -> Request | dict[str, Any]:
    """What it asks for in JSON-RPC, or the refusal of what is no JSON. No other dialect is spoken here."""
    try:
        value = read_json(raw, "body", depth=limits.max_depth + DEEPER, largest=largest(limits))
    except PostroomError as broken:
        return protocol.unreadable(str(broken))
    if protocol.is_rpc(value):
        return read_value(value)
    wrong = protocol.read_call(value)
    assert isinstance(wrong, dict)  # noqa: S101 - it does not say `jsonrpc`
    return Request([wrong])


def too_large(most: int) -> Reply:
    return refused(413, f"the body is larger than {most} bytes", code=PARSE_ERROR)


async def serve_call(house: HttpApp, principal: Principal, scope: Scope, receive: Receive) -> Reply:
    """The answer to a POST."""
    limits = house.limits
    if not _is_json(scope["headers"]):
        return refused(415, "the body must be application/json")
    most = largest(limits)
    if declared(scope["headers"]) > most:
        return too_large(most)
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _read(receive, most)
    except TimeoutError:
        return refused(408, f"the body did not come within {BODY_SECONDS:g} seconds")
    if body is None:
        return too_large(most)
    request = read_rpc(body, limits)
    if not isinstance(request, Request):
        return json_reply(400, request)
    return await _carry_out(house, principal, request, receive)


async def _carry_out(house: HttpApp, principal: Principal, request: Request, receive: Receive) -> Reply:
    caller = Caller(house.executor, house.broker, principal=principal)
    owed = caller.carry_out(request)
    if request.is_long and not owed.done():
        await _unless_gone(house, owed, receive)
        if owed.cancelled():
            return CLOSING
    reply = await owed
    return Reply(204) if reply is None else json_reply(200, reply)


async def _unless_gone(house: HttpApp, owed: JobFuture, receive: Receive) -> None:
    """Whoever hangs up waits no more: a letter is not handed to nobody. Nor does anybody when the house closes."""
    gone = asyncio.ensure_future(receive())
    with house.ended_by(owed.cancel):
        await asyncio.wait([asyncio.ensure_future(owed.wait()), gone], return_when=asyncio.FIRST_COMPLETED)
    if not owed.done():
        owed.cancel()
        raise Gone
    gone.cancel()
    with suppress(asyncio.CancelledError):
        await gone


async def _read(receive: Receive, most: int) -> bytes | None:
    """The body; None when there is too much of it."""
    pieces, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Gone
        piece = message.get("body", b"")
        size += len(piece)
        if size > most:
            return None
        pieces.append(piece)
        more = message.get("more_body", False)
    return b"".join(pieces)


def _is_json(headers: Headers) -> bool:
    """Exactly: a page of another site may send text and forms without asking, but not this."""
    value = every(headers, b"content-type")
    return len(value) == 1 and value[0].partition(";")[0].strip().lower() == "application/json"


def declared(headers: Headers) -> int:
    value = every(headers, b"content-length")
    return int(value[0]) if value and value[0].isdecimal() else 0
