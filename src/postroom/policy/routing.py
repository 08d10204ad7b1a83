"""Which of several who can do it gets a letter: the least busy first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class Candidate(Struct, frozen=True, kw_only=True):
    """An agent that could take a letter, and how much it has to do."""

    name: str
    tasks: int = 0  # it works on now
    most_tasks: int = 1  # it wants at most
    letters: int = 0  # in its inbox, not looked at yet
    active_at: datetime | None = None  # its last sign of doing something


def least_busy(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Who has a place free first; then by open tasks, by unread letters, by who has been idle the longest."""

    def burden(candidate: Candidate) -> tuple[bool, int, int, datetime, str]:
        full = candidate.tasks >= candidate.most_tasks
        return full, candidate.tasks, candidate.letters, candidate.active_at or _LONG_AGO, candidate.name

    return sorted(candidates, key=burden)
