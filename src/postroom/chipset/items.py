"""How often a work item was started: one record for each item that is under way, in `.postroom/`.

A start is an agent and the moment of the assignment, so that whoever notices it (the mayor who made it, a witness)
notes the same one, and it counts once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Unreadable
from ..model.hashing import blake2b
from .folder import ENDING, OWN
from .stamps import text_of, time_in

if TYPE_CHECKING:
    from datetime import datetime

    from .folder import StateFolder
    from .hooks import Hook

_ITEMS = (OWN, "witness", "items")


class Item(Struct, frozen=True, kw_only=True):
    """What is known of one work item."""

    bead: str
    starts: tuple[str, ...] = ()  # each as `time agent`
    human_told: int = -1  # at how many restarts a human was told last

    @property
    def restarts(self) -> int:
        return max(0, len(self.starts) - 1)

    def seconds_since_start(self, now: datetime) -> float:
        """Since it was last given to somebody. What lies ahead is somebody's wrong clock."""
        times = [time for start in self.starts if (time := time_in(start.partition(" ")[0])) is not None]
        return min(((now - time).total_seconds() for time in times if time <= now), default=math.inf)


class Items:
    """The items under way in a state folder. Call under its lock."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder

    def get(self, bead: str) -> Item:
        try:
            fields = self._folder.read(*_ITEMS, _file(bead)) or {}
        except Unreadable:  # counted anew
            fields = {}
        told = fields.get("human_told")
        return Item(
            bead=bead, starts=_texts(fields.get("starts")), human_told=told if isinstance(told, int) else -1
        )

    def note(self, hook: Hook) -> Item:
        """What lies on this hook was put there at that time."""
        item, at = self.get(hook.item.bead_id), hook.item.assigned_at
        start = f"{'' if at is None else text_of(at)} {hook.agent_id}"
        return item if start in item.starts else self._write(replace(item, starts=(*item.starts, start)))

    def told(self, item: Item) -> Item:
        """A human knows, as of so many restarts."""
        return self._write(replace(item, human_told=item.restarts))

    def close(self, bead: str) -> None:
        """It is done; whoever takes it up again begins anew."""
        self._folder.remove(*_ITEMS, _file(bead))

    def _write(self, item: Item) -> Item:
        fields = {"bead": item.bead, "starts": list(item.starts), "human_told": item.human_told}
        self._folder.write(fields, *_ITEMS, _file(item.bead))
        return item


def _file(bead: str) -> str:
    """A bead may be called anything; a file may not."""
    return blake2b(bead.encode(), digest_size=16).hexdigest() + ENDING


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()
