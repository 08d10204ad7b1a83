"""How long things are kept. Only settled mail is ever old enough to go."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from .limits import Limits


def archive_cutoff(now: datetime, limits: Limits) -> datetime:
    return now - timedelta(seconds=limits.archive_after)


def purge_cutoff(now: datetime, limits: Limits) -> datetime | None:
    """Letters settled before this may go; None keeps all."""
    return None if limits.retain_for == 0 else now - timedelta(seconds=limits.retain_for)


def memory_cutoff(now: datetime, limits: Limits) -> datetime:
    """Ids and keys forgotten before this need not be remembered any more."""
    return now - timedelta(seconds=limits.remember_for)
