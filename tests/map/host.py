"""A MAP server that does what a test says, and a room that is linked to it, in this process. What the real ones do
is tested in `interop`; this one fails on demand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

import postroom
from postroom.map.link import LinkOptions, MapLink
from postroom.server.broker import Broker
from postroom.server.executor import Executor
from tests import daemons

PATIENCE = daemons.PATIENCE

PLAIN: dict[str, Any] = {"map/send": {"messageId": "m"}, "map/agents/unregister": {}}


class Refused(Exception):
    """An error in reply: its number and its words."""


class Silent(Exception):
    """No reply at all."""


class Host:
    """`answers` stand in for what it says to a method; one that is None cuts the line instead."""

    def __init__(self, *names: str, version: Any = 1) -> None:
        self.agents = [{"id": f"id-{name}", "name": name, "state": "idle"} for name in names]
        self.version = version
        self.answers: dict[str, Callable[[dict[str, Any]], Any] | None] = {}
        self.last_event: list[tuple[str, dict[str, Any]]] = []
        self.lines: list[ServerConnection] = []
        self._shown: list[tuple[ServerConnection, str]] = []
        self.url = ""
        self.publish: Callable[[Any, str], None] = lambda *_: None  # in the room that is linked to it

    def of(self, method: str) -> list[dict[str, Any]]:
        return [params for name, params in self.last_event if name == method]

    def texts(self) -> list[str]:
        return [params["payload"]["text"] for params in self.of("map/send")]

    async def shows(self, name: str) -> None:
        """Until one of the guest's agents is registered on the last line."""
        await until(lambda: self.lines and (self.lines[-1], name) in self._shown)

    def id_of(self, name: str) -> str:
        """Of one of the guest's agents."""
        return f"guest-{name}"

    async def say(self, method: str, **params: Any) -> None:
        await self.lines[-1].send(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    async def message(self, to: str, text: str, **more: Any) -> None:
        message = {"from": "id-bob", "to": {"agent": self.id_of(to)}, "payload": text, "timestamp": 1000} | more
        await self.say("map/message", message=message)

    async def cut(self) -> None:
        await self.lines[-1].close()

    async def serve(self, line: ServerConnection) -> None:
        self.lines.append(line)
        with suppress(ConnectionClosed):
            async for frame in line:
                await self._hear(line, frame)

    async def _hear(self, line: ServerConnection, frame: str | bytes) -> None:
        text = json.loads(frame)
        method, params = text.get("method", "reply"), text.get("params", text)
        self.last_event.append((method, params))
        if "id" not in text or method == "reply":
            return
        if method in self.answers and self.answers[method] is None:
            line.transport.abort()
            return
        try:
            result: dict[str, Any] = {"result": self._answer(method, params)}
        except Silent:
            return
        except Refused as refused:
            code, message = refused.args
            result = {"error": {"code": code, "message": message}}
        await line.send(json.dumps({"jsonrpc": "2.0", "id": text["id"]} | result))
        if method == "map/agents/register":
            self._shown.append((line, params["name"]))

    def _row(self, id: str) -> dict[str, Any]:
        for row in self.agents:
            if row["id"] == id:
                return row
        raise Refused(-32603, f"Agent not found: {id}")  # as the SDK's server says it

    def _answer(self, method: str, params: dict[str, Any]) -> Any:
        if (value := self.answers.get(method)) is not None:
            return value(params)
        if method == "map/connect":
            info = {"name": "hive", "version": "1"}
            return {"protocolVersion": self.version, "sessionId": "s", "capabilities": {}, "systemInfo": info}
        if method == "map/agents/register":
            return {"agent": {"id": self.id_of(params["name"]), "state": "idle"}}
        if method == "map/agents/list":
            return {"agents": self.agents}
        if method == "map/agents/get":
            return {"agent": self._row(params["agentId"])}
        if method in PLAIN:
            return PLAIN[method]
        raise Refused(-32601, f"no {method}")


def run(story: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await story

    asyncio.run(bounded())


async def until(true: Callable[[], Any]) -> Any:
    while not (found := true()):
        await asyncio.sleep(0.01)
    return found


@asynccontextmanager
async def hosted(host: Host) -> AsyncIterator[Host]:
    async with serve(host.serve, "127.0.0.1", 0) as server:
        host.url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield host


@asynccontextmanager
async def linked(host: Host, folder: Path, **wants: str) -> AsyncIterator[postroom.Room]:
    """A room with a link to it; not waited for."""
    with postroom.open(folder / "room.db", durability="process", backoff_first=0) as room:
        executor = Executor(room.core)
        broker = Broker(executor)
        link = MapLink(executor, LinkOptions(server=host.url, name="berlin", **wants))
        broker.listeners.append(link.emitted)
        host.publish = lambda event, scope: broker.publish({"event": event, "scope": scope}, "ann")
        running = asyncio.ensure_future(link.run())
        try:
            yield room
        finally:
            running.cancel()
            await asyncio.wait((running,))
            broker.close()
            await executor.close()
