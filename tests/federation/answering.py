"""A peer that answers as a test says: in time, with a refusal, or never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.federation.systems import System
from tests.map_server.people import Person, visitor


@contextmanager
def far(here: System, **said: Any) -> Iterator[Person]:
    """The peer, connected."""
    with ExitStack() as stack:
        person = stack.enter_context(visitor(here.port))
        person.join(here.token, "gateway", name="far")  # type: ignore[attr-defined]
        person.ask("map/federation/connect", systemId="far", **{"postroom": {"version": "1"}, **said})
        yield person


def routed(person: Person, timeout: float = 20) -> dict[str, Any]:
    """The next letter, or the next few, that it is sent."""
    while True:
        told = person.hear(timeout)
        if told.get("method") == "map/federation/route":
            return told


def answer(person: Person, asked: dict[str, Any], **told: Any) -> None:
    reply = told or {"result": {"routed": True, "messageId": "x"}}
    person.line.send(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}))


def refuse(person: Person, asked: dict[str, Any], code: int, why: str) -> None:
    answer(person, asked, error={"code": code, "message": why})
