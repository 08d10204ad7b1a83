"""HTTP: replies, authentication, JSON-RPC by POST, and plain calls of verbs.

Errors are JSON-RPC error objects on every path but those of plain calls, which have a plain form of their own.

Every request and every upgrade is checked before a byte of a body is read. A page in a browser can send requests
to this machine, from its own site or by a host name that points here (DNS rebinding). So the Host must be one of
ours, exactly, and so must an Origin, if there is one. Calling from this machine proves nothing: only a token tells
who calls. It travels in the Authorization header alone; MAP's clients, which can set no header, send it in their
first message at `/map`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..core import tokens
from ..core.verb import from_params
from ..errors import Busy, Invalid, NotAllowed, PostroomError, TooLarge
from ..formats.errors import (
    BAD_TOKEN,
    INVALID_REQUEST,
    PARSE_ERROR,
    TOKEN_NEEDED,
    NoSuchMethod,
    details,
    http_status,
    rpc_error,
)
from ..model.codec import encode
from ..model.values import read_json
from .callers import Caller
from .protocol import (
    EXTRA_DEPTH,
    Call,
    failure,
    is_alone,
    largest_frame,
    own_verb,
    read_rpc,
    similar,
    unreadable,
    wire_verbs,
)
from .visits import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..core.authorize import Principal
    from ..policy.limits import Limits
    from .executor import Executor
    from .http_app import HttpApp
    from .protocol import Request


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

PRINCIPAL = "postroom.principal"  # in the scope of a mounted app: who calls
CONNECTION = "postroom.connection"  # in the state of a scope: the connection that it came by
CLOSE = (b"connection", b"close")
JSON = b"application/json"
VERBS_AT = "/v1/"  # the path of each verb begins so
CHALLENGE = (b"www-authenticate", b'Bearer realm="postroom"')
_NOT_KEPT = (b"cache-control", b"no-store")
_NOT_GUESSED = (b"x-content-type-options", b"nosniff")


class Reply(Struct, frozen=True):
    """A complete response."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    type: bytes = JSON
    plain: bytes | None = None  # the body of a refusal on the path of a plain call


def json_reply(status: int, value: Any, *headers: tuple[bytes, bytes]) -> Reply:
    return Reply(status, encode(value), headers)


def error_reply(status: int, why: str, *headers: tuple[bytes, bytes], code: int = INVALID_REQUEST) -> Reply:
    """Return the refusal of a request before any verb was found."""
    plain = encode(_plain_error(_ERRORS.get(status, Invalid)(why)))
    return Reply(status, encode(failure(code, why)), headers, plain=plain)


_ERRORS = {401: NotAllowed, 403: NotAllowed, 408: Busy, 413: TooLarge, 503: Busy}  # of a refusal, by its status


def reply_for_error(error: PostroomError) -> Reply:
    """Return the reply for an error outside of any JSON-RPC call."""
    body = {"jsonrpc": "2.0", "id": None, "error": rpc_error(error)}
    return Reply(http_status(error), encode(body), plain=encode(_plain_error(error)))


def _plain_error(error: PostroomError) -> dict[str, Any]:
    return {"error": str(error), **details(error)}


class Refusal(Exception):
    """A request is refused with this reply, before anything was sent."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


async def send_reply(scope: Scope, send: Send, reply: Reply) -> None:
    """Send the reply to a request, or in place of an upgrade."""
    kind = "websocket.http" if scope["type"] == "websocket" else "http"
    body = reply.body
    if reply.plain is not None and scope["path"].startswith(VERBS_AT):
        body = reply.plain
    kept = [] if any(name == _NOT_KEPT[0] for name, _ in reply.headers) else [_NOT_KEPT]
    headers: Headers = [*kept, _NOT_GUESSED, *reply.headers]
    if reply.status != 204:
        headers += [(b"content-type", reply.type), (b"content-length", b"%d" % len(body))]
    await send({"type": f"{kind}.response.start", "status": reply.status, "headers": headers})
    await send({"type": f"{kind}.response.body", "body": body})


# -- authentication

HEAD_BYTES = 16 * 1024  # of a request line and headers, at most
PING = 20.0  # seconds between two pings of a WebSocket, and for a pong
HEAD_TOO_LONG = error_reply(
    431, f"target and headers of a request may have {HEAD_BYTES // 1024} KiB together", CLOSE
)
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
READ_METHODS = ("GET", "HEAD")
# What a browser says of where a request comes from, other programs say nothing: our own page, or the person.
_SITES = ("same-origin", "none")
_USUAL = {"http": 80, "https": 443}
_BEARER = b"bearer"
_HAS_PORT = re.compile(r":[0-9]+\Z")  # does not match the address [::1]


class HttpAddress(Struct, frozen=True, kw_only=True):
    """Where the server listens, its host names, and its certificate."""

    host: str = ""  # empty: no HTTP
    port: int = 0  # 0: any free port
    names: tuple[str, ...] = ()  # further host names
    certificate: str = ""
    key: str = ""

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    @property
    def is_loopback(self) -> bool:
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


class HttpAuth:
    """Checks hosts, origins and tokens of requests. `names` are the host names of this server."""

    def __init__(self, executor: Executor, scheme: str, names: Iterable[str], port: int) -> None:
        self._executor = executor
        known = {name if _HAS_PORT.search(name) else f"{name}:{port}" for name in map(str.lower, names)}
        usual = f":{_USUAL[scheme]}"
        known |= {host.removesuffix(usual) for host in known if host.endswith(usual)}
        self.hosts = frozenset(known)
        self.origins = frozenset(f"{scheme}://{host}" for host in known)

    def check_request(self, scope: Scope) -> Reply | None:
        """Return the refusal of a request with a long head, another host or a foreign origin; None
        if it is fine.
        """
        headers: Headers = scope["headers"]
        if _head_bytes(scope) > HEAD_BYTES:  # h11's own limit is larger, and says less
            return HEAD_TOO_LONG
        hosts, origins = header_values(headers, b"host"), header_values(headers, b"origin")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return error_reply(
                403, "the Host header names another machine; postroom serve --http-name adds a name"
            )
        if len(origins) > 1 or any(origin.lower() not in self.origins for origin in origins):
            return error_reply(403, "pages of other sites are not served")
        is_look = scope["type"] == "http" and scope["method"] in READ_METHODS
        if any(
            site not in (_SITES if is_look else _SITES[:1]) for site in header_values(headers, b"sec-fetch-site")
        ):
            return error_reply(403, "a page of another site led here; open this address by itself")
        return None

    async def authenticate(self, headers: Headers) -> Principal:
        """Return the principal of the token in the headers, or refuse the request."""
        token = _token(headers)
        if token is None:
            text = (
                "a token is needed: the header Authorization: Bearer pr_...;"
                " postroom tokens create --agent NAME makes one"
            )
            raise Refusal(error_reply(401, text, CHALLENGE, code=TOKEN_NEEDED))
        try:
            if token.startswith(PREFIX):
                return self._executor.visits.find(token).principal
            principal: Principal = await self._executor.read(tokens.authenticate, self._executor.core, token)
        except NotAllowed as unknown:
            raise Refusal(error_reply(401, str(unknown), CHALLENGE, code=BAD_TOKEN)) from None
        return principal

    @staticmethod
    def has_credentials(headers: Headers) -> bool:
        return bool(header_values(headers, b"authorization"))


def header_values(headers: Headers, name: bytes) -> list[str]:
    """Return all values of a header. Bytes that are not ASCII are replaced, and match nothing."""
    return [value.decode("ascii", "replace").strip() for key, value in headers if key == name]


def _head_bytes(scope: Scope) -> int:
    """Return the size of a head, with a colon, a space and a line end for each header."""
    line = len(scope["raw_path"]) + len(scope["query_string"])
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def _token(headers: Headers) -> str | None:
    value = header_values(headers, b"authorization")
    if len(value) != 1:
        return None
    scheme, _, token = value[0].partition(" ")
    return token.strip() if scheme.lower().encode() == _BEARER else None


# -- calls by POST

DESCRIPTION = "/openapi.json"
BODY_SECONDS = 30.0  # to receive a whole body
RETRY = (b"retry-after", b"1")
CLOSING = error_reply(503, "the server is shutting down; try again", RETRY)


class Disconnected(Exception):
    """The client has closed the connection."""


def read_body(raw: bytes | str, limits: Limits) -> Any:
    return read_json(raw, "body", depth=limits.max_depth + EXTRA_DEPTH, largest=largest_frame(limits))


def too_large(most: int) -> Reply:
    return error_reply(413, f"the body is larger than {most} bytes", code=PARSE_ERROR)


async def serve_call(app: HttpApp, principal: Principal, scope: Scope, receive: Receive) -> Reply:
    """Return the reply to a call in JSON-RPC."""
    body = await read_json_body(largest_frame(app.limits), scope, receive)
    try:
        value = read_body(body, app.limits)
    except PostroomError as broken:
        return json_reply(400, unreadable(str(broken)))
    return await _carry_out(app, principal, read_rpc(value), receive)


class PlainCall(Call):
    """A call of a verb by its path, answered with the result alone and an honest status."""

    def answer(self, result: Any) -> Any:
        return result

    def refuse(self, error: PostroomError) -> Any:
        return plain_refusal(error)


def plain_refusal(error: PostroomError) -> Reply:
    """Return the refusal of a plain call."""
    status = http_status(error)
    headers = (CHALLENGE,) if status == 401 else ()
    if status in {429, 503}:
        headers = ((b"retry-after", b"%d" % max(1, ceil(error.retry_after or 1))),)
    return json_reply(status, _plain_error(error), *headers)


async def serve_verb(app: HttpApp, principal: Principal, scope: Scope, receive: Receive) -> Reply:
    """Return the reply to `POST /v1/VERB` with the parameters as a JSON object; without a body there are none."""
    body = await read_json_body(largest_frame(app.limits), scope, receive)
    name = scope["path"].removeprefix(VERBS_AT)
    try:
        cls = own_verb(name)
        if cls is None:
            hint = similar(name, tuple(wire_verbs())) or f"GET {DESCRIPTION} lists them"
            raise NoSuchMethod(f"there is no verb {name[:100]!a}", hint=hint)
        params = read_body(body, app.limits) if body.strip() else {}
        if not isinstance(params, dict):
            raise Invalid("must be an object: the parameters by name", field="body")
        call = PlainCall(name, params, request=from_params(cls, params))
    except PostroomError as wrong:
        return plain_refusal(wrong)
    return await _carry_out(app, principal, call, receive)


async def read_json_body(most: int, scope: Scope, receive: Receive) -> bytes:
    """Return the body of a POST, of so many bytes at most; or refuse the request."""
    if not _is_json(scope["headers"]):
        raise Refusal(error_reply(415, "the body must be application/json"))
    if content_length(scope["headers"]) > most:
        raise Refusal(too_large(most))
    pieces, size, more = [], 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                pieces.append(message.get("body", b""))
                size += len(pieces[-1])
                if size > most:
                    raise Refusal(too_large(most))
                more = message.get("more_body", False)
    except TimeoutError:
        text = f"the body did not come within {BODY_SECONDS:g} seconds"
        raise Refusal(error_reply(408, text)) from None
    return b"".join(pieces)


async def _carry_out(app: HttpApp, principal: Principal, request: Request, receive: Receive) -> Reply:
    caller = Caller(app.executor, app.broker, principal=principal)
    future = caller.carry_out(request)
    if is_alone(request) and not future.done():
        await _cancel_if_gone(app, future, receive)
        if future.cancelled():
            return CLOSING
    reply = await future
    if isinstance(reply, Reply):
        return reply
    return Reply(204) if reply is None else json_reply(200, reply)


async def _cancel_if_gone(app: HttpApp, future: asyncio.Future[Any], receive: Receive) -> None:
    """Wait for a reply; cancel it if the client disconnects or the server closes, so that no letter is handed to a
    client that is gone.
    """
    gone = asyncio.ensure_future(receive())
    with app.closing_with(future.cancel):
        await asyncio.wait([future, gone], return_when=asyncio.FIRST_COMPLETED)
    if not future.done():
        future.cancel()
        raise Disconnected
    gone.cancel()
    with suppress(asyncio.CancelledError):
        await gone


def _is_json(headers: Headers) -> bool:
    """Return whether the content type is exactly JSON: a page of another site may send text and forms without a
    preflight request, but not this.
    """
    value = header_values(headers, b"content-type")
    return len(value) == 1 and value[0].partition(";")[0].strip().lower() == "application/json"


def content_length(headers: Headers) -> int:
    value = header_values(headers, b"content-length")
    return int(value[0]) if value and value[0].isdecimal() else 0
