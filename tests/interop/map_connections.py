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
            result = json.loads(line)
            if "message" in result:
                self.messages.put(result)
            elif "event" in result:
                self.events.put(result)
            else:
                self._answers.put(result)

    def do(self, what: str, who: str = "", *args: Any, **more: Any) -> Any:
        number = next(self._numbers)
        assert self._process.stdin is not None
        params = {"id": number, "what": what, "who": who, "args": args, **more}
        self._process.stdin.write(json.dumps(params) + "\n")
        self._process.stdin.flush()
        result = self._answers.get(timeout=PATIENCE)
        assert result["id"] == number
        if "error" in result:
            raise Failed(result["error"])
        return result["result"]

    def message(self, who: str) -> dict[str, Any]:
        result = self.messages.get(timeout=PATIENCE)
        assert who == result["who"], result
        message: dict[str, Any] = result["message"]
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
