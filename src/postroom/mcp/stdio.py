"""Mail over standard input and output. On standard output there is nothing but JSON-RPC: the SDK moves the wire to
a descriptor of its own, and what anybody prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp.server.stdio import stdio_server

from ..desk import Desk
from .caller import Caller
from .server import build

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..room import Room
    from .caller import Call

    Who = Callable[[], str | None]


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until the client hangs up, be it that it says no more or that it does not listen any more."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread that reads cannot be asked to stop; nothing is lost
    try:
        asyncio.run(serving)
    except* BrokenPipeError:
        pass


async def serve_room(room: Room, version: str, *, agent: Who | None = None, scope: str | None = None) -> None:
    """Serve an open room."""
    desk = Desk(room)
    try:
        await serve(partial(desk.call, room.principal), version, agent=agent, scope=scope)
    finally:
        await desk.close()


async def serve(call: Call, version: str, *, agent: Who | None = None, scope: str | None = None) -> None:
    """Serve whatever `call` reaches. Who is meant where nobody is named is asked at each call: a host may start us
    before it says in which session.
    """

    def always(_ctx: Any) -> Caller:
        return Caller(call, usual=agent() if agent else None, scope=scope)

    server = build(always, version)
    async with stdio_server() as (incoming, outgoing):
        with redirect_stdout(sys.stderr):
            await server.run(incoming, outgoing, server.create_initialization_options())
