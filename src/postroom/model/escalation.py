"""A question that climbs: who asked, why, which rung it has reached, and whether it is answered."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from .message import Priority

ESCALATION = "escalation"  # the kind of its letters, and the name of the data part they carry


class Escalation(Struct, frozen=True, kw_only=True):
    """One escalation. Its letters tell it to people; this is what the house needs to let it climb."""

    id: str  # ESC-…
    asker: str
    reason: str
    subject: str
    priority: Priority
    rungs: tuple[str, ...]  # above the asker, the lowest first
    rung: int = 0  # the place in `rungs` that it has reached
    letters: tuple[str, ...]  # ids, one for each rung that got it
    thread: str
    opened_at: datetime
    since: datetime  # when it came to this rung
    due_at: datetime | None = None  # when it climbs, or its asker is told that nobody is left
    status: Literal["open", "answered", "resolved"] = "open"
    closed_at: datetime | None = None
    closed_by: str | None = None

    @property
    def reached(self) -> tuple[str, ...]:
        """Everyone it was put to, the lowest first."""
        return self.rungs[: self.rung + 1]

    @property
    def waits_for(self) -> str | None:
        """Whose answer it waits for now."""
        return self.rungs[self.rung] if self.status == "open" else None
