"""What is there only where its extra is installed: HTTP, MCP below it, a quick loop. Loaded as late as can be."""

from __future__ import annotations

import asyncio
import importlib
import logging
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .. import __version__, service
from ..callers import Door
from ..errors import Invalid
from ..service.authorize import OWNER

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ..desk import Desk
    from ..federation.exchange import Exchange
    from ..hub import Hub
    from ..map_link.link import Link
    from ..map_server.reception import Reception
    from ..web.server import Server
    from .options import Options

log = logging.getLogger("postroom")
SERVE = 'pip install "postroom[serve]"'
MCP = 'pip install "postroom[mcp]"'
OURS = "postroom.mcp"


def run(main: Coroutine[Any, Any, None]) -> None:
    """In the quicker loop, where it is there: a letter over the socket takes a seventh less processor time."""
    factory = importlib.import_module("uvloop").new_event_loop if is_there("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


def web_server(desk: Desk, hub: Hub, options: Options, reception: Reception | None) -> Server | None:
    """The server that was asked for, not started. None: nobody asked, or it cannot be and nobody insisted."""
    if not options.host:
        return None
    if not (is_there("uvicorn") and is_there("websockets")):
        if options.is_asked:
            raise Invalid("HTTP needs more than is installed", field="http", hint=SERVE)
        log.warning("HTTP is off, the socket is on: %s", SERVE)
        return None
    _check_tokens(desk, options)
    from ..web.mounted import Mounted  # noqa: PLC0415 - uvicorn weighs as much as the rest of us
    from ..web.server import Place, Server  # noqa: PLC0415

    place = Place(
        host=options.host,
        port=options.port,
        names=options.names,
        certificate=options.certificate,
        key=options.key,
    )

    def load() -> Any:
        return load_mcp(Door(desk, hub), server)

    server = Server(desk, hub, place, Mounted(partial(desk.run_slow, load)), reception)
    return server


def map_link(desk: Desk, options: Options) -> Link | None:
    """The link that was asked for, not begun. None: nobody asked."""
    if options.map_link is None:
        return None
    if not is_there("websockets"):
        raise Invalid("a link to a MAP server needs more than is installed", field="map-server", hint=SERVE)
    from ..map_link.link import Link  # noqa: PLC0415 - only where it is asked for

    return Link(desk, options.map_link)


def exchange(desk: Desk, options: Options) -> Exchange | None:
    """The exchange with other systems, not begun. None: what it needs is not installed, and nobody needs it."""
    if not is_there("websockets"):
        if service.peers.all_peers(desk.room._office):
            log.warning("mail for other systems waits, for there are no links: %s", SERVE)
        return None
    from ..federation.exchange import Exchange  # noqa: PLC0415 - only where it can be

    return Exchange(desk, options.certificate, options.key)


def load_mcp(door: Door, server: Server) -> Any:
    """The app behind `/mcp`."""
    from ..web.mounted import NotHere  # noqa: PLC0415 - loaded by now

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


def _check_tokens(desk: Desk, options: Options) -> None:
    """What can be reached from outside is not opened before somebody may come in."""
    if options.is_loopback:
        return
    office = desk.room._office
    has_tokens = any(token.is_live for token in service.tokens.everyone(office, OWNER))
    if not has_tokens and not service.peers.all_peers(office):
        told = f"{options.host} can be reached from outside, and nobody has a token"
        raise Invalid(told, field="http", hint="postroom token create, or peers add, then start again")
