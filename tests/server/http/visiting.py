"""Visits of the dashboard, as a browser makes them, and the process that acts for one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect

import postroom
from postroom.server.client import SocketClient
from tests.daemons import PATIENCE
from tests.people import key_file, person
from tests.server.http.running import Client, Daemon, Said


def code_of(daemon: Daemon, **params: Any) -> str:
    """A code, as a process of this user gets it over the socket."""
    opened = SocketClient(daemon.where["sockets"][0]).ask("open_visit", params)
    code: str = opened["code"]
    assert opened["link"].endswith(f"/dashboard/#code={code}")
    return code


def ours(daemon: Daemon) -> str:
    return f"http://127.0.0.1:{daemon.port}"


def enter(daemon: Daemon, code: str, **headers: str) -> Said:
    """What the page gets for a code."""
    client = Client(daemon.port)
    try:
        return client.post({"code": code}, "/dashboard/visit", **{"origin": ours(daemon), **headers})
    finally:
        client.close()


def token_of(daemon: Daemon) -> str:
    token: str = enter(daemon, code_of(daemon)).json["token"]
    return token


class Tab:
    """One open page: JSON-RPC in the frames of a WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.heard: list[dict[str, Any]] = []  # notifications

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self.socket.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
        while True:
            frame = self.next()
            if "id" in frame:
                return frame
            self.heard.append(frame)

    def call(self, method: str, **params: Any) -> Any:
        reply = self.ask(method, **params)
        assert "result" in reply, reply
        return reply["result"]

    def refusal(self, method: str, **params: Any) -> dict[str, Any]:
        reply = self.ask(method, **params)
        assert "error" in reply, reply
        return dict(reply["error"])

    def next(self) -> dict[str, Any]:
        frame: dict[str, Any] = json.loads(self.socket.recv(PATIENCE))
        return frame


@contextmanager
def opened(daemon: Daemon, **headers: str) -> Iterator[ClientConnection]:
    """A WebSocket of a page, which has not said who it is."""
    given: dict[str, Any] = {"origin": ours(daemon), **headers}
    origin = given.pop("origin")
    with connect(
        f"ws://127.0.0.1:{daemon.port}/ws", origin=origin, additional_headers=given, open_timeout=PATIENCE
    ) as one:
        yield one


@contextmanager
def tab(daemon: Daemon, token: str) -> Iterator[Tab]:
    with opened(daemon) as socket:
        page = Tab(socket)
        page.call("authenticate", token=token)
        yield page


@contextmanager
def lending(daemon: Daemon, *words: str, has_key: bool = True) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`postroom dashboard`, and the code of its link; the room knows the key of its person already."""
    with postroom.open(daemon.room) as room:
        person(room).send("coder", "I am here.")
    key = {"POSTROOM_HUMAN_KEY": key_file().path} if has_key else {}
    process = subprocess.Popen(
        [sys.executable, "-m", "postroom", "dashboard", "--print", "--room", str(daemon.room), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=daemon.environment | key,
        cwd=daemon.folder,
    )
    try:
        assert process.stdout is not None
        link = process.stdout.readline().strip()
        assert link, process.communicate(timeout=PATIENCE)
        yield process, link.partition("#code=")[2]
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)
