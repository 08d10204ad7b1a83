"""Everything in one event loop, from the first line of the log to the last."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import threading
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Protocol

from .. import service
from ..desk import Desk
from ..hub import Hub
from ..ipc.server import Server
from ..map_server.reception import Reception
from ..push.pusher import Pusher
from ..room import open as open_room
from ..service.authorize import OWNER
from . import peers_file
from .chores import keep_house
from .extras import exchange, has_mcp, map_link, web_server
from .holding import Held
from .inbox_carrier import Carrier
from .options import OFF, OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .options import Options

log = logging.getLogger("postroom")
HANDLES = 8192
LONGEST_END = 1.4  # seconds from the signal, of two: a busy machine needs the rest. Then we go, whatever holds us
OFTEN = 20_000  # new objects, after which the collector looks; a thousand letters are about as many


class Rim(Protocol):
    """A way in."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


async def serve(options: Options, told: Callable[[dict[str, Any]], None]) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. `told` hears once where everything listens."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _ends():
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        where = await _open(options, stack)
        _keep_what_is_loaded()
        log.info("the post room is open", extra=where)
        told(where)
        await stop.wait()
        log.info("closing")
        end = threading.Timer(LONGEST_END, _leave)
        end.daemon = True
        end.start()
    end.cancel()
    log.info("closed")


def _ends() -> list[signal.Signals]:
    """The signals that end us. A terminal that is closed is one, unless somebody said that it is none (nohup)."""
    hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hung_up]


def _leave() -> None:
    """What is still under way was promised to nobody."""
    log.warning("left with something under way that was not answered")
    os._exit(0)


def _leave_if_busy(desk: Desk) -> None:
    """A thread may wait for somebody else's lock, or look through much mail. We do not wait with it, and the room
    is not closed under it: what it holds may be another's the moment after.
    """
    if not desk.is_idle:
        _leave()


async def _open(options: Options, stack: AsyncExitStack) -> dict[str, Any]:
    """Start the parts, each with its end on the stack."""
    settings = options.settings
    _take_handles()
    room = open_room(settings.store, **_said(options))
    room._default_scope = options.scope
    stack.callback(room.close)
    held = Held(settings.store)
    held.take()
    stack.callback(held.leave)
    is_linked = options.map_link is not None
    system = service.identity.system_id(room._office, OWNER, settings.system, gives_way=is_linked)
    if changed := peers_file.apply(room._office, options.peers, system):
        log.info("peers are as their file says", extra={"file": options.peers or None, "changed": changed})
    desk = Desk(room)
    stack.callback(_leave_if_busy, desk)
    stack.push_async_callback(desk.close)
    hub = Hub(desk)
    stack.callback(hub.close)
    reception = None if options.map == OFF else Reception(desk, hub, is_open=options.map == OPEN)
    if reception is not None:
        stack.callback(reception.close)
    links = exchange(desk, options)
    if reception is not None:
        reception.exchange = links
    desk.links = links
    rims: list[Rim] = []
    stack.push_async_callback(_stop, rims, reception)
    for path in options.sockets:
        rims.append(Server(desk, hub, path, reception))
        await rims[-1].start()
    web = web_server(desk, hub, options, reception)
    if web is not None:
        rims.append(web)
        await web.start()
        if links is not None:
            links.admit = web.admit
    desk.counters.connections["socket"] = lambda: sum(len(r.connections) for r in rims if isinstance(r, Server))
    chores = asyncio.ensure_future(keep_house(desk))
    stack.push_async_callback(_end, chores)
    stack.push_async_callback(_end, asyncio.ensure_future(Pusher(desk).run()))
    if options.inboxes:
        carrier = Carrier(desk, options.inboxes)
        stack.push_async_callback(_end, asyncio.ensure_future(carrier.run()))
    link = map_link(desk, options)
    if link is not None:
        desk.counters.connections["map_link"] = lambda: int(link.is_up)
        hub.listeners.append(link.emitted)
        stack.push_async_callback(_end, asyncio.ensure_future(link.run()))
    if links is not None:
        stack.push_async_callback(_end, asyncio.ensure_future(links.run()))
    held.sign(f"process {os.getpid()} at {options.sockets[0]}")  # as `served_at` reads it
    return _where(options, system, web.url if web is not None else None)


def _where(options: Options, system: str, url: str | None) -> dict[str, Any]:
    """Where everything listens."""
    return {
        "pid": os.getpid(),
        "room": options.settings.store,
        "system": system,
        "sockets": list(options.sockets),
        "http": url,
        "mcp": f"{url}/mcp" if url is not None and has_mcp() else None,
        "map": _map_url(url) if url is not None and options.map != OFF else None,
        "inboxes": options.inboxes or None,
        "map_link": options.map_link.server if options.map_link is not None else None,
    }


def _map_url(url: str) -> str:
    return url.replace("http", "ws", 1) + "/map"


def _keep_what_is_loaded() -> None:
    """What was loaded stays: the collector of garbage need not look at it again, nor after every few letters."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(OFTEN, 10, 10)


def _take_handles() -> None:
    """As many handles as we may have, up to what we need: a connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = HANDLES if hard == resource.RLIM_INFINITY else min(HANDLES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _said(options: Options) -> dict[str, Any]:
    """The settings as they were chosen, so that nothing is read twice."""
    names = options.settings.__struct_fields__
    return {name: getattr(options.settings, name) for name in names if name != "store"}


async def _stop(rims: Sequence[Rim], reception: Reception | None) -> None:
    """All at once: each gives what is under way a moment."""
    if reception is not None:
        reception.is_ending = True
    ended = await asyncio.gather(*(rim.stop() for rim in rims), return_exceptions=True)
    for wrong in (end for end in ended if isinstance(end, BaseException)):
        raise wrong


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
