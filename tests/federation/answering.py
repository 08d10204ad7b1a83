"""A peer that answers as a test says: in time, with a refusal, or never."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import Any

from tests.federation.systems import System
from tests.map.people import Person, visitor


@contextmanager
def far(here: System, **message: Any) -> Iterator[Person]:
    """The peer, connected."""
    with ExitStack() as stack:
        person = stack.enter_context(visitor(here.port))
        person.join(here.token, "gateway", name="far")  # type: ignore[attr-defined]
        person.ask("map/federation/connect", systemId="far", **{"postroom": {"version": "1"}, **message})
        yield person


def routed(person: Person, timeout: float = 20) -> dict[str, Any]:
    """The next letter, or the next few, that it is sent."""
    end = monotonic() + timeout
    while True:
        result = person.hear(max(0.0, end - monotonic()))
        if result.get("method") == "map/federation/route":
            return result


def answer(person: Person, request: dict[str, Any], **result: Any) -> None:
    reply = result or {"result": {"routed": True, "messageId": "x"}}
    person.line.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}))


def refuse(person: Person, request: dict[str, Any], code: int, why: str) -> None:
    answer(person, request, error={"code": code, "message": why})
