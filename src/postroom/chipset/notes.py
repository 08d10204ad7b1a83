"""Handoff notes and nudges.

A note, `handoff/<agent>/<time>.json`, describes unfinished work for the next session. It is written once, under a
name that no other note has, and never changed or removed.

A nudge, `nudge/<agent>/latest.json`, is a short message in a slot of one: the latest wins, without history. Each
nudge has a time later than the one it replaces, whatever the clock says, because a reader acts only on nudges
newer than the last that it handled. A slot that cannot be read holds no nudge.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..errors import Invalid, Unreadable
from ..model.names import check_agent
from ..model.values import check_label, check_line, check_text
from ..store.files.layouts.base import text_of, time_or_none
from .folder import ENDING, OWN, after, name_of, time_in_name
from .hooks import LONGEST_BEAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..clock import Clock
    from .folder import Fields, StateFolder


HANDOFF = "handoff"
LONGEST_LINE, LONGEST_SUMMARY, MOST_REMAINING = 500, 100_000, 1000


class Note(Struct, frozen=True, kw_only=True):
    """One handoff note, and the name of its file."""

    bead: str
    session_outgoing: str = ""
    summary: str = ""
    remaining: tuple[str, ...] = ()
    branch: str = ""
    last_commit: str = ""
    filename: str = ""

    @property
    def written_at(self) -> datetime | None:
        """The time in its file's name."""
        return time_in_name(self.filename)

    def to_dict(self) -> Fields:
        """Return the fields of the file."""
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
        """Write a note. Its time is later than that of all notes before it, whatever the clock says."""
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
        # The name of a note is its time, and the latest name is the latest note: a clock set back must not hide
        # it.
        names = self._folder.names(HANDOFF, home)
        time = after(self._clock.now().wall, time_in_name(names[-1]) if names else None)
        while True:
            name = f"{name_of(time)}{ENDING}"
            try:
                self._folder.add(note.to_dict(), HANDOFF, home, name)
            except FileExistsError:  # another program was faster
                time = after(time, time)
                continue
            return replace(note, filename=name)

    def all(self, agent: str) -> list[Note]:
        """Return every readable note, the oldest first. `broken` returns the errors of the others."""
        return self._read(agent)[0]

    def latest(self, agent: str) -> Note | None:
        """Return the last readable note, with which the next session starts."""
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


def _checked(remaining: Any) -> tuple[str, ...]:
    if not isinstance(remaining, (list, tuple)) or len(remaining) > MOST_REMAINING:
        raise Invalid(f"must be a list of at most {MOST_REMAINING} texts", field="remaining")
    return tuple(check_text(item, "remaining", LONGEST_SUMMARY) for item in remaining)


# Nudges

NUDGE, SLOT = "nudge", "latest.json"
HEALTH_CHECK, STALL_WARNING, RESPONSE = "health_check", "stall_warning", "nudge_response"
TYPES = (HEALTH_CHECK, STALL_WARNING, "priority_change", "abort", "sync_request", RESPONSE)
LONGEST = 100_000  # characters of a message
_HANDLED = (OWN, "nudges")  # the time of the last nudge that each agent handled
_log = logging.getLogger("postroom")


class Nudge(Struct, frozen=True, kw_only=True):
    """The nudge in a slot. `sender` is `from` in the file."""

    sender: str
    type: str
    message: str
    timestamp: datetime
    requires_response: bool = False

    def to_dict(self) -> Fields:
        """Return the fields of the file."""
        return {
            "from": self.sender,
            "type": self.type,
            "message": self.message,
            "timestamp": text_of(self.timestamp),
            "requires_response": self.requires_response,
        }


class Nudges:
    """The slots of a state folder."""

    def __init__(self, folder: StateFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def send(
        self, sender: str, to: str, type: str, message: str = "", *, requires_response: bool = False
    ) -> Nudge:
        """Put a nudge into a slot, and replace the one before."""
        if type not in TYPES:
            raise Invalid(f"{type!a} is not a type of nudge", field="type", hint=", ".join(TYPES))
        sender, message = check_agent(sender, "from"), check_text(message, "message", LONGEST)
        home = self._home(to)
        with self._folder.lock():
            # Later than the one before, whatever the clock says: else `unhandled` would take it for handled.
            last = self.latest(to)
            nudge = Nudge(
                sender=sender,
                type=type,
                message=message,
                timestamp=after(self._clock.now().wall, None if last is None else last.timestamp),
                requires_response=bool(requires_response),
            )
            self._folder.write(nudge.to_dict(), NUDGE, home, SLOT)
        return nudge

    def respond(self, agent: str, nudge: Nudge, message: str = "") -> Nudge:
        """Put an answer into the slot of the nudge's sender."""
        return self.send(agent, nudge.sender, RESPONSE, message)

    def latest(self, agent: str) -> Nudge | None:
        """Return the nudge in the slot, handled or not."""
        home = self._home(agent)
        try:
            fields = self._folder.read(NUDGE, home, SLOT)
            return None if fields is None else _nudge_in(fields)
        # A slot holds one nudge, and the next replaces it: a broken one heals itself.
        except Unreadable as broken:
            _log.warning("no nudge for %s: %s", agent, broken.message)
            return None

    # -- handled nudges

    def unhandled(self, agent: str, *, since: datetime | None = None) -> Nudge | None:
        """Return the nudge in the slot, if it is newer than `since`, or than the last one handled."""
        nudge = self.latest(agent)
        handled = since if since is not None else self._handled(agent)
        return nudge if nudge is not None and (handled is None or nudge.timestamp > handled) else None

    def handle(self, agent: str, nudge: Nudge) -> None:
        """Record that this nudge and all before it are handled.

        Call it after acting: a crash then repeats the act.
        """
        with self._folder.lock():
            handled = self._handled(agent)
            if handled is None or nudge.timestamp > handled:
                self._folder.write({"handled": text_of(nudge.timestamp)}, *_HANDLED, self._memory(agent))

    def _handled(self, agent: str) -> datetime | None:
        try:
            fields = self._folder.read(*_HANDLED, self._memory(agent))
        except Unreadable:  # the agent acts on the nudge once more
            return None
        return time_or_none((fields or {}).get("handled"))

    def _memory(self, agent: str) -> str:
        return self._folder.spelling(agent, *_HANDLED, ending=".json")

    def _home(self, agent: str) -> str:
        return self._folder.spelling(agent, NUDGE)


def _nudge_in(fields: Fields) -> Nudge:
    """Return the nudge in a slot, or raise Unreadable."""
    sender, type, message = (fields.get(name) for name in ("from", "type", "message"))
    timestamp = time_or_none(fields.get("timestamp"))
    if timestamp is None or type not in TYPES:
        raise Unreadable("its slot has no timestamp, or no type that is known")
    try:
        return Nudge(
            sender=check_agent(sender, "from"),
            type=type,
            message=message if isinstance(message, str) else "",
            timestamp=timestamp,
            requires_response=fields.get("requires_response") is True,
        )
    except Invalid as wrong:
        raise Unreadable(f"its slot is from nobody: {wrong}") from None
