"""Asking MAP's methods of the table as a session would."""

from __future__ import annotations

from typing import Any

import msgspec

from postroom import Room
from postroom.core.verb import from_params
from postroom.map.session import MAP
from postroom.server.requests import in_json


def ask(room: Room, name: str, /, **message: Any) -> dict[str, Any]:
    request = from_params(MAP[f"map/{name}"], message)
    answer: dict[str, Any] = in_json(request, request.run(room.core, room.principal))
    assert answer == msgspec.json.decode(msgspec.json.encode(answer))  # nothing but plain JSON
    return answer


def register_all(room: Room, *rows: tuple[str, str | None, str | None, list[str]]) -> None:
    """Agents, each with its parent, role and scopes."""
    for name, parent, role, scopes in rows:
        params: dict[str, Any] = {"agent_id": name, "name": name.title(), "scopes": scopes}
        params |= {"parent": parent} if parent else {}
        ask(room, "agents/register", **params, **({"role": role} if role else {}))
