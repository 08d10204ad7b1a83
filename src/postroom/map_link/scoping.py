"""Our agents, in their scopes at the server. A server that puts who registers into the scopes it names says so in
its answer; the SDK's own does not, and knows scopes by ids of its own: there each is looked for by its name, made
where there is none, and joined.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..lines.line import MapRefusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..lines.line import Line

LIST, CREATE, JOIN = "map/scopes/list", "map/scopes/create", "map/scopes/join"


class Scoping:
    """Of one visit."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}  # the server's, by the names we say

    def id_of(self, name: str) -> str:
        return self._ids.get(name, name)

    def name_of(self, id: str) -> str:
        return next((name for name, theirs in self._ids.items() if theirs == id), id)

    async def join(self, line: Line, agent: Mapping[str, Any], scopes: Iterable[str]) -> None:
        """`agent`: what the server answered to who registered. It may know no scopes at all."""
        has = agent.get("scopes")
        for name in scopes:
            if not (isinstance(has, list) and name in has):
                with suppress(MapRefusal):
                    await line.ask(JOIN, scopeId=await self._found(line, name), agentId=agent["id"])

    async def _found(self, line: Line, name: str) -> str:
        if name not in self._ids:
            rows = (await line.ask(LIST)).get("scopes")
            ids = (_id_of(row) for row in (rows if isinstance(rows, list) else []) if _is_called(row, name))
            found = next((id for id in ids if id), None)
            self._ids[name] = found or _id_of((await line.ask(CREATE, name=name)).get("scope")) or name
        return self._ids[name]


def _is_called(row: Any, name: str) -> bool:
    return isinstance(row, dict) and name in (row.get("id"), row.get("name"))


def _id_of(row: Any) -> str | None:
    id = row.get("id") if isinstance(row, dict) else None
    return id if isinstance(id, str) and id else None
