"""A stretch of the past, for those who catch up: found once for all who stand at the same place, and what is heard
of it once for all who may hear the same.

It refuses to know subscribers. Above it stands `hub`, below it `wire`.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

from .wire import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .model.change import Change, Cursor
    from .room import Room
    from .service.authorize import Principal
    from .wire.events import Event

log = logging.getLogger("postroom")


class Stretch:
    """Some changes; `after` stands behind the last of them."""

    def __init__(self, room: Room, changes: Sequence[Change], after: Cursor) -> None:
        self._room = room
        self.changes = changes
        self.after = after
        self._heard: dict[Principal, list[Event] | None] = {}

    @cached_property
    def past(self) -> events.Past:
        return events.Past(self._room, self.changes)

    def heard_by(self, room: Room) -> list[Event] | None:
        """What this caller may hear of it; None: a fault of ours, and it hears of it later."""
        who = room.principal
        if who not in self._heard:
            self._heard[who] = heard(room, self.past)
        return self._heard[who]


def heard(room: Room, past: events.Past) -> list[Event] | None:
    """The same, found anew."""
    try:
        return events.events(room, past)
    except BaseException as fault:
        if not isinstance(fault, Exception):
            raise
        log.exception("%s could not be told of %d changes", room.principal.name, len(past.changes))
        return None
