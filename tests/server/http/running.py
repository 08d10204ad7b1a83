"""A post room that runs: as a process of its own, or inside a test; and callers that speak HTTP to it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import postroom
from postroom.core import tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.map.server import MapServer
from postroom.room import Room
from postroom.server.broker import Broker
from postroom.server.executor import Executor
from postroom.server.http import HttpAddress
from postroom.server.http_app import MountedApp
from postroom.server.http_server import HttpServer
from tests import daemons
from tests.cli.shell import SOURCE
from tests.coverage import uncounted

PATIENCE = daemons.PATIENCE

JSON = {"content-type": "application/json"}


class Daemon:
    """`postroom serve`, on a port of its own."""

    def __init__(self, folder: Path, *words: str, before: Path | None = None, counted: bool = False) -> None:
        """`before` is a folder whose modules come before all others. `counted`: are its lines, as covered?"""
        self.folder = folder
        self.room = folder / "room.db"
        around = os.environ if counted else uncounted(os.environ)
        kept = {k: v for k, v in around.items() if not k.startswith(("POSTROOM_", "INBOX_"))}
        path = os.pathsep.join(map(str, [before, SOURCE] if before else [SOURCE]))
        self.environment = kept | {"HOME": str(folder), "PYTHONPATH": path}
        began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "postroom", "serve", "--room", str(self.room), "--json", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            cwd=folder,
        )
        assert self.process.stdout is not None
        result = self.process.stdout.readline()
        self.seconds_to_start = time.monotonic() - began
        self.where: dict[str, Any] = json.loads(result) if result else {}

    @property
    def port(self) -> int:
        return int(self.where["http"].rpartition(":")[2])

    def token(self, agent: str | None = None, *scopes: str) -> str:
        with postroom.open(self.room) as room:
            return make_token(room, agent, *scopes)

    def revoke(self, token: str) -> None:
        with postroom.open(self.room) as room:
            perform(room.core, OWNER, tokens.RevokeToken(id=token.split("_")[1]))

    def stop(self) -> tuple[float, int, str]:
        """How long it took, its exit code, its log."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=PATIENCE)
        return time.monotonic() - began, self.process.returncode, log.decode()

    def ended(self) -> tuple[int, str]:
        out, log = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out.decode() + log.decode()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE)
        self.process.kill()
        self.process.communicate()


@contextmanager
def daemon(folder: Path, *words: str, counted: bool = False) -> Iterator[Daemon]:
    running = Daemon(folder, *(words or ("--http", "127.0.0.1:0")), counted=counted)
    try:
        yield running
    finally:
        running.kill()


def make_token(room: Room, agent: str | None = None, *scopes: str) -> str:
    return perform(room.core, OWNER, tokens.CreateToken(agent=agent, scopes=list(scopes) or None)).text


class Said:
    """What came back."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One program that speaks HTTP, with one connection."""

    def __init__(self, port: int, token: str = "", host: str = "127.0.0.1") -> None:
        self.port = port
        self.token = token
        self.connection = http.client.HTTPConnection(host, port, timeout=PATIENCE)

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Said:
        values = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.token:
            values.setdefault("authorization", f"Bearer {self.token}")
        self.connection.request(method, path, body, values)
        answer = self.connection.getresponse()
        return Said(answer.status, dict(answer.getheaders()), answer.read())

    def post(self, value: Any, path: str = "/", **headers: str) -> Said:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        return self.ask("POST", path, body, **{"content_type": "application/json", **headers})

    def call(self, method: str, **message: Any) -> Any:
        answer = self.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": message})
        assert answer.status == 200, answer.body
        return answer.json["result"]

    def raw(self, *, narrow: bool = False) -> socket.socket:
        """A connection of bytes. Into a narrow one little fits that is not read."""
        stream = socket.socket()
        if narrow:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stream.settimeout(PATIENCE)
        stream.connect(("127.0.0.1", self.port))
        return stream

    def head(self, line: str, *more: str) -> bytes:
        lines = (line, f"host: 127.0.0.1:{self.port}", f"authorization: Bearer {self.token}", *more)
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def close(self) -> None:
        self.connection.close()


def until_end(stream: socket.socket) -> bytes:
    """All that comes until the other side ends it."""
    found = b""
    try:
        while piece := stream.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found


@asynccontextmanager
async def open_server(
    folder: Path,
    mcp: MountedApp | None = None,
    *,
    with_map: bool = False,
    settings: Mapping[str, Any] | None = None,
    **place: Any,
) -> AsyncIterator[tuple[HttpServer, Room, Executor, Broker]]:
    """Run the server inside this process."""
    with postroom.open(folder / "room.db", durability="process", **settings or {}) as room:
        executor = Executor(room.core)
        broker = Broker(executor)
        reception = MapServer(executor, broker) if with_map else None
        server = HttpServer(
            executor, broker, HttpAddress(**{"host": "127.0.0.1", "port": 0, **place}), mcp, reception
        )
        await server.start()
        try:
            yield server, room, executor, broker
        finally:
            await server.stop()
            if reception is not None:
                reception.close()
            broker.close()
            await executor.close()


def port_of(server: HttpServer) -> int:
    return int(server.url.rpartition(":")[2])


async def in_thread(run: Any, *words: Any) -> Any:
    """Run a blocking call in a thread, while the server goes on."""
    return await asyncio.to_thread(run, *words)


def in_background(run: Any, *words: Any) -> threading.Thread:
    thread = threading.Thread(target=run, args=words, daemon=True)
    thread.start()
    return thread


def memory_of(pid: int) -> int:
    """Bytes in memory."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def most_memory_of(pid: int) -> int:
    """The most bytes that it ever had there."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def cpu_of(pid: int) -> float:
    """Seconds that a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def status(stream: socket.socket) -> int:
    """Of the answer that comes."""
    found = b""
    while b"\r\n\r\n" not in found:
        piece = stream.recv(65536)
        assert piece, found
        found += piece
    return int(found.split(b" ")[1])


def send_many(stream: socket.socket, piece: bytes, times: int) -> None:
    for _ in range(times):
        stream.sendall(piece)
