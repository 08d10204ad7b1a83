"""Connections of the real SDK of MAP from npm, in an outside process that does what it is told."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from pathlib import Path
from queue import Queue
from typing import Any, Self

from tests.interop.map_programs import require_sdk
from tests.interop.packages import PATIENCE


class Failed(Exception):
    """The SDK threw."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.code = error.get("code")
        self.data = error.get("data") or {}


class Program:
    """A node process with connections of the SDK: `do("agent", name=...)`, then `do("send", "ann", to)`."""

    def __init__(self) -> None:
        script = Path(__file__).parent / "map_sdk.mjs"
        self._process = subprocess.Popen(
            ["node", str(script)],
            cwd=require_sdk(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._numbers = itertools.count(1)
        self._answers: Queue[dict[str, Any]] = Queue()
        self.messages: Queue[dict[str, Any]] = Queue()
        self.events: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "message" in told:
                self.messages.put(told)
            elif "event" in told:
                self.events.put(told)
            else:
                self._answers.put(told)

    def do(self, what: str, who: str = "", *args: Any, **more: Any) -> Any:
        number = next(self._numbers)
        assert self._process.stdin is not None
        said = {"id": number, "what": what, "who": who, "args": args, **more}
        self._process.stdin.write(json.dumps(said) + "\n")
        self._process.stdin.flush()
        told = self._answers.get(timeout=PATIENCE)
        assert told["id"] == number
        if "error" in told:
            raise Failed(told["error"])
        return told["result"]

    def message(self, who: str) -> dict[str, Any]:
        told = self.messages.get(timeout=PATIENCE)
        assert who == told["who"], told
        message: dict[str, Any] = told["message"]
        return message

    def event(self, kind: str) -> dict[str, Any]:
        """The next of a type."""
        while True:
            event: dict[str, Any] = self.events.get(timeout=PATIENCE)["event"]
            if event["type"] == kind:
                return event

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
