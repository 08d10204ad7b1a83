"""Change notifications of resources, in both revisions.

`resources/subscribe` belongs to that of 2025, `subscriptions/listen` to that of 2026.
A notification is a hint: the client reads again. Nothing is replayed, and a burst of mail may give one
notification.
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
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext

    from .resources import Changed, Watch

    Ctx = ServerRequestContext[TaskGroup, Any]


MAX_WATCHES = 64  # of one client
_STATE_KEY = "postroom.watches"
_log = logging.getLogger(__name__)


class Watches:
    """The resources that clients watch. Each watch has the rights of its client, and ends with the session."""

    def __init__(self, watch: Callable[[Ctx, str], Awaitable[Watch | None]]) -> None:
        self._watch = watch  # returns a function that reports changes of a resource from this moment on

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
            changed = partial(connection.send_resource_updated, uri)
            ctx.lifespan_context.start_soon(_run, watch, changed, scope)
        return types.EmptyResult()

    async def unsubscribe(self, ctx: Ctx, params: types.UnsubscribeRequestParams) -> types.EmptyResult:
        scope = _watches(_connection(ctx)).pop(str(params.uri), None)
        if scope is not None:
            scope.cancel()
        return types.EmptyResult()

    async def listen(
        self, ctx: Ctx, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Serve one stream. Each has a bus of its own, so that no client gets what another may watch."""
        bus = InMemorySubscriptionBus()
        uris = dict.fromkeys(params.notifications.resource_subscriptions or ())
        _check_room(len(uris))
        watches = {uri: await self._watch(ctx, uri) for uri in uris}
        async with anyio.create_task_group() as tasks:
            for uri, watch in watches.items():
                if watch is not None:
                    changed = partial(bus.publish, ResourceUpdated(uri))
                    tasks.start_soon(_run, watch, changed, anyio.CancelScope())
            result = await ListenHandler(bus)(ctx, params)
            tasks.cancel_scope.cancel()
        return result


async def _run(watch: Watch, changed: Changed, scope: anyio.CancelScope) -> None:
    with scope:
        try:
            await watch(changed)
        except PostroomError as error:  # the client can subscribe again
            _log.warning("stopped watching: %s", error)


def _check_room(many: int) -> None:
    if many > MAX_WATCHES:
        raise MCPError(types.INVALID_PARAMS, f"at most {MAX_WATCHES} resources can be watched at once")


def _connection(ctx: Ctx) -> Connection:
    """Return the client's connection: the SDK gives handlers no other way to state that lasts as long."""
    return ctx.session._connection  # noqa: SLF001 - the SDK has no public name for it


def _watches(connection: Connection) -> dict[str, anyio.CancelScope]:
    """Return the watches of a connection; they end with it."""
    if _STATE_KEY not in connection.state:
        watches: dict[str, anyio.CancelScope] = {}
        connection.state[_STATE_KEY] = watches
        connection.exit_stack.callback(_end, watches)
    found: dict[str, anyio.CancelScope] = connection.state[_STATE_KEY]
    return found


def _end(watches: dict[str, anyio.CancelScope]) -> None:
    for scope in watches.values():
        scope.cancel()
