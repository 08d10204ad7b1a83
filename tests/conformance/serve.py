"""Serves a room in memory over HTTP, with the fixtures beside the mail, and says where. Everybody is its owner:
the suite has no token, and what it tests is the protocol.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn

import postroom
from postroom.mcp.http import asgi
from postroom.server.executor import Executor
from postroom.server.http import PRINCIPAL
from tests.conformance.fixtures import Fixtures


async def main() -> None:
    with postroom.open("memory:") as room, socket.create_server(("127.0.0.1", 0)) as listening:
        executor = Executor(room.core)
        app = asgi(executor, "0", agent="tester", handlers=Fixtures)

        async def known(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                await app({**scope, PRINCIPAL: room.principal}, receive, send)

        async with app.running():
            config = uvicorn.Config(known, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
            print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
            await uvicorn.Server(config).serve([listening])
        await executor.close()


if __name__ == "__main__":
    asyncio.run(main())
