"""Mail over streamable HTTP, as an ASGI app for `/mcp`.

The web rim above knows who calls: it leaves a room that is bound to the caller in the scope of each request, under
`postroom.room`. Host and Origin are checked here as well.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from .caller import Caller
from .server import build

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from mcp.server.context import ServerRequestContext
    from starlette.types import Message, Receive, Scope, Send

    from ..room import Room
    from ..service.authorize import Principal
    from .shelf import Shelf

ROOM = "postroom.room"  # where the web rim leaves the caller's room
GONE = "postroom.gone"  # set when a request is over, however it ends
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
LOOPBACK_HOSTS = (*_LOOPBACK, *(f"{host}:*" for host in _LOOPBACK))
LOOPBACK_ORIGINS = (*(f"http://{host}" for host in _LOOPBACK), *(f"http://{host}:*" for host in _LOOPBACK))


class Calls(Protocol):
    """What carries out verbs: a desk, or callers' `Door`, which asks each time whether a token is still good."""

    async def call(self, principal: Principal, name: str, said: Mapping[str, Any], /) -> Any: ...


def asgi(
    desk: Calls,
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
        call = partial(desk.call, principal)
        return Caller(call, agent=principal.agent, usual=agent, scope=scope, gone=left[GONE])

    manager = StreamableHTTPSessionManager(
        build(caller_of, version, *shelves),
        security_settings=TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=list(origins)),
    )
    return App(manager)


class App:
    """An ASGI app. A session belongs to whoever opened it: with another's token, it does not exist."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        room: Room | None = scope.get(ROOM)
        if room is None:
            await _refuse(send)
            return
        caller = room.principal
        token = AccessToken(token="", client_id=f"{caller.name} {caller.token}", scopes=[])
        gone = asyncio.Event()
        told = {**scope, "user": AuthenticatedUser(token), GONE: gone}
        try:
            await self._manager.handle_request(told, _watched(receive, gone), send)
        finally:
            gone.set()


def _watched(receive: Receive, gone: asyncio.Event) -> Receive:
    """The older revision goes on with a call whose client has hung up. Waiting for mail must not."""

    async def some() -> Message:
        message = await receive()
        if message["type"] == "http.disconnect":
            gone.set()
        return message

    return some


async def _refuse(send: Send) -> None:
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"who are you?\n"})
