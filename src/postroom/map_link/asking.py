"""What is asked of the server in several calls: everybody who is there, everything that came while we were away.

A server need not know more than the first; what it refuses is as if there was nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..wire.map_names import REPLAY
from .line import MapRefusal

if TYPE_CHECKING:
    from .line import Line

LIST = "map/agents/list"
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
