"""MCP over standard input and output.

Nothing but JSON-RPC is on standard output: the SDK moves it to a descriptor of its own, and anything that is
printed goes to standard error.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import redirect_stdout
from functools import partial
from typing import TYPE_CHECKING, Any

from mcp.server.stdio import stdio_server

from ..server.executor import Executor
from .handlers import Caller, Handlers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..room import Room
    from .handlers import Call

    Who = Callable[[], str | None]


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Serve until the client closes standard input or output."""
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # the reading thread cannot be stopped; nothing is lost by exiting
    try:
        asyncio.run(serving)
    except* BrokenPipeError:
        pass


async def serve_room(room: Room, version: str, *, agent: Who | None = None, scope: str | None = None) -> None:
    """Serve an open room."""
    executor = Executor(room.core)
    try:
        await serve(partial(executor.call, room.principal), version, agent=agent, scope=scope)
    finally:
        await executor.close()


async def serve(call: Call, version: str, *, agent: Who | None = None, scope: str | None = None) -> None:
    """Serve MCP; `call` carries out verbs. `agent` finds the default agent at each call: a host may start the
    server before it says in which session.
    """

    def caller_of(_ctx: Any) -> Caller:
        return Caller(call, usual=agent() if agent else None, scope=scope)

    server = Handlers(caller_of).server(version)
    async with stdio_server() as (incoming, outgoing):
        with redirect_stdout(sys.stderr):
            await server.run(incoming, outgoing, server.create_initialization_options())
