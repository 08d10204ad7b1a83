"""`postroom serve`: opens the room, starts everything that serves it in one event loop, and stops it in order.

`serve` is the whole life of a server, `_open` starts its parts. One server serves a room: it holds
its lock file (`lock_room`). HTTP, MCP and the faster event loop are there only if their extra is installed, and
are imported late.
"""

from __future__ import annotations

import asyncio
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .. import __version__
from ..clock import SystemClock
from ..core import peers, tokens
from ..core.authorize import OWNER
from ..core.presentation import escape_json, one_line, show_hidden
from ..core.retention import SweepRoom
from ..core.verb import perform
from ..environment import how_to_install
from ..errors import Invalid, NameTaken, PostroomError
from ..hosts.inbox_files import InboxFileWriter
from ..hosts.webhooks import WebhookService
from ..map.server import MapServer
from ..mcp import prompts, resources  # noqa: F401 - their verbs are what an MCP server on the socket asks for
from ..model.codec import encode
from ..own_file import LockFile
from ..room import open_with
from ..server.broker import Broker
from ..server.callers import PrincipalCalls
from ..server.executor import Executor, stay_on_one_processor
from ..server.http_app import AppMissing, MountedApp
from ..server.tls import fingerprint_of_pem
from ..server.unix_socket import UnixServer
from ..store.address import AT, lock_path
from . import options as app_options
from .options import OFF, OPEN

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from ..core.core import Core
    from ..federation.exchange import Exchange
    from ..map.link import MapLink
    from ..server.http_server import HttpServer
    from ..server.visits import Visits
    from .options import Options


log = logging.getLogger("postroom")
SWEEP_SECONDS = 30.0  # between two rounds of the janitor


async def run_janitor(executor: Executor) -> None:
    """Sweep the room for ever: leases, expiry, retention, deadlines. Failures are logged, and tried again."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        try:
            await executor.run_slow(partial(perform, executor.core, OWNER, SweepRoom()))
        except Exception as failed:  # boundary: the janitor goes on whatever happens
            log.warning("the janitor could not finish: %s", failed, exc_info=not isinstance(failed, PostroomError))


# -- optional parts, imported late

MCP_PACKAGE = "postroom.mcp"


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run in uvloop if it is installed: a letter over the socket takes a seventh less processor time."""
    factory = importlib.import_module("uvloop").new_event_loop if is_installed("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


async def make_http_server(
    executor: Executor, broker: Broker, options: Options, map_server: MapServer | None
) -> HttpServer | None:
    """Return the HTTP server, not started. None if it is off, or by default if its packages are not installed."""
    if not options.host:
        return None
    if not (is_installed("uvicorn") and is_installed("websockets")):
        if options.is_asked:
            raise Invalid("HTTP needs packages that are not installed", field="http", hint=how_to_install("serve"))
        log.warning("HTTP is off, the socket is on: %s", how_to_install("serve"))
        return None
    await executor.read(_check_tokens, executor.core, options)
    from ..server.http_server import HttpServer  # noqa: PLC0415 - uvicorn is as large as all the rest

    def load() -> Any:
        return load_mcp(PrincipalCalls(executor, broker), server)

    server = HttpServer(executor, broker, options, MountedApp(partial(executor.run_slow, load)), map_server)
    return server


def make_map_link(executor: Executor, options: Options) -> MapLink | None:
    """Return the link to a MAP server, not started; None if none is wanted."""
    if options.map_link is None:
        return None
    if not is_installed("websockets"):
        raise Invalid(
            "a link to a MAP server needs packages that are not installed",
            field="map-server",
            hint=how_to_install("serve"),
        )
    from ..map.link import MapLink  # noqa: PLC0415 - only where it is wanted

    return MapLink(executor, options.map_link)


def make_exchange(executor: Executor, options: Options) -> Exchange | None:
    """Return the exchange with other systems, not started; None if its packages are not installed."""
    if not is_installed("websockets"):
        if peers.all_peers(executor.core):
            log.warning("mail for other systems waits: links need %s", how_to_install("serve"))
        return None
    from ..federation.exchange import Exchange  # noqa: PLC0415 - only where websockets is installed

    return Exchange(executor, options.certificate, options.key)


def load_mcp(calls: PrincipalCalls, server: HttpServer) -> Any:
    """Return the app behind `/mcp`."""
    if not has_mcp() or server.auth is None:
        raise AppMissing("MCP needs packages that are not installed", hint=how_to_install("mcp"))
    logging.getLogger("mcp").setLevel(logging.WARNING)  # else it logs which session is whose
    try:
        http = importlib.import_module(f"{MCP_PACKAGE}.http")
    except ImportError as wrong:
        raise AppMissing(
            f"the packages that are installed do not work for MCP: {wrong}", hint=how_to_install("mcp")
        ) from wrong
    return http.asgi(calls, __version__, hosts=sorted(server.auth.hosts), origins=sorted(server.auth.origins))


def has_mcp() -> bool:
    """Return whether the SDK is installed, and new enough: before version 2 it has no `mcp_types`."""
    return is_installed("mcp_types") and is_installed(MCP_PACKAGE)


def is_installed(module: str) -> bool:
    return find_spec(module) is not None


def _check_tokens(core: Core, options: Options) -> None:
    """Refuse to listen at an address that other machines can reach while no token and no peer exists."""
    if options.is_loopback:
        return
    has_tokens = any(token.is_live for token in tokens.ListTokens().run(core, OWNER))
    if not has_tokens and not peers.all_peers(core):
        raise Invalid(
            f"{options.host} can be reached from outside, and no token exists",
            field="http",
            hint="postroom tokens create, or peers add, then start again",
        )


# -- the log on stderr: one JSON object per line, or plain text at a terminal

_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class JsonFormatter(logging.Formatter):
    """A log record as one JSON object, with the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return escape_json(encode({name: _plain(value) for name, value in fields.items()})).decode()


class TextFormatter(logging.Formatter):
    """A log record as text. Control characters that others put into it are made visible."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the library's name
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the library's name
        return "\n".join(show_hidden(line) for line in super().formatException(ei).splitlines())


def _plain(value: object) -> object:
    """Return a value as JSON can hold it: the name of a file may not be text, a number may be too large."""
    if isinstance(value, bool | float | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value).encode("utf-8", "backslashreplace").decode()


def start(level: str) -> None:
    """Log to stderr, from this level on."""
    handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty():
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    else:
        handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


# -- one server for a room


def lock_room(store: str) -> LockFile:
    """Lock the room for the server that is to serve it. One in memory needs none: its lock is never held."""
    path = lock_path(store)
    if path is not None:  # of a room on a server, no folder was made yet
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    lock = LockFile(path or "")
    if path is not None and (first := lock.take()) is not None:
        raise NameTaken(f"this room is served already, by {first}", field="room", hint="stop it first")
    lock.write(f"process {os.getpid()}")
    return lock


# -- starting and stopping

MAX_FILES = 8192  # open files
STOP_SECONDS = 1.4  # from the signal until the process exits, whatever is under way; of 2 that users are promised
GC_THRESHOLD = 20_000  # new objects after which the garbage collector runs; about a thousand letters


# While one thread computes, another gets the interpreter after so many seconds. Each call to SQLite gives it up:
# with Python's 5 ms, a small letter would wait so long at each of them while the loop's thread parses a flood.
SWITCH_SECONDS = 0.0005


async def serve(options: Options, on_ready: Callable[[dict[str, Any], Visits], None]) -> None:
    """Serve until SIGTERM, SIGINT or SIGHUP. `on_ready` is called once with the addresses of all parts."""
    sys.setswitchinterval(SWITCH_SECONDS)
    stay_on_one_processor()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _stop_signals():
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        addresses, visits = await _open(options, stack)
        _freeze_garbage_collector()
        log.info("the post room is open", extra=addresses)
        on_ready(addresses, visits)
        await stop.wait()
        log.info("closing")
        # In a thread, so that it also ends a process whose event loop is blocked.
        end = threading.Timer(STOP_SECONDS, _exit_now)
        end.daemon = True
        end.start()
    end.cancel()
    log.info("closed")


def _stop_signals() -> list[signal.Signals]:
    """Return the signals that stop the server. SIGHUP is one, unless it is ignored (nohup)."""
    hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hung_up]


def _exit_now() -> None:
    """Exit at once. Calls still under way were not answered, so nothing was promised."""
    log.warning("exited with calls under way that were not answered")
    os._exit(0)


def _exit_if_busy(executor: Executor) -> None:
    """Exit at once if a thread is still at work: it may wait for a lock of another process, or read much mail.

    The room must not be closed meanwhile: a descriptor that the thread uses could then belong to another file.
    """
    if not executor.is_idle:
        _exit_now()


async def _open(options: Options, stack: AsyncExitStack) -> tuple[dict[str, Any], Visits]:
    """Start all parts, put the end of each on the stack; return their addresses and the dashboard's visits.

    They end in reverse order.
    """
    settings = options.settings
    _raise_file_limit()
    room = open_with(settings, SystemClock())  # with settings that were read already
    room.core = replace(room.core, default_scope=options.scope)
    stack.callback(room.close)
    room_lock = lock_room(settings.store)
    stack.callback(room_lock.leave)
    system = peers.system_id(room.core, gives_way=True)
    if changed := app_options.apply(room.core, options.peers, system):
        log.info("peers are as their file says", extra={"file": options.peers or None, "changed": changed})
    executor = Executor(room.core)
    # The stack unwinds in reverse order: this runs after `executor.close`, before the room is closed.
    stack.callback(_exit_if_busy, executor)
    stack.push_async_callback(executor.close)
    await executor.open_store()
    broker = Broker(executor)
    stack.callback(broker.close)
    map_server = None if options.map == OFF else MapServer(executor, broker, is_open=options.map == OPEN)
    if map_server is not None:
        stack.callback(map_server.close)
    links = make_exchange(executor, options)
    if map_server is not None:
        map_server.exchange = links
    executor.links = links
    transports: list[UnixServer | HttpServer] = []
    stack.push_async_callback(_stop, transports, map_server)
    for path in options.sockets:
        transports.append(UnixServer(executor, broker, path, map_server))
        await transports[-1].start()
    http_server = await make_http_server(executor, broker, options, map_server)
    if http_server is not None:
        transports.append(http_server)
        await http_server.start()
        if links is not None:
            links.admit = http_server.admit
            links.address = _address_for_peers(options, http_server.url)
    executor.counters.connections["socket"] = lambda: sum(
        len(server.connections) for server in transports if isinstance(server, UnixServer)
    )
    _start(stack, run_janitor(executor), WebhookService(executor).run(), broker.history.run())
    if options.inboxes:
        writer = InboxFileWriter(
            executor, options.inboxes, is_kept=not options.settings.store.startswith("memory:")
        )
        _start(stack, writer.run())
    link = make_map_link(executor, options)
    if link is not None:
        executor.counters.connections["map_link"] = lambda: int(link.is_up)
        broker.listeners.append(link.emitted)
        _start(stack, link.run())
    if links is not None:
        _start(stack, links.run())
    room_lock.write(f"process {os.getpid()}{AT}{options.sockets[0]}")
    return _addresses(options, system, http_server.url if http_server is not None else None), executor.visits


def _address_for_peers(options: Options, url: str) -> dict[str, str]:
    """Return where peers reach us, for invitations: the address, and the fingerprint of our certificate."""
    if options.map == OFF or (not options.names and options.host in {"0.0.0.0", "::"}):  # noqa: S104 - compared only
        return {}  # nobody here knows under which name this machine is reached
    host, _, port = url.partition("://")[2].rpartition(":")
    place = options.names[0] if options.names else host
    pin = fingerprint_of_pem(Path(options.certificate).read_text(encoding="utf-8")) if options.certificate else ""
    has_port = place.rpartition(":")[2].isdigit()
    return {
        "url": f"{'wss' if pin else 'ws'}://{place if has_port else f'{place}:{port}'}/map",
        "pin": pin,
    }


def _addresses(options: Options, system: str, url: str | None) -> dict[str, Any]:
    """Return the addresses of all parts, as the log and `postroom serve --json` show them."""
    return {
        "pid": os.getpid(),
        "room": options.settings.store,
        "system": system,
        "sockets": list(options.sockets),
        "http": url,
        "mcp": f"{url}/mcp" if url is not None and has_mcp() else None,
        "dashboard": f"{url}/dashboard/" if url is not None else None,
        "map": url.replace("http", "ws", 1) + "/map" if url is not None and options.map != OFF else None,
        "inboxes": options.inboxes or None,
        "map_link": options.map_link.server if options.map_link is not None else None,
    }


def _freeze_garbage_collector() -> None:
    """Exempt what was imported from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)


def _raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed, up to MAX_FILES: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(MAX_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _stop(transports: Sequence[UnixServer | HttpServer], map_server: MapServer | None) -> None:
    """Stop all transports at once: each gives calls under way some time."""
    if map_server is not None:
        map_server.is_ending = True
    ended = await asyncio.gather(*(transport.stop() for transport in transports), return_exceptions=True)
    for wrong in (end for end in ended if isinstance(end, BaseException)):
        raise wrong


def _start(stack: AsyncExitStack, *chores: Coroutine[Any, Any, None]) -> None:
    """Run chores until the stack unwinds."""
    for chore in chores:
        stack.push_async_callback(_end, asyncio.ensure_future(chore))


async def _end(task: asyncio.Future[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
