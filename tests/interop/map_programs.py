"""The SDK's own MAP server and agents, as outside processes. Installed as the other packages from npm are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, Self

from tests.interop.packages import PATIENCE, require

PACKAGES = ("@multi-agent-protocol/sdk@0.1.15", "ws@8")
HERE = Path(__file__).parent


def require_sdk() -> Path:
    """The folder where the SDK is, and our programs with it."""
    folder = require(*PACKAGES)
    for program in HERE.glob("map_*.mjs"):
        copy = folder / f"{program.name}.{os.getpid()}"
        shutil.copyfile(program, copy)
        copy.replace(folder / program.name)  # at once: another test may start it just now
    return folder


class Program:
    """A process that talks in lines."""

    def __init__(
        self, program: Path, *words: str, node: str | Path = "node", env: dict[str, str] | None = None
    ) -> None:
        self.process = subprocess.Popen(
            [str(node), str(program), *words],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._lines: Queue[bytes] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def line(self, patience: float = PATIENCE) -> Any:
        return json.loads(self._lines.get(timeout=patience))

    def text(self) -> str:
        return self._lines.get(timeout=PATIENCE).decode().rstrip("\n")

    def say(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def is_silent(self, seconds: float) -> bool:
        try:
            self._lines.get(timeout=seconds)
        except Empty:
            return True
        return False

    def rest(self) -> list[Any]:
        """All that it said before it ended."""
        self._reader.join(PATIENCE)
        return [json.loads(self._lines.get()) for _ in range(self._lines.qsize())]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class MapServer(Program):
    """The SDK's MAPServer."""

    def __init__(self, name: str, port: int = 0, key: str = "") -> None:
        super().__init__(require_sdk() / "map_server.mjs", name, str(port), *([key] if key else []))
        self.port = self.line()
        self.key = key
        self.url = f"ws://127.0.0.1:{self.port}"


class Peer(Program):
    """An agent on the SDK's own connection."""

    def __init__(self, url: str, name: str, *scope: str) -> None:
        super().__init__(require_sdk() / "map_peer.mjs", url, name, *scope)
        self.id = self.line()["id"]

    def reply(self, message: dict[str, Any], payload: Any) -> None:
        """As the SDK answers."""
        self.say(answered=message, payload=payload)

    def message(self) -> dict[str, Any]:
        """The next message that it gets."""
        while True:
            result = self.line()
            if "message" in result:
                found: dict[str, Any] = result["message"]
                return found
