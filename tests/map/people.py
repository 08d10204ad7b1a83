"""Programs that speak MAP over a WebSocket to a post room that runs."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.server.http.running import PATIENCE

QUIET = 0.6  # seconds in which something would have come


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.code = error["code"]
        self.data = error["data"]


class Person:
    """One connection. What comes unasked is kept until it is looked for."""

    def __init__(self, line: ClientConnection, *, is_mute: bool = False) -> None:
        self.line = line
        self.is_mute = is_mute  # does it leave questions unanswered?
        self._numbers = itertools.count(1)
        self.messages: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.welcome: dict[str, Any] = {}
        self.id = ""

    def say(self, method: str, /, **params: Any) -> int:
        number = next(self._numbers)
        self.line.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        return number

    def ask(self, method: str, /, **params: Any) -> Any:
        number = self.say(method, **params)
        while True:
            result = self.hear()
            if result.get("id") == number and "method" not in result:  # what it asks has numbers of its own
                if "error" in result:
                    raise Refused(result["error"])
                return result["result"]

    def hear(self, timeout: float = PATIENCE) -> dict[str, Any]:
        result: dict[str, Any] = json.loads(self.line.recv(timeout=timeout))
        if result.get("method") == "map/message":
            self.messages.append(result["params"]["message"])
        elif result.get("method") == "map/event":
            self.events.append(result["params"])
        elif result.get("method") == "map/ping" and not self.is_mute:
            self.line.send(json.dumps({"jsonrpc": "2.0", "id": result["id"], "error": {"code": -32601}}))
        return result

    def message(self) -> dict[str, Any]:
        """The next one that is handed to it."""
        while not self.messages:
            self.hear()
        return self.messages.pop(0)

    def event(self, kind: str) -> dict[str, Any]:
        """The next of a type."""
        while True:
            for event in self.events:
                if event["event"]["type"] == kind:
                    self.events.remove(event)
                    return event
            self.hear()

    def hears_nothing(self) -> bool:
        try:
            while True:
                self.hear(QUIET)
        except TimeoutError:
            return not self.messages

    def until(self, is_so: Any) -> None:
        """Listen until something is so."""
        end = time.monotonic() + PATIENCE
        while not is_so():
            if time.monotonic() > end:
                raise TimeoutError("it did not come to be")
            with suppress(TimeoutError):
                self.hear(0.05)

    def join(self, token: str | None = None, kind: str = "agent", **more: Any) -> dict[str, Any]:
        if token is not None:
            more["auth"] = {"method": "api-key", "credential": token}
        self.welcome = self.ask("map/connect", protocolVersion=1, participantType=kind, **more)
        return self.welcome

    def register(self, **message: Any) -> dict[str, Any]:
        agent: dict[str, Any] = self.ask("map/agents/register", **message)["agent"]
        self.id = agent["id"]
        return agent

    def send(self, to: Any, payload: Any = None, **meta: Any) -> dict[str, Any]:
        more = {"meta": meta} if meta else {}
        result: dict[str, Any] = self.ask("map/send", to=to, payload=payload, **more)
        return result


@contextmanager
def visitor(port: int, **more: Any) -> Iterator[Person]:
    """Somebody who has connected, and said nothing."""
    with connect(f"ws://127.0.0.1:{port}/map", compression=None, open_timeout=PATIENCE, **more) as line:
        yield Person(line)


@contextmanager
def agent(port: int, token: str | None, name: str, **message: Any) -> Iterator[Person]:
    """An agent that has registered."""
    with visitor(port) as person:
        person.join(token, name=name)
        person.register(name=name, **message)
        yield person


def refused(person: Person, method: str, /, **message: Any) -> int:
    """By which number."""
    with pytest.raises(Refused) as result:
        person.ask(method, **message)
    return int(result.value.code)


def closed(person: Person) -> int:
    """With which code it is ended."""
    with suppress(ConnectionClosed):
        while True:
            person.hear()
    assert person.line.close_code is not None
    return person.line.close_code
