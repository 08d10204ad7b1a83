"""What a look at a room's health says: findings, one or more for each check, and what was done about them."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

# (done, total): called now and then while work goes on. A total of 0 means that nobody knows it.
Progress: TypeAlias = Callable[[int, int], object]


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    NOTE = 1  # worth knowing; nothing is wrong
    WARNING = 2  # something will go wrong, or is slower or less safe than it should be
    ERROR = 3  # something is wrong

    def __str__(self) -> str:
        return self.name.lower()


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing a check found."""

    check: str  # the check's name, such as "integrity"
    level: Level
    what: str
    hint: str = ""  # what to do about it
    repaired: bool = False  # `what` says what was wrong; it is mended now


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All findings, in the order of the checks."""

    findings: tuple[Finding, ...]

    @property
    def worst(self) -> Level:
        """The worst of what is left; what was repaired does not count."""
        return max((found.level for found in self.findings if not found.repaired), default=Level.OK)

    @property
    def is_healthy(self) -> bool:
        """Nothing is wrong, and nothing will be."""
        return self.worst < Level.WARNING


def ok(check: str, what: str) -> Finding:
    return Finding(check=check, level=Level.OK, what=what)


def note(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.NOTE, what=what, hint=hint, repaired=repaired)


def warning(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.WARNING, what=what, hint=hint, repaired=repaired)


def error(check: str, what: str, hint: str = "", *, repaired: bool = False) -> Finding:
    return Finding(check=check, level=Level.ERROR, what=what, hint=hint, repaired=repaired)


class BackupReport(Struct, frozen=True, kw_only=True):
    """A copy of a room that was made, or put back."""

    path: str  # of the copy; of a restore: of the room
    letters: int
    bytes: int
    seconds: float
    kept: str | None = None  # of a restore: where the room that was there before is kept
