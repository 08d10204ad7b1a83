"""MCP over streamable HTTP: the ASGI app for `/mcp`, and the sessions of its callers.

The HTTP server authenticates the caller and leaves its principal in the scope of each request, under
`postroom.principal`. Host and Origin are checked here as well.

The revision of 2025 has sessions, and its clients seldom end them. The SDK ends idle sessions and bounds all of
them together, but one caller could take them all. So a caller that opens one too many loses the one it has not
used for longest. The later revision has no sessions.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ..formats.errors import INVALID_REQUEST
from ..model.codec import encode
from ..server.http import LOOPBACK, PRINCIPAL
from ..server.protocol import failure
from .handlers import Caller, Handlers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from mcp.server.context import ServerRequestContext
    from starlette.types import Message, Receive, Scope, Send

    from ..core.authorize import Principal


MAX_SESSIONS_EACH = 100  # of one caller
MAX_SESSIONS = 1000  # of all callers together
IDLE_SECONDS = 15 * 60.0  # after which a session without any request ends


class Sessions:
    """The sessions of each caller. One that the SDK has ended itself may stay here a while, and is
    dropped first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # By caller: each session's requests under way, the last used last. A request that may open a session has a
        # place of its own until the session is known.
        self._by_caller: dict[str, dict[Any, int]] = {}

    def is_full(self, caller: str) -> bool:
        return len(self._by_caller.get(caller, ())) >= self._most

    def longest_idle(self, caller: str) -> str | None:
        """Return the session that was not used for longest, of those without a request under way."""
        return next((id for id, busy in self._by_caller.get(caller, {}).items() if not busy), None)

    @contextmanager
    def under_way(self, caller: str, id: str | None) -> Iterator[Callable[[str], None]]:
        """Count a request of a session; without an id, one that may open a session.

        The function that is yielded must be called with the id of a session that was opened: from then on that
        counts, and the request no more, though it may last longer.
        """
        own, key = self._by_caller.setdefault(caller, {}), object() if id is None else id
        if id is None or id in own:
            own[key] = own.pop(key, 0) + 1

        def opened(new: str) -> None:
            own.setdefault(new, 0)
            own.pop(key, None)

        try:
            yield opened
        finally:
            if id is not None and id in own:
                own[id] = own.pop(id) - 1
            else:
                self.ended(caller, key)

    def ended(self, caller: str, id: object) -> None:
        own = self._by_caller.get(caller, {})
        own.pop(id, None)
        if not own:
            self._by_caller.pop(caller, None)


# -- the app

GONE = "postroom.gone"  # the key in the scope: an event that is set when the request is over
_SESSION, _VERSION = b"mcp-session-id", b"mcp-protocol-version"
LOOPBACK_HOSTS = (*LOOPBACK, *(f"{host}:*" for host in LOOPBACK))
LOOPBACK_ORIGINS = tuple(f"http://{host}" for host in LOOPBACK_HOSTS)


class Calls(Protocol):
    """The object that carries out verbs: `Executor`, or `PrincipalCalls`, which checks the token at each call."""

    async def call(self, principal: Principal, name: str, params: Mapping[str, Any], /) -> Any: ...


def asgi(
    calls: Calls,
    version: str,
    *,
    hosts: Sequence[str] = LOOPBACK_HOSTS,
    origins: Sequence[str] = LOOPBACK_ORIGINS,
    agent: str | None = None,
    scope: str | None = None,
    handlers: type[Handlers] = Handlers,
) -> App:
    """Return the app, which serves while its `running()` is entered. `agent` is the default agent of calls."""

    def caller_of(ctx: ServerRequestContext[Any, Any]) -> Caller:
        request = ctx.request.scope  # type: ignore[union-attr] # over HTTP there always is a request
        principal = request[PRINCIPAL]
        call = partial(calls.call, principal)
        return Caller(call, agent=principal.agent, usual=agent, scope=scope, gone=request[GONE])

    manager = StreamableHTTPSessionManager(
        handlers(caller_of).server(version),
        security_settings=TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=list(origins)),
        session_idle_timeout=IDLE_SECONDS,
        max_sessions=MAX_SESSIONS,
    )
    return App(manager, Sessions(MAX_SESSIONS_EACH))


class App:
    """The ASGI app. A session belongs to the caller that opened it: with another token it does not exist."""

    def __init__(self, manager: StreamableHTTPSessionManager, sessions: Sessions) -> None:
        self._manager = manager
        self._sessions = sessions

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        principal: Principal | None = scope.get(PRINCIPAL)
        if principal is None:
            await _refuse(send, 401, "the caller is not authenticated")
            return
        caller = f"{principal.name} {principal.token}"
        gone = asyncio.Event()
        user = AuthenticatedUser(AccessToken(token="", client_id=caller, scopes=[]))
        result = {**scope, "user": user, GONE: gone}
        try:
            await self._serve(caller, result, _noting_disconnect(receive, gone), send)
        finally:
            gone.set()

    async def _serve(self, caller: str, scope: Scope, receive: Receive, send: Send) -> None:
        id = _header(scope, _SESSION)
        if id is None and not _may_open(scope):
            await self._manager.handle_request(scope, receive, send)
            return
        if id is None and not await self._has_room(caller, scope):
            await _refuse(send, 429, "too many sessions of this token are in use; end one with DELETE")
            return
        with self._sessions.under_way(caller, id) as opened:

            async def noted(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status, new = message["status"], _header(message, _SESSION)
                    if id is None and new is not None and status < 400:
                        opened(new)
                    elif id is not None and (status == 404 or (scope["method"] == "DELETE" and status < 400)):
                        self._sessions.ended(caller, id)
                await send(message)

            await self._manager.handle_request(scope, receive, noted)

    async def _has_room(self, caller: str, scope: Scope) -> bool:
        """Return whether the caller may open a session. If it has too many, the one not used for longest ends."""
        while self._sessions.is_full(caller):
            id = self._sessions.longest_idle(caller)
            if id is None:
                return False
            self._sessions.ended(caller, id)
            kept = [(name, value) for name, value in scope["headers"] if name in {b"host", b"origin"}]
            delete = {**scope, "method": "DELETE", "headers": [*kept, (_SESSION, id.encode("latin-1"))]}
            await self._manager.handle_request(delete, _nothing, _discard)
        return True


def _header(params: Scope | Message, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in params["headers"] if key == name), None)


def _may_open(scope: Scope) -> bool:
    """Return whether a request may open a session: only the revision of 2025 has them."""
    version = _header(scope, _VERSION)
    return scope["method"] == "POST" and (version is None or version in HANDSHAKE_PROTOCOL_VERSIONS)


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _discard(message: Message) -> None:
    """Drop an answer whose client is gone."""


def _noting_disconnect(receive: Receive, gone: asyncio.Event) -> Receive:
    """Return a `receive` that sets `gone` when the client disconnects. The SDK goes on with a call of the older
    revision then, but waiting for mail must end.
    """

    async def receive_noting() -> Message:
        message = await receive()
        if message["type"] == "http.disconnect":
            gone.set()
        return message

    return receive_noting


async def _refuse(send: Send, status: int, why: str) -> None:
    """Refuse a request with a JSON-RPC error, which every client can read."""
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": encode(failure(INVALID_REQUEST, why))})
