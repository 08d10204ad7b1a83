"""What an open dashboard costs: a room of 1,000 agents and a million letters, and 1,000 letters a second.

`busy` gives such a room with its daemon, and the link of a page; the measures here are of the daemon. The load is
the same with and without pages, in turns.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

import postroom
from postroom.server.client import SocketClient

from .dashboard_page import measure_page
from .fill import filled_room
from .measure import Effort, Line

AGENTS = 1_000
TEAMS = 20
RATE = 1_000  # letters a second
STEP = 0.02  # seconds between two writes of the load
PAGES = 5  # open at once, in the measure of what each adds
TEXT = "x" * 200


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    with busy(effort, folder) as room:
        yield from measure_page(room, effort)
        with room.load():
            yield from costs(room, effort)
            yield from pages(room)


class BusyRoom:
    """The daemon of a large room, the load upon it, and pages that look at it."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], where: dict[str, Any]) -> None:
        self.folder = folder
        self.process = process
        self.url: str = where["http"]
        self.socket: str = where["sockets"][0]
        self.answered = 0  # letters of the load

    def link(self) -> str:
        """A link for a page that looks."""
        opened = SocketClient(self.socket).ask("open_visit", {})
        link: str = opened["link"]
        return link

    def cpu(self) -> float:
        """Seconds that the daemon has computed."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def load(self, rate: int = RATE) -> Iterator[None]:
        """Letters between agents of the same and of other teams, so many a second, until the end of the block."""
        ended = threading.Event()
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(self.socket)
            writing = threading.Thread(target=self._write, args=(line, rate, ended), daemon=True)
            reading = threading.Thread(target=self._read, args=(line,), daemon=True)
            writing.start()
            reading.start()
            try:
                yield
            finally:
                ended.set()
                writing.join()
                line.shutdown(socket.SHUT_RDWR)
                reading.join()

    def _write(self, line: socket.socket, rate: int, ended: threading.Event) -> None:
        began, sent = time.monotonic(), 0
        while not ended.wait(STEP):
            due = int((time.monotonic() - began) * rate)
            lines = [_letter(number) for number in range(sent, min(due, sent + rate))]
            sent = max(sent, due)
            with suppress(OSError):
                line.sendall(b"".join(lines))

    def _read(self, line: socket.socket) -> None:
        with suppress(OSError):
            while piece := line.recv(65536):
                self.answered += piece.count(b"\n")

    @contextmanager
    def page(self) -> Iterator[ClientConnection]:
        """A page that watches the flow, and asks for what its first view shows whenever that may have changed."""
        code = self.link().partition("#code=")[2]
        token = self._post("/dashboard/visit", {"code": code})["token"]
        with connect(self.url.replace("http", "ws", 1) + "/ws", origin=Origin(self.url), max_size=None) as one:
            ask(one, "authenticate", token=token)
            yield one

    def _post(self, path: str, value: Any) -> Any:
        from http.client import HTTPConnection

        client = HTTPConnection(self.url.partition("//")[2], timeout=60)
        headers = {"content-type": "application/json", "origin": self.url}
        client.request("POST", path, json.dumps(value), headers)
        found = json.loads(client.getresponse().read())
        client.close()
        return found


def _letter(number: int) -> bytes:
    sender = number * 7 % AGENTS
    near = number % 4 != 0  # three of four stay in the team
    receiver = (sender + TEAMS * (1 + number % 9)) % AGENTS if near else number * 13 % AGENTS
    words = {"action": "send", "from": f"worker-{sender}", "to": f"worker-{receiver}", "payload": TEXT}
    return json.dumps(words).encode() + b"\n"


def ask(page: ClientConnection, method: str, **params: Any) -> Any:
    """One call; notifications before its reply are dropped."""
    page.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    while True:
        frame = json.loads(page.recv(60))
        if "id" in frame:
            return frame["result"]


@contextmanager
def busy(effort: Effort, folder: Path) -> Iterator[BusyRoom]:
    """A room with a past, 1,000 agents in 20 teams, and its daemon with HTTP."""
    path = folder / "room.db"
    shutil.copytree(filled_room(effort.largest).parent, folder, dirs_exist_ok=True)  # with the index of its words
    with postroom.open(str(path), durability="process") as room:
        for number in range(AGENTS):
            room.mailbox(f"worker-{number}").register(scopes=[f"team-{number % TEAMS}"])
    words = [sys.executable, "-m", "postroom", "serve", "--json", "--room", str(path), "--http", "127.0.0.1:0"]
    # Its letters are older than the retention: without this, the room would shrink while it is measured.
    words += ["--socket", str(folder / "s"), "--set", "retain_for=0"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log)
    try:
        yield BusyRoom(folder, process, json.loads(process.stdout.readline() if process.stdout else b""))
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


# -- what the daemon pays


def costs(room: BusyRoom, effort: Effort) -> Iterator[Line]:
    """CPU of the daemon, and the time of an agent's call, without a page and with some, in turns."""
    cpu: dict[int, list[float]] = {0: [], 1: [], PAGES: []}
    calls: dict[int, list[float]] = {0: [], 1: [], PAGES: []}
    sent: list[float] = []
    for _ in range(max(effort.runs, 3)):
        for pages_open, spent in cpu.items():
            with watching(room, pages_open):
                time.sleep(0.5)
                began, before, answered = time.monotonic(), room.cpu(), room.answered
                calls[pages_open] += call_times(room, effort.seconds)
                seconds = time.monotonic() - began
                spent.append(100 * (room.cpu() - before) / seconds)
                sent.append((room.answered - answered) / seconds)
    none, one, several = (median(cpu[number]) for number in cpu)
    load = f"at {median(sent):,.0f} letters a second the daemon takes {none:.1f} % of a core without a page"
    yield Line(
        name="dashboard: CPU of the daemon for one open page",
        value=one - none,
        unit="% of a core",
        goal=1.0,
        note=load,
    )
    each = (several - none) / PAGES
    yield Line(
        name=f"dashboard: the same for each of {PAGES}",
        value=each,
        unit="% of a core",
        goal=1.0,
        note=f"{several:.1f} % in all",
    )
    slower = median(calls[1]) / median(calls[0])
    shown = ", ".join(f"{1000 * median(spent):.2f} ms with {number}" for number, spent in calls.items())
    note = f"{shown} pages"
    yield Line(name="dashboard: an agent's check, with a page open / without", value=slower, goal=1.1, note=note)


@contextmanager
def watching(room: BusyRoom, pages_open: int) -> Iterator[None]:
    """So many pages that watch the flow, and read what they get."""
    if not pages_open:
        yield
        return
    with room.page() as page:
        ask(page, "flow/watch")
        ended = threading.Event()
        reading = threading.Thread(target=_follow, args=(page, ended), daemon=True)
        reading.start()
        try:
            with watching(room, pages_open - 1):
                yield
        finally:
            ended.set()
            reading.join()


def _follow(page: ClientConnection, ended: threading.Event) -> None:
    waits = 0
    while not ended.is_set():
        try:
            frame = json.loads(page.recv(0.5))
        except TimeoutError:
            continue
        now = frame.get("params", {}).get("waits", waits)
        if now != waits:
            waits = now
            page.send(
                json.dumps({"jsonrpc": "2.0", "id": 1, "method": "mail/waiting", "params": {"agent_id": "human"}})
            )


def call_times(room: BusyRoom, seconds: float) -> list[float]:
    """How long an agent's check takes, again and again."""
    taken, end = [], time.monotonic() + seconds
    with socket.socket(socket.AF_UNIX) as line, line.makefile("rb") as replies:
        line.connect(room.socket)
        while time.monotonic() < end:
            began = time.perf_counter()
            line.sendall(b'{"action": "check_inbox", "agentId": "worker-1", "limit": 1}\n')
            replies.readline()
            taken.append(time.perf_counter() - began)
            time.sleep(0.01)
    return taken


# -- what a page waits for


def pages(room: BusyRoom) -> Iterator[Line]:
    """The views' calls over a WebSocket, under the same load."""
    with room.page() as page:
        newest = ask(page, "mail/letters", limit=1)["newest"]
        depths = {f"{fraction:.0%}": int(newest * fraction) for fraction in (1.0, 0.5, 0.01)}
        taken = {
            depth: seconds_of(page, 20, "mail/letters", limit=100, before=at + 1) for depth, at in depths.items()
        }
        note = ", ".join(f"{1000 * spent:.1f} ms at {depth}" for depth, spent in taken.items())
        yield Line(
            name="dashboard: 100 letters by number, at any depth",
            value=1000 * max(taken.values()),
            unit="ms",
            goal=5.0,
            note=note,
        )
        views: dict[str, tuple[str, dict[str, Any]]] = {
            "waiting": ("mail/waiting", {"agent_id": "human"}),
            "queues": ("mail/queues", {}),
            "tasks": ("mail/tasks", {}),
            "dead_groups": ("mail/dead_groups", {}),
            "board": ("mail/board", {}),
            "first page": ("mail/letters", {}),
            "search": ("mail/search", {"query": "zyzzyva", "limit": 20}),
        }
        first = {name: seconds_of(page, 5, method, **params) for name, (method, params) in views.items()}
        note = ", ".join(f"{name} {1000 * spent:.0f}" for name, spent in first.items())
        yield Line(
            name="dashboard: the slowest first call of a view",
            value=1000 * max(first.values()),
            unit="ms",
            note=note,
        )


def seconds_of(page: ClientConnection, times: int, method: str, **params: Any) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        ask(page, method, **params)
        taken.append(time.perf_counter() - began)
    return median(taken)
