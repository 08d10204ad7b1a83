"""Change notifications of both revisions: `resources/subscribe` of 2025, `subscriptions/listen` of 2026.

A notification is a hint: who gets it reads again. Nothing is replayed, and a burst of mail may be told once.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from ..errors import PostroomError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext

    from .shelf import Changed, Shelf, Watch

    Ctx = ServerRequestContext[TaskGroup, Any]

MOST_WATCHES = 64  # of one client
_OURS = "postroom.watches"
_log = logging.getLogger(__name__)


class Watching:
    """Who watches what. Each watch asks with the rights of whoever subscribed, and ends with the session."""

    def __init__(self, shelves: Sequence[Shelf]) -> None:
        self._shelves = shelves

    async def subscribe(self, ctx: Ctx, params: types.SubscribeRequestParams) -> types.EmptyResult:
        uri = str(params.uri)
        connection = _connection(ctx)
        watches = _watches(connection)
        if uri not in watches:
            _check_room(len(watches) + 1)
            watch = await self._watch(ctx, uri)
            if watch is None:
                raise MCPError(types.INVALID_PARAMS, "there is no such resource", {"uri": uri})
            watches[uri] = scope = anyio.CancelScope()
            tell = partial(connection.send_resource_updated, uri)
            ctx.lifespan_context.start_soon(_run, watch, tell, scope)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Ctx, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        scope = _watches(_connection(ctx)).pop(str(params.uri), None)
        if scope is not None:
            scope.cancel()
        return types.EmptyResult()

    async def listen(
        self, ctx: Ctx, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """One stream. Its bus is its own: what one client may watch is no other's business."""
        bus = InMemorySubscriptionBus()
        uris = dict.fromkeys(params.notifications.resource_subscriptions or ())
        _check_room(len(uris))
        watches = {uri: await self._watch(ctx, uri) for uri in uris}
        async with anyio.create_task_group() as tasks:
            for uri, watch in watches.items():
                if watch is not None:
                    tell = partial(bus.publish, ResourceUpdated(uri))
                    tasks.start_soon(_run, watch, tell, anyio.CancelScope())
            result = await ListenHandler(bus)(ctx, params)
            tasks.cancel_scope.cancel()
        return result

    async def _watch(self, ctx: Ctx, uri: str) -> Watch | None:
        for shelf in self._shelves:
            if (watch := await shelf.watch(ctx, uri)) is not None:
                return watch
        return None


async def _run(watch: Watch, tell: Changed, scope: anyio.CancelScope) -> None:
    with scope:
        try:
            await watch(tell)
        except PostroomError as error:  # it can be subscribed to again
            _log.warning("stopped watching: %s", error)


def _check_room(many: int) -> None:
    if many > MOST_WATCHES:
        raise MCPError(types.INVALID_PARAMS, f"at most {MOST_WATCHES} resources can be watched at once")


def _connection(ctx: Ctx) -> Connection:
    """The SDK gives handlers no other way to what lasts as long as the client's connection."""
    return ctx.session._connection  # noqa: SLF001


def _watches(connection: Connection) -> dict[str, anyio.CancelScope]:
    """The watches of a connection; they end with it."""
    if _OURS not in connection.state:
        watches: dict[str, anyio.CancelScope] = {}
        connection.state[_OURS] = watches
        connection.exit_stack.callback(_end, watches)
    found: dict[str, anyio.CancelScope] = connection.state[_OURS]
    return found


def _end(watches: dict[str, anyio.CancelScope]) -> None:
    for scope in watches.values():
        scope.cancel()
