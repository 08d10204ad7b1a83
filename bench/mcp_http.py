"""Sending by MCP over HTTP, beside a tool that does nothing on the same SDK."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median

import postroom
from postroom.core import tokens
from postroom.core.verb import perform

from .daemon import serving
from .measure import Effort, Line, per_second

CALLS = 100
START = 30.0  # seconds


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    rounds = asyncio.run(both(effort, folder))
    yield Line(
        name="MCP over HTTP: durable sends / calls of an empty tool of the same SDK",
        value=median(ours / empty for ours, empty in rounds),
        goal=0.7,
        at_least=True,
        note=" / ".join(per_second(median(side)) for side in zip(*rounds, strict=True)),
    )


async def both(effort: Effort, folder: Path) -> list[tuple[float, float]]:
    with ours(folder) as (url, token), empty() as other:
        async with calling(url, token) as mine, calling(other) as theirs:
            return [(await rate(mine), await rate(theirs)) for _ in range(max(effort.runs, 5))]


async def rate(client: object) -> float:
    began = time.perf_counter()
    for _ in range(CALLS):
        result = await client.call_tool("send_message", {"to": "reader", "body": "x" * 200})  # type: ignore[attr-defined]
        if result.is_error:
            raise RuntimeError(str(result))
    return CALLS / (time.perf_counter() - began)


@asynccontextmanager
async def calling(url: str, token: str = "") -> AsyncIterator[object]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from mcp import Client

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await rate(client)
        yield client


@contextmanager
def ours(folder: Path) -> Iterator[tuple[str, str]]:
    port, path, room = free_port(), folder / "s", folder / "room.db"
    with postroom.open(room) as opened:
        token = perform(opened.core, opened.principal, tokens.CreateToken(agent="writer")).text
    words = [sys.executable, "-m", "postroom", "serve", "--room", str(room), "--socket", str(path)]
    with serving([*words, "--set", "sender_rate=0", "--http", f"127.0.0.1:{port}"], path):
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp", token


@contextmanager
def empty() -> Iterator[str]:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "bench.empty_tool", str(port)])
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    end = time.monotonic() + START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return
