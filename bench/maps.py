"""The MAP server: agents that are connected and idle, and `map/send` beside the socket's `send`, in one daemon."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import postroom
from postroom.core import tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform

from .daemon import TEXT, answered_per_second, check, rate_of, seconds_of, serving
from .measure import Effort, Line, per_second

AGENTS = 200


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    yield from sends(effort, folder)
    yield from idling(effort, folder)


@contextmanager
def ours(folder: Path) -> Iterator[tuple[Path, int, int, str]]:
    """A daemon with MAP: its socket, its port, its process, an operator's token."""
    folder.mkdir()
    with postroom.open(folder / "room.db") as room:
        token = perform(room.core, OWNER, tokens.CreateToken()).text
    path, port = folder / "ours.sock", free_port()
    words = [sys.executable, "-m", "postroom", "serve", "--room", str(folder / "room.db"), "--socket", str(path)]
    with serving([*words, "--set", "sender_rate=0", "--http", f"127.0.0.1:{port}"], path) as process:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.02)
        yield path, port, process.pid, token


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def frame(**value: object) -> bytes:
    """A text frame, masked with zeros."""
    data = json.dumps({"jsonrpc": "2.0", "id": 1, **value}).encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2)
    return b"\x81" + size + bytes(4) + data


def joined(port: int, token: str, name: str, kind: str) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", port))
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(
        f"GET /map HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
        "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-version: 13\r\n\r\n".encode()
    )
    check(b" 101 " in line.recv(4096))
    auth = {"method": "api-key", "credential": token}
    first = {"protocolVersion": 1, "participantType": kind, "name": name, "auth": auth}
    line.sendall(frame(method="map/connect", params=first))
    check(b"sessionId" in line.recv(8192))
    return line


def map_rate(port: int, token: str, clients: int, seconds: float) -> float:
    """Sends per second by so many clients, each of which waits for its answer."""
    asking = []
    for number in range(clients):
        line = joined(port, token, f"writer-{number}", "client")
        fields = {"to": {"agent": f"reader-{number}"}, "payload": TEXT}
        asking.append((line, frame(method="map/send", params=fields)))
    return answered_per_second(asking, b'"messageId"', seconds)


def sends(effort: Effort, folder: Path) -> Iterator[Line]:
    with ours(folder / "map-sends") as (path, port, _, token):
        for clients in (1, 8):
            rounds = [
                (map_rate(port, token, clients, effort.seconds), rate_of(path, clients, effort.seconds))
                for _ in range(max(effort.runs, 5))
            ]
            yield Line(
                name=f"MAP: map/send of {clients} client{'s' if clients > 1 else ''} / the socket's send",
                value=median(ours / socket for ours, socket in rounds),
                goal=0.5,
                at_least=True,
                note=" / ".join(per_second(median(side)) for side in zip(*rounds, strict=True)),
            )


def idling(effort: Effort, folder: Path) -> Iterator[Line]:
    with ours(folder / "map-idle") as (_, port, pid, token):
        lines = []
        for number in range(AGENTS):
            line = joined(port, token, f"agent-{number}", "agent")
            line.sendall(frame(method="map/agents/register", params={"name": f"agent-{number}"}))
            check(b'"state"' in line.recv(8192))
            lines.append(line)
        time.sleep(1.0)  # until the last of them is listened for
        before = seconds_of(pid)
        time.sleep(effort.idle)
        spent = seconds_of(pid) - before
        memory = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        for line in lines:
            line.close()
    yield Line(name=f"MAP: CPU of {AGENTS} idle agents", value=100 * spent / effort.idle, unit=" %", goal=1.0)
    yield Line(name=f"MAP: memory with {AGENTS} idle agents", value=memory, unit=" MB", goal=150.0)
