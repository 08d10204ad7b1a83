"""Handoff notes: `handoff/<agent>/<time>.json`, what a session leaves behind when it ends in the middle of work.

Append-only: a note is written once, under a name that no other note has, and never changed or removed by us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..errors import Invalid, Unreadable
from ..model.values import check_label, check_line, check_text
from .folder import ENDING
from .hooks import LONGEST_BEAD
from .stamps import after, name_of, time_in_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ..clock import Clock
    from .folder import Fields, StateFolder

HANDOFF = "handoff"
LONGEST_LINE, LONGEST_SUMMARY, MOST_REMAINING = 500, 100_000, 1000


class Note(Struct, frozen=True, kw_only=True):
    """One note, and the file it stands in."""

    bead: str
    session_outgoing: str = ""
    summary: str = ""
    remaining: tuple[str, ...] = ()
    branch: str = ""
    last_commit: str = ""
    filename: str = ""

    @property
    def written_at(self) -> datetime | None:
        """As its name says."""
        return time_in_name(self.filename)

    def to_dict(self) -> Fields:
        """As it stands in the file."""
        return {
            "bead": self.bead,
            "session_outgoing": self.session_outgoing,
            "summary": self.summary,
            "remaining": list(self.remaining),
            "branch": self.branch,
            "last_commit": self.last_commit,
        }


class Notes:
    """All handoff notes of a state folder."""

    def __init__(self, folder: StateFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def write(
        self,
        agent: str,
        *,
        bead: str,
        summary: str,
        session_outgoing: str = "",
        remaining: Sequence[str] = (),
        branch: str = "",
        last_commit: str = "",
    ) -> Note:
        """Leave a note. It is later than all before it, whatever the clock says."""
        note = Note(
            bead=check_label(bead, "bead", LONGEST_BEAD),
            summary=check_text(summary, "summary", LONGEST_SUMMARY),
            session_outgoing=check_line(session_outgoing, "session_outgoing", LONGEST_LINE),
            remaining=_checked(remaining),
            branch=check_line(branch, "branch", LONGEST_LINE),
            last_commit=check_line(last_commit, "last_commit", LONGEST_LINE),
        )
        home = self._home(agent)
        with self._folder.lock():
            return self._append(note, home)

    def _append(self, note: Note, home: str) -> Note:
        names = self._folder.names(HANDOFF, home)
        time = after(self._clock.now().wall, time_in_name(names[-1]) if names else None)
        while True:
            name = f"{name_of(time)}{ENDING}"
            try:
                self._folder.add(note.to_dict(), HANDOFF, home, name)
            except FileExistsError:  # a stranger was quicker
                time = after(time, time)
                continue
            return Note(**_fields_of(note), filename=name)

    def all(self, agent: str) -> list[Note]:
        """Every note, the oldest first. What cannot be read is left out; `broken` says what that is."""
        return self._read(agent)[0]

    def latest(self, agent: str) -> Note | None:
        """The last one that can be read: where the next session begins."""
        notes = self.all(agent)
        return notes[-1] if notes else None

    def broken(self, agent: str) -> list[Unreadable]:
        return self._read(agent)[1]

    def _read(self, agent: str) -> tuple[list[Note], list[Unreadable]]:
        home = self._home(agent)
        notes: list[Note] = []
        broken: list[Unreadable] = []
        for name in self._folder.names(HANDOFF, home):
            try:
                fields = self._folder.read(HANDOFF, home, name)
                if fields is not None:
                    notes.append(_note_in(fields, name))
            except Unreadable as wrong:
                broken.append(wrong)
        return notes, broken

    def _home(self, agent: str) -> str:
        return self._folder.spelling(agent, HANDOFF)


def _note_in(fields: Fields, name: str) -> Note:
    bead = fields.get("bead")
    if not isinstance(bead, str) or not bead:
        raise Unreadable(f"{name}: it names no bead")
    texts = {
        key: value
        for key in ("session_outgoing", "summary", "branch", "last_commit")
        if isinstance(value := fields.get(key), str)
    }
    remaining = fields.get("remaining")
    left = tuple(item for item in remaining if isinstance(item, str)) if isinstance(remaining, list) else ()
    return Note(bead=bead, remaining=left, filename=name, **texts)


def _fields_of(note: Note) -> dict[str, Any]:
    return note.to_dict() | {"remaining": note.remaining}


def _checked(remaining: Any) -> tuple[str, ...]:
    if not isinstance(remaining, (list, tuple)) or len(remaining) > MOST_REMAINING:
        raise Invalid(f"must be a list of at most {MOST_REMAINING} texts", field="remaining")
    return tuple(check_text(item, "remaining", LONGEST_SUMMARY) for item in remaining)
