"""Postroom as a server: `postroom serve` on its Unix socket, each client on one connection, a line per call."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from .ours import READER, version
from .peer import POWER, Missing, Send, Take

_PATIENCE = 30.0  # seconds


class Served:
    name = "postroom serve"
    survives = POWER
    is_server = True
    how = "one process serves all over a Unix socket; send and ack are synced; a claim is not: it may lapse"
    syncs = "1 / 1, shared by those that wait"

    def version(self) -> str:
        return version()

    def start(self, folder: Path) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "socket"
        serve = [
            sys.executable,
            "-m",
            "postroom",
            "serve",
            "--room",
            str(folder / "room.db"),
            "--socket",
            str(path),
        ]
        log = (folder / "log").open("wb")
        # A bench is faster than any sender should be, so the rate limit is off.
        self._server = subprocess.Popen(
            [*serve, "--http", "off", "--set", "sender_rate=0"], stdout=subprocess.DEVNULL, stderr=log
        )
        end = time.monotonic() + _PATIENCE
        while not path.exists():
            if self._server.poll() is not None or time.monotonic() > end:
                self.stop()
                raise Missing("it does not start")
            time.sleep(0.02)
        return str(path)

    def sender(self, address: str) -> Send:
        call = _connect(address)
        return lambda body: call("mail/send", agentId="writer", to=READER, body=body.decode())

    def receiver(self, address: str) -> Take:
        call = _connect(address)

        def take() -> bytes | None:
            letters = call("mail/claim", agentId=READER)["letters"]
            if not letters:
                return None
            [letter] = letters
            call("mail/ack", agentId=READER, ids=letter["id"], token=letter["token"])
            text: str = letter["parts"][0]["text"]
            return text.encode()

        return take

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait(_PATIENCE)


def _connect(address: str) -> Any:
    """Return a function that calls a method and returns its result."""
    line = socket.socket(socket.AF_UNIX)
    line.connect(address)
    replies = line.makefile("rb")
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode

    def call(method: str, **params: Any) -> Any:
        line.sendall(encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + b"\n")
        return decode(replies.readline())["result"]

    return call


PEERS = [Served()]
