"""What connections do wrong, in the log: each kind of thing once an hour, however many do it, and how often.

A kind is a word of ours: a number, a field, a reason. What a caller said may stand in the line, as an example, and
never makes it another kind: else whoever says many different things fills the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ..service.present import one_line
from ..wire.map_table import ROWS
from ..wire.table import snake

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

log = logging.getLogger("postroom")
AGAIN = 3600.0  # seconds after which the same is worth a line once more
LONGEST = 200  # characters of an example
_REFUSED = "a MAP connection does what is refused"
_FIELDS = frozenset(param.name for row in ROWS for param in row.params)


class Complaints:
    """`now`: seconds by any clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told: set[Hashable] = set()
        self._again = 0.0

    def of_frames(self, why: str) -> None:
        self._tell(why, f"{_REFUSED}: {why}")

    def of_refusal(self, error: Mapping[str, Any]) -> None:
        """The error of a reply."""
        details = error.get("data", {}).get("details", {})
        field = snake(str(details.get("field", "")))
        kind = (error["code"], field if field in _FIELDS else "")
        self._tell(kind, f"{_REFUSED}: {str(error['message'])[:LONGEST]}")

    def of_system(self, name: str, why: str, known: str | None) -> None:
        """A system that calls itself so is refused. `known`: what the peer of that name is called, if any is."""
        self._tell((why, known), f"a system that calls itself {name!a} is refused: {why}")

    def of_end(self, why: str, agent: str | None = None) -> None:
        """A connection is ended. `agent`: whose it is, if it has proven that."""
        whose = f" of {agent}" if agent is not None else ""
        self._tell((why, agent), f"a MAP connection{whose} is ended: {why}")

    def _tell(self, kind: Hashable, line: str) -> None:
        now = self._now()
        if now >= self._again:
            self._told.clear()
            self._again = now + AGAIN
        if kind not in self._told:
            self._told.add(kind)
            log.info("%s", one_line(line))
