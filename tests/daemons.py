"""A real daemon, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from postroom.server.client import SocketClient

PATIENCE = 120.0  # seconds; only what hangs takes this long, on a machine with much else to do, too
T = TypeVar("T")


def until(
    look: Callable[[], T | None], patience: float = PATIENCE, show: Callable[[], object] = str, step: float = 0.02
) -> T:
    """What `look` gives, as soon as that is something. Whatever takes too long is no AssertionError: a test that
    plants a bug expects one, and must not be content with a slow machine.
    """
    end = time.monotonic() + patience
    while not (found := look()):
        if time.monotonic() > end:
            raise TimeoutError(f"it did not come to be in {patience} s\n{show()}")
        time.sleep(step)
    return found


def free_port() -> int:
    """Return a TCP port of this machine that no program uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Daemon:
    """`postroom serve`, on a room in a folder; or another program that is like it."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        program: tuple[str, ...] = ("postroom",),
        cwd: Path | None = None,
        **environment: str,
    ) -> None:
        self.folder = folder
        self.room = folder / "room.db"
        self.socket = folder / "s"  # short: a socket's path may not be long
        options = options or ("--http", "off")
        words = [sys.executable, "-m", *program, "serve", "--socket", str(self.socket)]
        words += [] if "--room" in options else ["--room", str(self.room)]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*words, "--json", "--set", "durability=process", *options],
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=cwd,
                env=os.environ | environment,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(PATIENCE)
            self.process.stdout.close()
            raise AssertionError(self.log())
        self.where: dict[str, Any] = json.loads(line)

    @property
    def client(self) -> SocketClient:
        return SocketClient(str(self.socket))

    def ask(self, **message: Any) -> Any:
        """One line in, one line out."""
        with self.line() as line:
            return line.ask(message)

    @contextmanager
    def line(self) -> Iterator[Line]:
        with Line(self.socket) as line:
            yield line

    def log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)


class Line:
    """One connection."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(str(path))
        self._replies = self.socket.makefile("rb")

    def say(self, *lines: Any) -> None:
        message = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines]
        self.socket.sendall(b"".join(message))

    def hear(self) -> Any:
        line = self._replies.readline()
        return json.loads(line) if line else None

    def ask(self, message: Any) -> Any:
        self.say(message)
        return self.hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._replies.close()
        self.socket.close()
