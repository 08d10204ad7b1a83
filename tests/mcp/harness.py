"""A room, a server on it, and real clients of the official SDK. Nothing is pretended; the pipe is in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

import postroom
from postroom.core.authorize import agent_principal
from postroom.mcp.handlers import Caller, Handlers
from postroom.server.executor import Executor

pytest.importorskip("mcp_types", reason="needs the extra postroom[mcp]")

from mcp import Client

PATIENCE = 30.0  # seconds; a bound, not a pace
MODES = ("legacy", "2026-07-28")


def run(work: Coroutine[Any, Any, None]) -> None:
    """To its end, and not for ever."""

    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await work

    asyncio.run(bounded())


class Harness:
    """A room in memory, and servers for whoever calls."""

    def __init__(self, room: postroom.Room) -> None:
        self.room = room
        self.executor = Executor(room.core)

    @asynccontextmanager
    async def client(
        self, usual: str | None = None, *, token: str | None = None, mode: str = "2026-07-28", **more: Any
    ) -> AsyncIterator[Client]:
        """A client of a server that was told of an agent, or that knows its caller by a token."""
        principal = agent_principal(token) if token else self.room.principal
        scope = more.pop("scope", None)
        caller = Caller(partial(self.executor.call, principal), agent=principal.agent, usual=usual, scope=scope)
        async with Client(Handlers(lambda _ctx: caller).server("0"), mode=mode, **more) as client:
            yield client


@asynccontextmanager
async def harness() -> AsyncIterator[Harness]:
    with postroom.open("memory:") as room:
        opened = Harness(room)
        yield opened
        await opened.executor.close()


async def ask(client: Client, tool: str, **message: Any) -> Any:
    """What a tool answered; the text is the same as the structure."""
    answer: Any = await client.call_tool(tool, message)
    assert not answer.is_error, answer.content[0].text
    assert json.loads(answer.content[0].text) == answer.structured_content
    return answer.structured_content


async def refused(client: Client, tool: str, **message: Any) -> Any:
    """The error that a tool told."""
    answer: Any = await client.call_tool(tool, message)
    assert answer.is_error and answer.structured_content is None
    return json.loads(answer.content[0].text)


def played(story: Callable[[Harness], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        async with harness() as opened:
            await story(opened)

    run(play())
