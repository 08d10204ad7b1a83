"""Everything in one event loop, from the first line of the log to the last."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

from ..desk import Desk
from ..hub import Hub
from ..ipc.server import Server
from ..room import open as open_room
from .chores import keep_house
from .holding import Held
from .inbox_carrier import Carrier

if TYPE_CHECKING:
    from collections.abc import Callable

    from .options import Options

log = logging.getLogger("postroom")


async def serve(options: Options, told: Callable[[dict[str, Any]], None]) -> None:
    """Serve until SIGTERM or SIGINT. `told` hears once where everything listens."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        where = await _open(options, stack)
        log.info("the post room is open", extra=where)
        told(where)
        await stop.wait()
        log.info("closing")
    log.info("closed")


async def _open(options: Options, stack: AsyncExitStack) -> dict[str, Any]:
    """Start the parts, each with its end on the stack."""
    settings = options.settings
    room = open_room(settings.store, **_said(options))
    stack.callback(room.close)
    held = Held(settings.store)
    held.take()
    stack.callback(held.leave)
    desk = Desk(room)
    stack.push_async_callback(desk.close)
    hub = Hub(desk)
    stack.callback(hub.close)
    for path in options.sockets:
        server = Server(desk, hub, path)
        await server.start()
        stack.push_async_callback(server.stop)
    chores = asyncio.ensure_future(keep_house(desk))
    stack.push_async_callback(_end, chores)
    if options.inboxes:
        carrier = Carrier(desk, options.inboxes)
        stack.push_async_callback(_end, asyncio.ensure_future(carrier.run()))
    held.sign(f"process {os.getpid()} at {options.sockets[0]}")
    return {
        "pid": os.getpid(),
        "room": settings.store,
        "sockets": list(options.sockets),
        "inboxes": options.inboxes or None,
    }


def _said(options: Options) -> dict[str, Any]:
    """The settings as they were chosen, so that nothing is read twice."""
    names = options.settings.__struct_fields__
    return {name: getattr(options.settings, name) for name in names if name != "store"}


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
