"""The post room as a service, beside agent-inbox 0.2.3: same clients, same letters, SQLite in both. Ours syncs
before it answers; agent-inbox syncs when its log is copied into the database, every thousand pages.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import postroom

from .measure import Effort, Line, micros, per_second

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postroom-bench" / "npm"
PACKAGE = "agent-inbox@0.2.3"
TEXT = "x" * 200
DRAINED = 1_000
STORED = 100_000
SUBSCRIBERS = 500
START = 20.0  # seconds for a daemon to start


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    yield from sends(effort, folder)
    yield from syncs(effort, folder)
    yield from draining(effort, folder)
    yield from idling(effort, folder)


# -- daemons


@contextmanager
def serving(words: list[str], path: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon, until the end of the block."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(words, stdout=quiet, stderr=quiet, env=os.environ | environment)
    end = time.monotonic() + START
    try:
        while not path.exists():
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{words[0]} did not start")
            time.sleep(0.02)
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@contextmanager
def ours(folder: Path) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    path = folder / "ours.sock"
    words = [sys.executable, "-m", "postroom", "serve", "--room", str(folder / "room.db"), "--socket", str(path)]
    with serving([*words, "--set", "sender_rate=0", "--http", "off"], path) as process:
        yield path, process


@contextmanager
def theirs(folder: Path) -> Iterator[Path]:
    path = folder / "theirs.sock"
    program = install()
    variables = {"INBOX_SOCKET_PATH": str(path), "INBOX_SQLITE_PATH": str(folder / "theirs.db")}
    with serving([str(program), "ipc"], path, INBOX_MAP_ENABLED="false", **variables):
        yield path


def install() -> Path:
    """From npm, once. Where its SQLite cannot be fetched ready-made, it is built here: that takes minutes."""
    program = CACHE / "node_modules" / ".bin" / "agent-inbox"
    sqlite = CACHE / "node_modules" / "better-sqlite3"
    if not program.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        words = [
            "npm",
            "install",
            "--silent",
            "--no-fund",
            "--no-audit",
            "--ignore-scripts",
            "--prefix",
            str(CACHE),
        ]
        subprocess.run([*words, PACKAGE], check=True)
    if not (sqlite / "build" / "Release" / "better_sqlite3.node").exists():
        build = ["npx", "--yes", "node-gyp", "rebuild", "--release"]
        headers = ["--nodedir=/usr"] if Path("/usr/include/node").exists() else []
        quiet = subprocess.DEVNULL
        subprocess.run([*build, *headers], cwd=sqlite, check=True, stdout=quiet, stderr=quiet)
    return program


# -- clients


def rate_of(path: Path, clients: int, seconds: float) -> float:
    """Sends per second by so many clients, each of which waits for its answer."""
    asking = []
    for number in range(clients):
        line = socket.socket(socket.AF_UNIX)
        line.connect(str(path))
        fields = {"action": "send", "from": f"writer-{number}", "to": f"reader-{number}", "payload": TEXT}
        asking.append((line, json.dumps(fields).encode() + b"\n"))
    return answered_per_second(asking, b'"ok":true', seconds)


def answered_per_second(asking: list[tuple[socket.socket, bytes]], right: bytes, seconds: float) -> float:
    """Each asks the same again and again; in every answer stands what is `right`."""
    chosen = selectors.DefaultSelector()
    for line, request in asking:
        chosen.register(line, selectors.EVENT_READ, (line, request))
        line.sendall(request)
    answered, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for key, _ in chosen.select(1):
            line, request = key.data
            check(right in line.recv(4096))
            answered += 1
            line.sendall(request)
    taken = time.perf_counter() - began
    for line, _ in asking:
        line.close()
    return answered / taken


def check(is_right: bool) -> None:
    if not is_right:
        raise RuntimeError("a daemon did not do what it was asked")


def ask(path: Path, **value: object) -> bytes:
    """The whole answer, as it came. What is timed is the service, not what its client makes of it."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(path))
        line.sendall(json.dumps(value).encode() + b"\n")
        with line.makefile("rb", buffering=2**20) as replies:
            return replies.readline()


# -- what is measured


def sends(effort: Effort, folder: Path) -> Iterator[Line]:
    if shutil.which("npm") is None:
        yield Line(name="socket: agent-inbox is not there (no npm)", value=0.0, unit="")
        return
    for clients, goal in ((1, 1.7), (8, 5.0)):
        place = folder / f"clients-{clients}"
        place.mkdir()
        with ours(place) as (path, _), theirs(place) as other:
            rounds = [
                (rate_of(path, clients, effort.seconds), rate_of(other, clients, effort.seconds))
                for _ in range(max(effort.runs, 5))
            ]
        yield Line(
            name=f"socket: durable sends of {clients} client{'s' if clients > 1 else ''} / agent-inbox 0.2.3",
            value=median(our / their for our, their in rounds),
            goal=goal,
            at_least=True,
            note=" / ".join(per_second(median(side)) for side in zip(*rounds, strict=True)),
        )


def syncs(effort: Effort, folder: Path) -> Iterator[Line]:
    """How often the disk is asked, counted from outside."""
    if shutil.which("strace") is None:
        return
    place = folder / "syncs"
    place.mkdir()
    with ours(place) as (path, process):
        words = ["strace", "-f", "-qq", "-e", "trace=fdatasync,fsync", "-c", "-p", str(process.pid)]
        watching = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        sent = round(rate_of(path, 8, effort.seconds) * effort.seconds)
        watching.send_signal(signal.SIGINT)
        result = watching.communicate(timeout=START)[1]
    # per cent, seconds, microseconds of each, calls, maybe errors, and the name
    calls = sum(int(row.split()[3]) for row in result.splitlines() if row.endswith("sync"))
    yield Line(
        name="socket: syncs per letter, 8 clients", value=calls / max(sent, 1), goal=1.0, note=f"{calls} / {sent}"
    )


def draining(effort: Effort, folder: Path) -> Iterator[Line]:
    place = folder / "drain"
    place.mkdir()
    with postroom.open(place / "room.db", durability="process") as room:
        crowd = [postroom.draft(f"agent-{n % 100}", TEXT) for n in range(STORED - DRAINED)]
        for start in range(0, len(crowd), 5000):
            room.mailbox("writer").send_many(crowd[start : start + 5000])
        with ours(place) as (path, _):
            taken = []
            for _ in range(effort.rounds):
                room.mailbox("writer").send_many([postroom.draft("drained", TEXT) for _ in range(DRAINED)])
                began = time.perf_counter()
                result = ask(path, action="check_inbox", agentId="drained", unreadOnly=True, clear=True)
                taken.append(time.perf_counter() - began)
                check(len(json.loads(result)["messages"]) == DRAINED)
    yield Line(
        name=f"socket: {DRAINED:,} letters of one agent at {STORED:,} stored",
        value=median(taken) * 1000,
        unit=" ms",
        goal=20.0,
        note=f"{micros(median(taken) / DRAINED)} each",
    )


def idling(effort: Effort, folder: Path) -> Iterator[Line]:
    place = folder / "idle"
    place.mkdir()
    with ours(place) as (path, process):
        lines = []
        for _ in range(SUBSCRIBERS):
            line = socket.socket(socket.AF_UNIX)
            line.connect(str(path))
            line.sendall(b'{"jsonrpc":"2.0","id":1,"method":"map/subscribe","params":{}}\n')
            check(b"subscriptionId" in line.recv(4096))
            lines.append(line)
        before = seconds_of(process.pid)
        time.sleep(effort.idle)
        spent = seconds_of(process.pid) - before
        memory = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for line in lines:
            line.close()
    yield Line(
        name=f"socket: CPU of {SUBSCRIBERS} idle subscribers",
        value=100 * spent / effort.idle,
        unit=" %",
        goal=1.0,
        note=f"{memory / 2**20:.0f} MB",
    )


def seconds_of(pid: int) -> float:
    """CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
