"""What is asked of the server in several calls: everybody who is there, everything that came while we were away,
whether a message reached somebody.

A server need not know more than who is there; what else it refuses is as if there was nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..lines.line import MapRefusal
from ..wire.map_names import REPLAY, SEND
from ..wire.map_problems import NO_AGENT
from .neighbours import is_here

if TYPE_CHECKING:
    from ..lines.line import Line

LIST = "map/agents/list"
GET = "map/agents/get"
RECENT = "mail/recent"
MANY = 200  # messages asked for in one go, as agent-inbox does
MOST_PAGES = 50
_SENT = ["message.sent", "message_sent"]  # both spellings of the event


async def everybody(line: Line) -> list[Any]:
    """The rows of all agents."""
    rows: list[Any] = []
    cursor: dict[str, Any] = {}
    for _ in range(MOST_PAGES):
        told = await line.ask(LIST, **cursor)
        rows += _list(told.get("agents"))
        if not isinstance(told.get("nextCursor"), str):
            break
        cursor = {"cursor": told["nextCursor"]}
    return rows


async def of_one_session(line: Line, session: str) -> list[Any]:
    """Those on one connection, by a filter that the SDK's own server knows."""
    with suppress(MapRefusal):
        return _list((await line.ask(LIST, sessionId=session)).get("agents"))
    return []


async def hand_over(line: Line, message: dict[str, Any], id: str) -> dict[str, Any]:
    """Send it to one agent. A server may take messages for anybody, and lose those for nobody: so whether its
    agent is still there is asked right behind it. MapRefusal: it was not taken, or had nobody to go to.
    """
    told, found = await line.ask_in_turn((SEND, message), (GET, {"agentId": id}))
    if isinstance(told, MapRefusal):
        raise told
    row = None if isinstance(found, MapRefusal) else found.get("agent")
    if not (is_here(row) if isinstance(row, dict) else await _is_listed(line, id)):
        raise MapRefusal({"code": NO_AGENT, "message": "its agent had left"})
    return told


async def _is_listed(line: Line, id: str) -> bool:
    """A server that cannot tell of one agent tells of all."""
    rows = await everybody(line)
    return any(isinstance(row, dict) and row.get("id") == id and is_here(row) for row in rows)


async def one(line: Line, id: str) -> dict[str, Any]:
    """An agent's row; empty where there is none."""
    with suppress(MapRefusal):
        row = (await line.ask(GET, agentId=id)).get("agent")
        return row if isinstance(row, dict) else {}
    return {}


async def missed(line: Line, since: int) -> list[dict[str, Any]]:
    """Messages that may have come while we were away. `since`: milliseconds by the server's clock; 0 at first."""
    found: list[Any] = []
    with suppress(MapRefusal):
        found += _list((await line.ask(RECENT, limit=MANY)).get("messages"))
    if since:
        with suppress(MapRefusal):
            found += await _replayed(line, since)
    return [message for message in found if isinstance(message, dict)]


async def _replayed(line: Line, since: int) -> list[Any]:
    found: list[Any] = []
    place: dict[str, Any] = {"fromTimestamp": since}
    for _ in range(MOST_PAGES):
        told = await line.ask(REPLAY, **place, filter={"eventTypes": _SENT}, limit=MANY)
        events = [event for event in _list(told.get("events")) if isinstance(event, dict)]
        found += [_message(event.get("event")) for event in events]
        if not told.get("hasMore") or not events:
            break
        place = {"afterEventId": events[-1].get("eventId")}
    return found


def _message(event: Any) -> Any:
    """The message that an event tells of."""
    data = event.get("data") if isinstance(event, dict) else None
    return data.get("message", data) if isinstance(data, dict) else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
