"""Messages for us that the SDK's server put aside, because nobody there has the id that they are for.

That server tells its agents the connection of who wrote to them, and the SDK's `reply` answers to that. No agent
has such an id. Nor does anybody have the id that an agent of ours had before the link was cut. Both are queued
there for good; but the server's events tell of them, and can be asked for: `message.queued` says for whom,
`message.sent` what was said.

A wish to hear events is needed to ask for them. Ours name a sender that nobody is, so nothing is ever said to us
of them unasked: that server loses connections to which it says two things at once.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from ..lines.line import MapRefusal
from ..wire.map_names import REPLAY
from .asking import MANY, MOST_PAGES

if TYPE_CHECKING:
    from collections.abc import Container

    from ..lines.line import Line

SUBSCRIBE = "map/subscribe"
QUEUED, SENT = "message.queued", "message.sent"
NOBODY = "nobody"
AT_ONCE = 1.0  # seconds between two looks while an answer may come
AWAITED = 60.0  # seconds in which it may: after a letter, and after we were away
SELDOM = 15.0  # seconds between two looks otherwise
_TIME = 10  # the characters of an id that say when it was made


class Stranded:
    """What one server put aside. `since`: the last event that an earlier visit saw."""

    def __init__(self, line: Line, since: str) -> None:
        self._line = line
        self.since = since
        self._wishes: dict[str, str] = {}
        self._looked, self._wrote = float("-inf"), monotonic()

    async def begin(self) -> None:
        """A server that cannot tell has nothing for us."""
        try:
            for kind in (QUEUED, SENT):
                told = await self._line.ask(SUBSCRIBE, filter={"eventTypes": [kind], "fromAgents": [NOBODY]})
                self._wishes[kind] = str(told.get("subscriptionId"))
        except MapRefusal:
            self._wishes = {}

    def wrote(self) -> None:
        """A letter went there: an answer may come soon."""
        self._wrote = monotonic()

    @property
    def wait(self) -> float:
        """Seconds until the next look."""
        if not self._wishes:
            return SELDOM
        every = AT_ONCE if monotonic() - self._wrote < AWAITED else SELDOM
        return max(every - (monotonic() - self._looked), 0.0)

    async def found(self, ours: Container[str]) -> list[tuple[str, dict[str, Any]]]:
        """Messages since the last look for these ids, each with the one it was for."""
        self._looked = monotonic()
        messages: list[tuple[str, dict[str, Any]]] = []
        for _ in range(MOST_PAGES if self._wishes else 0):
            events = await self._events(QUEUED, **({"since": self.since} if self.since else {}))
            for event in events:
                id = event["data"].get("agentId")
                if isinstance(id, str) and id in ours:
                    messages += [(id, message) for message in await self._message(event)]
                self.since = event["id"]
            if len(events) < MANY:
                break
        return messages

    async def _message(self, queued: dict[str, Any]) -> list[dict[str, Any]]:
        """What was put aside by that event. It was sent in the moment before."""
        id = str(queued["data"].get("messageId"))
        begin = id[:_TIME].ljust(len(id), "0")
        events = await self._events(SENT, since=begin, until=queued["id"])
        sent = [event["data"].get("message") for event in events]
        return [message for message in sent if isinstance(message, dict) and message.get("id") == id]

    async def _events(self, kind: str, **span: str) -> list[dict[str, Any]]:
        try:
            told = await self._line.ask(REPLAY, subscriptionId=self._wishes.get(kind), limit=MANY, **span)
        except MapRefusal:
            self._wishes = {}
            return []
        rows = told.get("items")
        return [row for row in rows if isinstance(row, dict) and _is_sound(row)] if isinstance(rows, list) else []


def _is_sound(event: dict[str, Any]) -> bool:
    return isinstance(event.get("id"), str) and isinstance(event.get("data"), dict)
