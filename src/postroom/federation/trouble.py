"""Trouble with our own room, while mail for others waits: what passes by itself is no news, what lasts is."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

from ..errors import StoreBusy

if TYPE_CHECKING:
    from ..errors import PostroomError

log = logging.getLogger("postroom")
LASTS = 30.0  # seconds for which somebody else may be in the room


class Trouble:
    """Of one who tries again."""

    def __init__(self, whose: str) -> None:
        self._whose = whose
        self._since: float | None = None
        self._is_told = False

    def met(self, wrong: PostroomError) -> None:
        """Once more. The log says it once, until it is over."""
        now = monotonic()
        self._since = now if self._since is None else self._since
        is_news = not isinstance(wrong, StoreBusy) or now - self._since >= LASTS
        if is_news and not self._is_told:
            self._is_told = True
            log.warning("%s waits a moment: %s", self._whose, wrong)
        else:
            log.debug("%s waits a moment: %s", self._whose, wrong)

    def over(self) -> None:
        self._since, self._is_told = None, False
