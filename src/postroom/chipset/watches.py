"""What a witness must not forget of a stalled agent: one file for each, in `.postroom/`, shared by all witnesses.

It says what was asked, when, and whether it was told on. It is about one stall of one assignment: when the agent
moves again, or holds something else, it is about nothing and goes.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ..errors import Unreadable
from .folder import ENDING, OWN
from .stamps import text_of

if TYPE_CHECKING:
    from .folder import StateFolder
    from .hooks import Hook

_WATCHES = (OWN, "witness", "agents")


class Watch(Struct, frozen=True, kw_only=True):
    """A stall, as far as it has gone."""

    agent: str
    about: str  # which stall: see `about`
    seen_at: datetime  # when a witness first saw the hook like this
    asked_at: datetime | None = None  # the first nudge since the last answer
    nudged_at: datetime | None = None  # the last nudge
    by: str = ""  # whose nudge: there the answer comes
    escalated: bool = False


class Watches:
    """All watches of a state folder. Call under its lock."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder

    def get(self, hook: Hook) -> Watch | None:
        """What is known of this very stall. A file that cannot be read is forgotten: mail has keys, too."""
        try:
            fields = self._folder.read(*_WATCHES, self._file(hook.agent_id))
            watch = None if fields is None else msgspec.convert(fields, Watch)
        except (Unreadable, msgspec.ValidationError):
            return None
        return watch if watch is not None and watch.about == about(hook) else None

    def keep(self, watch: Watch) -> Watch:
        fields = msgspec.to_builtins(watch)
        self._folder.write(fields, *_WATCHES, self._file(watch.agent))
        return watch

    def forget(self, agent: str) -> None:
        if self._folder.exists(*_WATCHES, self._file(agent)):
            self._folder.remove(*_WATCHES, self._file(agent))

    def _file(self, agent: str) -> str:
        return self._folder.spelling(agent, *_WATCHES, ending=ENDING)


def about(hook: Hook) -> str:
    """Which item, since which assignment and which activity."""
    item = hook.work_item
    times = (None if item is None else item.assigned_at, hook.last_activity)
    return " ".join(["" if item is None else item.bead_id, *("-" if t is None else text_of(t) for t in times)])
