"""How many sessions one caller may have, in the revision of 2025. The later one has none.

Its clients seldom say goodbye. The SDK ends what nobody has used for a while, and bounds all sessions together;
one caller could have all of those. So whoever opens one too many loses the one that it has not used for longest.
It refuses to know HTTP.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from ..formats.errors import INVALID_REQUEST
from ..model.codec import encode
from ..server.protocol import failure
from .server import build
from .tools import Caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from mcp.server.context import ServerRequestContext
    from starlette.types import Message, Receive, Scope, Send

    from ..core.authorize import Principal
    from ..room import Room
    from .mail import Shelf


MOST_OF_ONE = 100  # sessions of one caller
MOST = 1000  # of all together
IDLE = 15 * 60.0  # seconds that a session may do nothing, not even listen


class Sessions:
    """Who has which. One that the SDK has ended by itself may stand here a while, and is the first to go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[
            str, dict[str, int]
        ] = {}  # by caller: each session's requests under way; the last used last
        self._opening: Counter[str] = Counter()

    def is_full(self, caller: str) -> bool:
        return len(self._of.get(caller, ())) + self._opening[caller] >= self._most

    def idlest(self, caller: str) -> str | None:
        """Of those that do nothing just now."""
        return next((id for id, busy in self._of.get(caller, {}).items() if not busy), None)

    @contextmanager
    def opening(self, caller: str) -> Iterator[Callable[[str], None]]:
        """A request is under way that may open one. What is yielded is called with the id of the one it opened:
        from then on that counts, and the request no more, though it may go on for a while.
        """
        with ExitStack() as request:
            self._opening[caller] += 1
            request.callback(self._has_opened, caller)

            def began(id: str) -> None:
                self._of.setdefault(caller, {}).setdefault(id, 0)
                request.close()

            yield began

    def _has_opened(self, caller: str) -> None:
        self._opening[caller] -= 1
        self._opening += Counter()  # without those at nought

    @contextmanager
    def using(self, caller: str, id: str) -> Iterator[None]:
        self._count(caller, id, 1)
        try:
            yield
        finally:
            self._count(caller, id, -1)

    def ended(self, caller: str, id: str) -> None:
        own = self._of.get(caller, {})
        own.pop(id, None)
        if not own:
            self._of.pop(caller, None)

    def _count(self, caller: str, id: str, more: int) -> None:
        own = self._of.get(caller, {})
        if id in own:
            own[id] = own.pop(id) + more


# Mail over streamable HTTP, as an ASGI app for `/mcp`.
#
# The web rim above knows who calls: it leaves a room that is bound to the caller in the scope of each request,
# under
# `postroom.room`. Host and Origin are checked here as well.

ROOM = "postroom.room"  # where the web rim leaves the caller's room
GONE = "postroom.gone"  # set when a request is over, however it ends
_SESSION, _VERSION = b"mcp-session-id", b"mcp-protocol-version"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_HOSTS = (*_LOOPBACK, *(f"{host}:*" for host in _LOOPBACK))
LOOPBACK_ORIGINS = (*(f"http://{host}" for host in _LOOPBACK), *(f"http://{host}:*" for host in _LOOPBACK))


class Calls(Protocol):
    """What carries out verbs: a desk, or callers' `Door`, which asks each time whether a token is still good."""

    async def call(self, principal: Principal, name: str, params: Mapping[str, Any], /) -> Any: ...


def asgi(
    executor: Calls,
    version: str,
    *,
    hosts: Sequence[str] = LOOPBACK_HOSTS,
    origins: Sequence[str] = LOOPBACK_ORIGINS,
    agent: str | None = None,
    scope: str | None = None,
    shelves: Sequence[Shelf] = (),
) -> App:
    """The app. It serves while its `running()` is entered. `agent`: who is meant when nobody is named."""

    def caller_of(ctx: ServerRequestContext[Any, Any]) -> Caller:
        left = ctx.request.scope  # type: ignore[union-attr] # over HTTP there always is a request
        principal = left[ROOM].principal
        call = partial(executor.call, principal)
        return Caller(call, agent=principal.agent, usual=agent, scope=scope, gone=left[GONE])

    manager = StreamableHTTPSessionManager(
        build(caller_of, version, *shelves),
        security_settings=TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=list(origins)),
        session_idle_timeout=IDLE,
        max_sessions=MOST,
    )
    return App(manager, Sessions(MOST_OF_ONE))


class App:
    """An ASGI app. A session belongs to whoever opened it: with another's token, it does not exist."""

    def __init__(self, manager: StreamableHTTPSessionManager, sessions: Sessions) -> None:
        self._manager = manager
        self._sessions = sessions

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        room: Room | None = scope.get(ROOM)
        if room is None:
            await _refuse(send, 401, "who are you?")
            return
        caller = f"{room.principal.name} {room.principal.token}"
        gone = asyncio.Event()
        user = AuthenticatedUser(AccessToken(token="", client_id=caller, scopes=[]))
        result = {**scope, "user": user, GONE: gone}
        try:
            await self._serve(caller, result, _watched(receive, gone), send)
        finally:
            gone.set()

    async def _serve(self, caller: str, scope: Scope, receive: Receive, send: Send) -> None:
        id = _header(scope, _SESSION)
        if id is not None:
            with self._sessions.using(caller, id):
                await self._manager.handle_request(
                    scope, receive, _noting(send, partial(self._used, caller, scope, id))
                )
        elif not _may_open(scope):
            await self._manager.handle_request(scope, receive, send)
        elif await self._has_room(caller, scope):
            with self._sessions.opening(caller) as began:
                await self._manager.handle_request(scope, receive, _noting(send, partial(_opened, began)))
        else:
            await _refuse(send, 429, "too many sessions of this token are in use; end one with DELETE")

    async def _has_room(self, caller: str, scope: Scope) -> bool:
        """For one more session of this caller. The one that was not used for longest makes room, if it is idle."""
        while self._sessions.is_full(caller):
            id = self._sessions.idlest(caller)
            if id is None:
                return False
            self._sessions.ended(caller, id)
            kept = [(name, value) for name, value in scope["headers"] if name in {b"host", b"origin"}]
            goodbye = {**scope, "method": "DELETE", "headers": [*kept, (_SESSION, id.encode("latin-1"))]}
            await self._manager.handle_request(goodbye, _nothing, _unheard)
        return True

    def _used(self, caller: str, scope: Scope, id: str, answer: Message) -> None:
        """Forget a session that the answer says is gone."""
        if answer["status"] == 404 or (scope["method"] == "DELETE" and answer["status"] < 400):
            self._sessions.ended(caller, id)


def _opened(began: Callable[[str], None], answer: Message) -> None:
    """Note the session that the answer names."""
    id = _header(answer, _SESSION)
    if id is not None and answer["status"] < 400:
        began(id)


def _noting(send: Send, note: Callable[[Message], None]) -> Send:
    """Show `note` the head of an answer before it is sent."""

    async def noted(message: Message) -> None:
        if message["type"] == "http.response.start":
            note(message)
        await send(message)

    return noted


def _header(params: Scope | Message, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in params["headers"] if key == name), None)


def _may_open(scope: Scope) -> bool:
    """Is this of the revision that has sessions?"""
    version = _header(scope, _VERSION)
    return scope["method"] == "POST" and (version is None or version in HANDSHAKE_PROTOCOL_VERSIONS)


async def _nothing() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(message: Message) -> None:
    """Nobody waits for this answer."""


def _watched(receive: Receive, gone: asyncio.Event) -> Receive:
    """The older revision goes on with a call whose client has hung up. Waiting for mail must not."""

    async def some() -> Message:
        message = await receive()
        if message["type"] == "http.disconnect":
            gone.set()
        return message

    return some


async def _refuse(send: Send, status: int, why: str) -> None:
    """In the words of JSON-RPC: a client that reads nothing else is told, too."""
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": encode(failure(INVALID_REQUEST, why))})
