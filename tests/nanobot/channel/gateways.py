"""Real gateways of nanobot, as processes with a home of their own, and a person who talks to one."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import postroom
from tests import daemons

from .models import Model

PATIENCE = daemons.PATIENCE

T = TypeVar("T")
BEFORE_KILLING = 5.0  # seconds
_CHATS = itertools.count()
QUIET = 1.5  # seconds in which nothing more must come


def until(look: Callable[[], T], *, what: str, patience: float = PATIENCE, show: Callable[[], str] = str) -> T:
    """What `look` gives, as soon as it is something."""
    end = time.monotonic() + patience
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"no {what} within {patience} s\n{show()}")
        time.sleep(0.02)
    return found


def free_port() -> int:
    """A port below those of outgoing connections, one of which could take it before the gateway does."""
    while True:
        port = random.randrange(12_000, 32_000)
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port


class Gateway:
    """`nanobot gateway`, for one agent."""

    def __init__(
        self, python: Path, home: Path, mailboxes: Path, agent: str, model: Model, **section: Any
    ) -> None:
        self.python = python
        self.home = home
        self.mailboxes = mailboxes
        self.agent = agent
        self.model = model
        self.socket = home / "person.sock"
        self.section = {"enabled": True, "agentId": agent, "mailboxesRoot": str(mailboxes)} | section
        self.log = home / "gateway.log"
        self._read_from = 0
        self.process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        self.write_config()

    def write_config(self) -> None:
        config = {
            "agents": {
                "defaults": {
                    "provider": "custom",
                    "model": "scripted",
                    "workspace": str(self.home / "workspace"),
                    "dream": {"enabled": False},
                }
            },
            "providers": {"custom": {"apiKey": "none", "apiBase": self.model.address}},
            "gateway": {"heartbeat": {"enabled": False}},
            "channels": {
                "websocket": {"enabled": False},
                "mailbox": self.section,
                "person": {"enabled": True, "socket": str(self.socket), "allowFrom": ["*"]},
            },
        }
        (self.home / "workspace").mkdir(exist_ok=True)
        self.config.write_text(json.dumps(config), encoding="utf-8")

    @property
    def config(self) -> Path:
        return self.home / "config.json"

    @property
    def surroundings(self) -> dict[str, str]:
        own = ("POSTROOM_", "COV", "PYTEST")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(own)}
        for proxy in ("http_proxy", "https_proxy", "all_proxy"):
            kept.pop(proxy, None)
            kept.pop(proxy.upper(), None)
        # nanobot counts tokens with tiktoken, which tries to download its table each time, in the event loop.
        # Without a network, a lost answer of the name server stops the gateway for 5 s; a closed port does not.
        nowhere = {"HTTPS_PROXY": "http://127.0.0.1:9"}
        return kept | nowhere | {"HOME": str(self.home), "PYTHONPATH": "", "NO_COLOR": "1"}

    def start(self) -> Self:
        self.launch()
        self.wait_until_up()
        return self

    def wait_until_up(self) -> None:
        until(self.is_up, what=f"start of {self.agent}", show=self.output)

    def launch(self) -> None:
        port = free_port()
        self.socket.unlink(missing_ok=True)
        command = [
            *(str(self.python), "-m", "nanobot", "gateway", "--foreground", "--verbose"),
            *("-c", str(self.config), "-p", str(port)),
        ]
        self._read_from = len(self.output())
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.surroundings, cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def is_up(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.output()
        return f"{self.agent} takes mail at" in self.output()[self._read_from :] and self.socket.exists()

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(PATIENCE)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE)

    def end(self) -> None:
        """When a test is over. In Python 3.11, `asyncio.wait_for` can swallow the cancellation by which nanobot
        stops its dispatcher, if a message comes in that moment; then it waits for ever, whatever channels it has.
        """
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(BEFORE_KILLING)
        self.kill()
        if "room" in vars(self):
            self.room.close()

    def person(self) -> Person:
        """Somebody new, in a chat of their own."""
        return Person(self, f"chat{next(_CHATS)}")

    @cached_property
    def room(self) -> postroom.Room:
        """One for all: each that is open takes an ear of the kernel, which has few."""
        return postroom.open(f"files:{self.mailboxes}?layout=nanobot")


def calls_after_a_while(*gateways: Gateway) -> list[int]:
    """How often each model was asked, once their letters are settled and nothing more happens.

    Silence alone does not show it: on a busy machine a step may take longer than QUIET.
    """
    end = time.monotonic() + PATIENCE
    while True:
        before = [len(gateway.model.origin) for gateway in gateways]
        time.sleep(QUIET)
        after = [len(gateway.model.origin) for gateway in gateways]
        if before == after and not any(map(_open_letters, gateways)):
            return after
        if time.monotonic() > end:
            raise TimeoutError(f"it goes on for ever: {after}")


def _open_letters(gateway: Gateway) -> int:
    """How many letters the agent has not settled."""
    counted = gateway.room.mailbox(gateway.agent).stats()
    return counted.total_unread + counted.seen + counted.claimed


class Person:
    """Somebody who talks to an agent at the test channel."""

    def __init__(self, gateway: Gateway, chat: str) -> None:
        self.gateway = gateway
        self.chat = chat
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(gateway.socket))
        self._lines = self._socket.makefile("r", encoding="utf-8")

    def say(self, text: str) -> None:
        self._socket.sendall(json.dumps({"chat": self.chat, "text": text}).encode() + b"\n")

    def hear(self, patience: float = PATIENCE) -> str:
        """The next thing that the person is told in this chat; what is said in an earlier one is passed by."""
        self._socket.settimeout(patience)
        while True:
            try:
                received = json.loads(self._lines.readline())
            except TimeoutError:
                raise TimeoutError(f"the person heard nothing\n{self.gateway.output()[-6000:]}") from None
            if received["chat"] == self.chat:
                return str(received["text"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._socket.close()
