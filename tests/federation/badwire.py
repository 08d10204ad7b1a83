"""A network that is bad: a proxy between two systems that holds, loses, cuts and slows down what passes."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any, Literal, Self

Way = Literal["to", "from"]  # the called one, from the one that calls
_AT_ONCE = struct.pack("ii", 1, 0)


class BadWire:
    """In a thread of its own. What is set holds for the connections there are and those that come."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.holds = False  # is nothing passed on, for now?
        self.loses: frozenset[Way] = frozenset()  # ways on which all is lost
        self.speed = 0  # bytes a second, each way; 0: as fast as it goes
        self.passed: dict[Way, int] = {"to": 0, "from": 0}  # bytes
        self.cuts = 0
        self._left = -1  # bytes after which all is reset
        self._open: set[asyncio.StreamWriter] = set()
        self._under_way = 0  # connections
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/map"

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    # -- what it does

    def cut(self) -> None:
        """Reset all connections."""
        self._loop.call_soon_threadsafe(self._reset)

    def cut_after(self, count: int) -> None:
        """Reset all after so many bytes more: within a frame, most likely."""
        self._left = count

    # -- in its thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._is_ready.set()
        await self._stopping.wait()
        server.close()
        self._reset()
        while self._under_way:
            await asyncio.sleep(0.001)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        self._under_way += 1
        ways: list[Coroutine[Any, Any, None]] = [self._pass(reader, back, "to"), self._pass(there, writer, "from")]
        passing = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        for one in passing:
            one.cancel()
        for end in (writer, back):
            _reset(end)
            self._open.discard(end)
        self._under_way -= 1

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        names = (f":{self.port}\r\n".encode(), f":{self._target}\r\n".encode())  # a server knows its own name only
        try:
            while data := await reader.read(self.speed // 20 or 65536):
                data = data.replace(*names) if way == "to" else data
                while self.holds:
                    await asyncio.sleep(0.01)
                if self.speed:
                    await asyncio.sleep(len(data) / self.speed)
                if way in self.loses:
                    continue
                self.passed[way] += len(data)
                writer.write(self._allowed(data))
                await writer.drain()
                if self._left == 0:
                    self._left = -1
                    self._reset()
        except OSError:
            pass

    def _allowed(self, data: bytes) -> bytes:
        if self._left < 0:
            return data
        some = data[: self._left]
        self._left -= len(some)
        return some

    def _reset(self) -> None:
        self.cuts += bool(self._open)
        for writer in self._open:
            _reset(writer)
        self._open.clear()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Without a goodbye, and what was not sent yet is not sent."""
    found: socket.socket | None = writer.get_extra_info("socket")
    if found is not None and not writer.transport.is_closing():
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    writer.transport.abort()
