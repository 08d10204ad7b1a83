"""Nudges: `nudge/<agent>/latest.json`. One slot, the latest wins, no history; the recipient is the folder.

Each nudge is given a time later than the one it replaces, whatever the clock says: a reader acts only on what is
newer than the last it handled, and would pass over one of the same moment. A slot that cannot be read is no nudge.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import Invalid, Unreadable
from ..model.names import check_agent
from ..model.values import check_text
from .folder import OWN
from .stamps import after, text_of, time_in

if TYPE_CHECKING:
    from ..clock import Clock
    from .folder import Fields, StateFolder

NUDGE, SLOT = "nudge", "latest.json"
HEALTH_CHECK, STALL_WARNING, RESPONSE = "health_check", "stall_warning", "nudge_response"
TYPES = (HEALTH_CHECK, STALL_WARNING, "priority_change", "abort", "sync_request", RESPONSE)
LONGEST = 100_000  # characters of a message
_HANDLED = (OWN, "nudges")  # what each agent has handled, where it lets us remember
_log = logging.getLogger("postroom")


class Nudge(Struct, frozen=True, kw_only=True):
    """What lies in a slot. `sender` is `from` in the file."""

    sender: str
    type: str
    message: str
    timestamp: datetime
    requires_response: bool = False

    def to_dict(self) -> Fields:
        """As it stands in the file."""
        return {
            "from": self.sender,
            "type": self.type,
            "message": self.message,
            "timestamp": text_of(self.timestamp),
            "requires_response": self.requires_response,
        }


class Nudges:
    """All slots of a state folder."""

    def __init__(self, folder: StateFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    def send(
        self, sender: str, to: str, type: str, message: str = "", *, requires_response: bool = False
    ) -> Nudge:
        """Put a nudge into a slot; what lay there is gone."""
        if type not in TYPES:
            raise Invalid(f"{type!a} is no nudge", field="type", hint=", ".join(TYPES))
        sender, message = check_agent(sender, "from"), check_text(message, "message", LONGEST)
        home = self._home(to)
        with self._folder.lock():
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
        """Answer into the slot of whoever nudged."""
        return self.send(agent, nudge.sender, RESPONSE, message)

    def latest(self, agent: str) -> Nudge | None:
        """What lies in the slot, handled or not."""
        home = self._home(agent)
        try:
            fields = self._folder.read(NUDGE, home, SLOT)
            return None if fields is None else _nudge_in(fields)
        except Unreadable as broken:
            _log.warning("no nudge for %s: %s", agent, broken.message)
            return None

    # -- what was handled

    def unhandled(self, agent: str, *, since: datetime | None = None) -> Nudge | None:
        """The nudge in the slot, if it is newer than the last one handled: as remembered here, or `since`."""
        nudge = self.latest(agent)
        handled = since if since is not None else self._handled(agent)
        return nudge if nudge is not None and (handled is None or nudge.timestamp > handled) else None

    def handle(self, agent: str, nudge: Nudge) -> None:
        """This one, and all before it, need no more acting on. Say so after acting: a crash then repeats it."""
        with self._folder.lock():
            handled = self._handled(agent)
            if handled is None or nudge.timestamp > handled:
                self._folder.write({"handled": text_of(nudge.timestamp)}, *_HANDLED, self._memory(agent))

    def _handled(self, agent: str) -> datetime | None:
        try:
            fields = self._folder.read(*_HANDLED, self._memory(agent))
        except Unreadable:  # then it is acted on once more
            return None
        return time_in((fields or {}).get("handled"))

    def _memory(self, agent: str) -> str:
        return self._folder.spelling(agent, *_HANDLED, ending=".json")

    def _home(self, agent: str) -> str:
        return self._folder.spelling(agent, NUDGE)


def _nudge_in(fields: Fields) -> Nudge:
    """The nudge in a slot; Unreadable if it is none."""
    sender, type, message = (fields.get(name) for name in ("from", "type", "message"))
    timestamp = time_in(fields.get("timestamp"))
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
