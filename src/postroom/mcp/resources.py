"""Inboxes, threads and messages as resources: to read without marking anything, and to watch."""

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

    from .mail import Changed, Shelf, Watch
    from .tools import Caller


MOST = 100  # letters in one answer
PAUSE = 50.0  # seconds of one wait; the next begins where it ended
TROUBLE = 5.0  # seconds before it is tried again


class Template(NamedTuple):
    """A row of the table."""

    uri: str
    name: str
    about: str


TEMPLATES = (
    Template("inbox://{agent}", "inbox", "The unread mail of an agent, as messages. Changes when mail comes."),
    Template("thread://{id}", "thread", "All messages of a thread that you sent or got. Changes when one comes."),
    Template("message://{id}", "message", "One message, its recipients and replies. Changes when a reply comes."),
)  # fmt: skip
_URI = re.compile(r"(inbox|thread|message)://([^?#]+)")


class Place(NamedTuple):
    kind: str
    id: str


def target(uri: str) -> Place | None:
    """What a URI names. None: it is not ours."""
    found = _URI.fullmatch(uri)
    return Place(found[1], unquote(found[2]).removesuffix("/")) if found else None


async def look(caller: Caller, place: Place) -> dict[str, Any]:
    """Read it; nothing is marked."""
    if place.kind == "inbox":
        params = {"agent_id": place.id, "peek": True, "limit": MOST}
        return messages((await caller.call("check", params))["letters"], agentId=place.id)
    me = caller.who(None)
    if place.kind == "thread":
        found = await caller.call("thread", {"agent_id": me, "thread": place.id})
        return messages(found["letters"], thread=place.id)
    life = await caller.call("trace", {"agent_id": me, "message_id": place.id})
    stops = [{"agentId": stop["mailbox"], "state": stop["state"]} for stop in life["stops"]]
    return message(life["letter"]) | {"recipients": stops, "replies": [message(one) for one in life["replies"]]}


async def follow(caller: Caller, place: Place) -> Watch:
    """What tells of new mail there, from this moment on."""
    params = await _wanted(caller, place)
    since = await _now(caller, params["agent_id"])
    await caller.call("wait", {**params, "since": since, "timeout": 0})  # may it be watched at all?

    async def run(changed: Changed) -> None:
        at = since
        while True:
            at = await _next(caller, params, at, changed)

    return run


async def _next(caller: Caller, params: dict[str, Any], at: str, changed: Changed) -> str:
    """One bounded wait. A cursor taken before telling covers all that came until then: a burst is told once."""
    try:
        found = await caller.call("wait", {**params, "since": at, "timeout": PAUSE})
    except Resync:  # the room was restored meanwhile
        found = {"letter": True}
    except Busy:  # a daemon that is away comes back
        await asyncio.sleep(TROUBLE)
        return at
    if not found["letter"]:
        return str(found["cursor"])
    now = await _now(caller, params["agent_id"])
    await changed()
    return now


async def _wanted(caller: Caller, place: Place) -> dict[str, Any]:
    if place.kind == "inbox":
        return {"agent_id": place.id, "peek": True}
    me, thread = caller.who(None), place.id
    if place.kind == "message":
        thread = (await caller.call("trace", {"agent_id": me, "message_id": place.id}))["letter"]["thread"]
    return {"agent_id": me, "peek": True, "thread": thread}


async def _now(caller: Caller, agent: str) -> str:
    return str((await caller.call("cursor", {"agent_id": agent}))["cursor"])


# Change notifications of both revisions: `resources/subscribe` of 2025, `subscriptions/listen` of 2026.
#
# A notification is a hint: who gets it reads again. Nothing is replayed, and a burst of mail may be told once.

if TYPE_CHECKING:
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
