"""What is done now and then while the post room is open: leases, expiry, retention, deadlines, the index."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import importlib
import logging
import os
import resource
import signal
import sys
import threading
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from .. import __version__
from ..core import peers, tokens
from ..core.authorize import OWNER
from ..core.presentation import harmless_json, one_line, visible
from ..errors import Invalid, NameTaken, PostroomError
from ..hosts.webhooks import Pusher
from ..map.server import MapServer
from ..model.codec import encode
from ..room import open as open_room
from ..server.broker import Broker
from ..server.callers import Door
from ..server.executor import Executor
from ..server.unix_socket import UnixServer
from ..store.address import place_of
from . import options as app_options
from .inbox_files import Carrier
from .options import OFF, OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from ..federation.exchange import Exchange
    from ..map.link import MapLink
    from ..server.http_server import HttpServer
    from .options import Options


log = logging.getLogger("postroom")
EVERY = 30.0  # seconds


async def keep_house(executor: Executor) -> None:
    """For ever. What goes wrong is logged, and tried again the next time."""
    while True:
        await asyncio.sleep(EVERY)
        try:
            await executor.run_slow(executor.room.sweep)
        except BaseException as failed:
            if not isinstance(failed, Exception):
                raise
            log.warning("the janitor could not finish: %s", failed, exc_info=not isinstance(failed, PostroomError))


# What is there only where its extra is installed: HTTP, MCP below it, a quick loop. Loaded as late as can be.

SERVE = 'pip install "postroom[serve]"'
MCP = 'pip install "postroom[mcp]"'
OURS = "postroom.mcp"


def run(main: Coroutine[Any, Any, None]) -> None:
    """In the quicker loop, where it is there: a letter over the socket takes a seventh less processor time."""
    factory = importlib.import_module("uvloop").new_event_loop if is_there("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


def web_server(
    executor: Executor, broker: Broker, options: Options, map_server: MapServer | None
) -> HttpServer | None:
    """The server that was asked for, not started. None: nobody asked, or it cannot be and nobody insisted."""
    if not options.host:
        return None
    if not (is_there("uvicorn") and is_there("websockets")):
        if options.is_asked:
            raise Invalid("HTTP needs more than is installed", field="http", hint=SERVE)
        log.warning("HTTP is off, the socket is on: %s", SERVE)
        return None
    _check_tokens(executor, options)
    from ..server.http_app import Mounted  # noqa: PLC0415 - uvicorn weighs as much as the rest of us
    from ..server.http_server import HttpServer, Place  # noqa: PLC0415

    place = Place(
        host=options.host,
        port=options.port,
        names=options.names,
        certificate=options.certificate,
        key=options.key,
    )

    def load() -> Any:
        return load_mcp(Door(executor, broker), server)

    server = HttpServer(executor, broker, place, Mounted(partial(executor.run_slow, load)), map_server)
    return server


def map_link(executor: Executor, options: Options) -> MapLink | None:
    """The link that was asked for, not begun. None: nobody asked."""
    if options.map_link is None:
        return None
    if not is_there("websockets"):
        raise Invalid("a link to a MAP server needs more than is installed", field="map-server", hint=SERVE)
    from ..map.link import MapLink  # noqa: PLC0415 - only where it is asked for

    return MapLink(executor, options.map_link)


def exchange(executor: Executor, options: Options) -> Exchange | None:
    """The exchange with other systems, not begun. None: what it needs is not installed, and nobody needs it."""
    if not is_there("websockets"):
        if peers.all_peers(executor.room._core):
            log.warning("mail for other systems waits, for there are no links: %s", SERVE)
        return None
    from ..federation.exchange import Exchange  # noqa: PLC0415 - only where it can be

    return Exchange(executor, options.certificate, options.key)


def load_mcp(door: Door, server: HttpServer) -> Any:
    """The app behind `/mcp`."""
    from ..server.http_app import NotHere  # noqa: PLC0415 - loaded by now

    if not has_mcp() or server.gate is None:
        raise NotHere("MCP needs more than is installed", hint=MCP)
    logging.getLogger("mcp").setLevel(logging.WARNING)  # else it tells whose session is which
    try:
        http = importlib.import_module(f"{OURS}.http")
    except ImportError as wrong:
        raise NotHere(f"what is installed does not do for MCP: {wrong}", hint=MCP) from wrong
    return http.asgi(door, __version__, hosts=sorted(server.gate.hosts), origins=sorted(server.gate.origins))


def has_mcp() -> bool:
    """Is the SDK there, and new enough? Before version 2 it has no `mcp_types`."""
    return is_there("mcp_types") and is_there(OURS)


def is_there(module: str) -> bool:
    return find_spec(module) is not None


def _check_tokens(executor: Executor, options: Options) -> None:
    """What can be reached from outside is not opened before somebody may come in."""
    if options.is_loopback:
        return
    core = executor.room._core
    has_tokens = any(token.is_live for token in tokens.everyone(core, OWNER))
    if not has_tokens and not peers.all_peers(core):
        text = f"{options.host} can be reached from outside, and nobody has a token"
        raise Invalid(text, field="http", hint="postroom token create, or peers add, then start again")


# Structured lines on stderr: one JSON object per line for programs, or plain text for people at a terminal.

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonLines(logging.Formatter):
    """What happened, when, and whatever was said beside it by `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        result = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        result |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            result["trace"] = self.formatException(record.exc_info)
        return harmless_json(encode({name: _plain(value) for name, value in result.items()})).decode()


class PlainLines(logging.Formatter):
    """The same for people. What others say in it moves no cursor and hides nothing."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as the library calls it
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - likewise
        return "\n".join(visible(line) for line in super().formatException(ei).splitlines())


def _plain(value: object) -> object:
    """What JSON can say. A name of a file may hold what is no text, a number may be too large."""
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value).encode("utf-8", "backslashreplace").decode()


def start(level: str) -> None:
    """Log to stderr, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty():
        handler.setFormatter(PlainLines("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    else:
        handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


# One daemon for a room. A lock file beside it says which.

_AT = " at "  # before the socket, in what is signed


def served_at(store: str) -> str | None:
    """The socket of the daemon that serves a room now, if one does."""
    place = place_of(store)
    if place is None:
        return None
    try:
        lock = os.open(f"{os.path.realpath(place)}.serving", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(lock, 4096, 0).decode("utf-8", "replace").partition(_AT)[2] or None
    finally:
        os.close(lock)
    return None


class Held:
    """The right to serve a room, while the daemon lives."""

    def __init__(self, store: str) -> None:
        place = place_of(store)
        self._path = None if place is None else f"{os.path.realpath(place)}.serving"
        self._lock = -1

    def take(self) -> None:
        """A room in memory is nobody else's."""
        if self._path is None:
            return
        lock = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            first = os.pread(lock, 4096, 0).decode("utf-8", "replace").strip() or "another process"
            os.close(lock)
            raise NameTaken(
                f"this room is served already, by {first}", field="room", hint="stop it first"
            ) from None
        self._lock = lock
        self.sign(f"process {os.getpid()}")  # in the place of one that was killed

    def sign(self, text: str) -> None:
        """Who serves it, and where, for the next who tries."""
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, text.encode(), 0)

    def leave(self) -> None:
        if self._lock >= 0:
            os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1


# Everything in one event loop, from the first line of the log to the last.

HANDLES = 8192
LONGEST_END = 1.4  # seconds from the signal, of two: a busy machine needs the rest. Then we go, whatever holds us
OFTEN = 20_000  # new objects, after which the collector looks; a thousand letters are about as many


class Rim(Protocol):
    """A way in."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


async def serve(options: Options, result: Callable[[dict[str, Any]], None]) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. `told` hears once where everything listens."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _ends():
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        where = await _open(options, stack)
        _keep_what_is_loaded()
        log.info("the post room is open", extra=where)
        result(where)
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


def _leave_if_busy(executor: Executor) -> None:
    """A thread may wait for somebody else's lock, or look through much mail. We do not wait with it, and the room
    is not closed under it: what it holds may be another's the moment after.
    """
    if not executor.is_idle:
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
    system = peers.system_id(room._core, OWNER, settings.system, gives_way=is_linked)
    if changed := app_options.apply(room._core, options.peers, system):
        log.info("peers are as their file says", extra={"file": options.peers or None, "changed": changed})
    executor = Executor(room)
    stack.callback(_leave_if_busy, executor)
    stack.push_async_callback(executor.close)
    broker = Broker(executor)
    stack.callback(broker.close)
    map_server = None if options.map == OFF else MapServer(executor, broker, is_open=options.map == OPEN)
    if map_server is not None:
        stack.callback(map_server.close)
    links = exchange(executor, options)
    if map_server is not None:
        map_server.exchange = links
    executor.links = links
    rims: list[Rim] = []
    stack.push_async_callback(_stop, rims, map_server)
    for path in options.sockets:
        rims.append(UnixServer(executor, broker, path, map_server))
        await rims[-1].start()
    web = web_server(executor, broker, options, map_server)
    if web is not None:
        rims.append(web)
        await web.start()
        if links is not None:
            links.admit = web.admit
    executor.counters.connections["socket"] = lambda: sum(
        len(r.connections) for r in rims if isinstance(r, UnixServer)
    )
    chores = asyncio.ensure_future(keep_house(executor))
    stack.push_async_callback(_end, chores)
    stack.push_async_callback(_end, asyncio.ensure_future(Pusher(executor).run()))
    if options.inboxes:
        carrier = Carrier(executor, options.inboxes)
        stack.push_async_callback(_end, asyncio.ensure_future(carrier.run()))
    link = map_link(executor, options)
    if link is not None:
        executor.counters.connections["map_link"] = lambda: int(link.is_up)
        broker.listeners.append(link.emitted)
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


async def _stop(rims: Sequence[Rim], map_server: MapServer | None) -> None:
    """All at once: each gives what is under way a moment."""
    if map_server is not None:
        map_server.is_ending = True
    ended = await asyncio.gather(*(rim.stop() for rim in rims), return_exceptions=True)
    for wrong in (end for end in ended if isinstance(end, BaseException)):
        raise wrong


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
