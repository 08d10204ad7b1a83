"""Inboxes, threads and messages as MCP resources: reading them marks nothing, and clients may watch them.

`Watches` sends the change notifications of both revisions: `resources/subscribe` of 2025, `subscriptions/listen`
of 2026. A notification is a hint: the client reads again. Nothing is replayed, and a burst of mail may give one
notification.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import anyio
import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp.shared.exceptions import MCPError

from ..errors import Busy, PostroomError, Resync
from .tools import message, messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import TaskGroup
    from mcp.server.connection import Connection
    from mcp.server.context import ServerRequestContext

    from .mail import Changed, Provider, Watch
    from .tools import Caller


MAX_LETTERS = 100  # in one answer
WAIT_SECONDS = 50.0  # of one wait; the next begins where it ended
RETRY_SECONDS = 5.0  # before another try while the server is away


class Template(NamedTuple):
    """A kind of resource."""

    uri: str
    name: str
    about: str


TEMPLATES = (
    Template("inbox://{agent}", "inbox", "The unread mail of an agent, as messages. Changes when mail comes."),
    Template("thread://{id}", "thread", "All messages of a thread that you sent or got. Changes when one comes."),
    Template("message://{id}", "message", "One message, its recipients and replies. Changes when a reply comes."),
)  # fmt: skip
_URI = re.compile(r"(inbox|thread|message)://([^?#]+)")


class Target(NamedTuple):
    """The object that a URI names."""

    kind: str  # inbox, thread or message
    id: str


def parse_uri(uri: str) -> Target | None:
    """Return what a URI names; None if it is not a URI of ours."""
    found = _URI.fullmatch(uri)
    return Target(found[1], unquote(found[2]).removesuffix("/")) if found else None


async def read_target(caller: Caller, target: Target) -> dict[str, Any]:
    """Return the content of a resource, without marking anything as read."""
    if target.kind == "inbox":
        params = {"agent_id": target.id, "peek": True, "limit": MAX_LETTERS}
        return messages((await caller.call("check", params))["letters"], agentId=target.id)
    me = caller.agent_or_default(None)
    if target.kind == "thread":
        found = await caller.call("thread", {"agent_id": me, "thread": target.id})
        return messages(found["letters"], thread=target.id)
    life = await caller.call("trace", {"agent_id": me, "message_id": target.id})
    stops = [{"agentId": stop["mailbox"], "state": stop["state"]} for stop in life["stops"]]
    return message(life["letter"]) | {"recipients": stops, "replies": [message(one) for one in life["replies"]]}


async def watch_target(caller: Caller, target: Target) -> Watch:
    """Return a function that reports new mail there, from this moment on."""
    params = await _wanted(caller, target)
    since = await _now(caller, params["agent_id"])
    await caller.call("wait", {**params, "since": since, "timeout": 0})  # raises if the caller may not watch it

    async def run(changed: Changed) -> None:
        at = since
        while True:
            at = await _next(caller, params, at, changed)

    return run


async def _next(caller: Caller, params: dict[str, Any], at: str, changed: Changed) -> str:
    """Wait once for mail, report it, and return the cursor to go on from. The cursor is taken before reporting, so
    that a burst is reported once.
    """
    try:
        found = await caller.call("wait", {**params, "since": at, "timeout": WAIT_SECONDS})
    except Resync:  # the room was restored meanwhile
        found = {"letter": True}
    except Busy:  # the server behind the socket restarts
        await asyncio.sleep(RETRY_SECONDS)
        return at
    if not found["letter"]:
        return str(found["cursor"])
    now = await _now(caller, params["agent_id"])
    await changed()
    return now


async def _wanted(caller: Caller, target: Target) -> dict[str, Any]:
    if target.kind == "inbox":
        return {"agent_id": target.id, "peek": True}
    me, thread = caller.agent_or_default(None), target.id
    if target.kind == "message":
        thread = (await caller.call("trace", {"agent_id": me, "message_id": target.id}))["letter"]["thread"]
    return {"agent_id": me, "peek": True, "thread": thread}


async def _now(caller: Caller, agent: str) -> str:
    return str((await caller.call("cursor", {"agent_id": agent}))["cursor"])


if TYPE_CHECKING:
    Ctx = ServerRequestContext[TaskGroup, Any]

MAX_WATCHES = 64  # of one client
_STATE_KEY = "postroom.watches"
_log = logging.getLogger(__name__)


class Watches:
    """The resources that clients watch. Each watch has the rights of its client, and ends with the session."""

    def __init__(self, providers: Sequence[Provider]) -> None:
        self._providers = providers

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

    async def _watch(self, ctx: Ctx, uri: str) -> Watch | None:
        for provider in self._providers:
            if (watch := await provider.watch(ctx, uri)) is not None:
                return watch
        return None


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
