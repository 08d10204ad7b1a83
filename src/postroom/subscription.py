"""One wish to hear of what happens: what it wants, how far it has heard, and telling it.

It refuses to know where the news come from. Above it stands `hub`, below it `wire`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .wire import events, rpc
from .wire.event_filter import wanted
from .wire.inbox_records import milliseconds

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from .model.change import Cursor
    from .room import Room
    from .wire.event_filter import EventFilter
    from .wire.events import Event

SLICE = 200  # changes looked at in one go
RESYNC = "resync"  # the type of the event that says: some of the past cannot be told any more


class Subscription:
    """One wish to hear."""

    def __init__(
        self,
        id: str,
        room: Room,
        push: Callable[[dict[str, Any]], bool],
        filter: EventFilter,
        since: Cursor,
        heard: set[str],
        mailbox: str | None = None,
    ) -> None:
        self.id = id
        self.room = room
        self.push = push
        self.filter = filter
        self.cursor = since  # it has heard of everything up to here
        self.sequence = 0  # notices it has taken
        self.is_behind = True  # until its caller knows that it has subscribed, and has heard what it missed
        self.is_over = False
        self.catching_up: asyncio.TimerHandle | asyncio.Future[Any] | None = None
        self.slice = SLICE  # changes it is told of in one go; fewer for who reads slowly, or large letters
        self.kept: deque[Event] | None = None  # what was emitted while it is found out what else it hears
        self._mailbox = mailbox  # whose letters it is told of as delivered: nobody hands them over
        self._half = heard  # what it was told of a change of which it has not heard all

    def tell(self, found: Sequence[Event], after: Cursor) -> bool:
        """Tell what it wants to hear of. False: it does not read; its cursor stands behind what it was told."""
        if after.number <= self.cursor.number:  # heard while it caught up
            return True
        known: Iterable[Event] = self._with_arrivals(found) if self._mailbox is not None else found
        heard = [event for event in known if event.number > self.cursor.number and wanted(event, self.filter)]
        for event, following in itertools.zip_longest(heard, heard[1:]):
            is_last = following is None or following.number != event.number  # of those it wants to hear
            if event.id not in self._half:
                seen = replace(self.cursor, number=event.number if is_last else event.number - 1)
                if not self._say(events.map_event(event, self.filter.spelt), seen):
                    return False
                self.cursor = seen
            self._half = set() if is_last else self._half | {event.id}
        self.cursor = after
        return True

    def _with_arrivals(self, found: Sequence[Event]) -> Iterator[Event]:
        """Where no types were asked for, by the word for which the SDK's clients wait."""
        type = events.DELIVERED if self.filter.event_types is not None else events.DELIVERED_IN_THE_SDK
        for event in found:
            yield event
            if self._mailbox is not None and events.is_for(event, self._mailbox):
                yield events.arrived(event, self._mailbox, type)

    def tell_once(self, event: Event) -> None:
        """Of something that leaves no trace."""
        if self.kept is not None:
            self.kept.append(event)
        elif not self.is_behind and wanted(event, self.filter):
            self._say(events.map_event(event, self.filter.spelt), self.cursor)

    def tell_kept(self) -> None:
        """It has heard all that happened before."""
        kept, self.kept = self.kept, None
        for event in kept or ():
            self.tell_once(event)

    def tell_resync(self, cursor: Cursor) -> bool:
        """Was it taken? Else it is to be told again: what it missed is missed."""
        now, known = milliseconds(self.room._office.now().wall), self.room.cursor()
        told = {"id": f"{RESYNC}-{known.number}", "type": RESYNC, "timestamp": now, "data": {}}
        if not self._say(told, known):
            return False
        self.cursor = cursor
        return True

    def _say(self, told: dict[str, Any], cursor: Cursor) -> bool:
        """Was it taken? What was not has no number: whoever counts would miss it."""
        params = {
            "subscriptionId": self.id,
            "sequenceNumber": self.sequence + 1,
            "eventId": told["id"],
            "timestamp": told["timestamp"],
            "cursor": str(cursor),
            "event": told,
        }
        is_taken = self.push(rpc.notification("map/event", params))
        self.sequence += is_taken
        return is_taken
