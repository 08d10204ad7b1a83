"""How many sessions one caller may have, in the revision of 2025. The later one has none.

Its clients seldom say goodbye. The SDK ends what nobody has used for a while, and bounds all sessions together;
one caller could have all of those. So whoever opens one too many loses the one that it has not used for longest.
It refuses to know HTTP.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_OF_ONE = 100  # sessions of one caller
MOST = 1000  # of all together
IDLE = 15 * 60.0  # seconds that a session may do nothing, not even listen


class Sessions:
    """Who has which. One that the SDK has ended by itself may stand here a while, and is the first to go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[
            str, dict[str, int]
        ] = {}  # by caller: each session's requests under way; the last used last
        self._opening: Counter[str] = Counter()

    def is_full(self, caller: str) -> bool:
        return len(self._of.get(caller, ())) + self._opening[caller] >= self._most

    def idlest(self, caller: str) -> str | None:
        """Of those that do nothing just now."""
        return next((id for id, busy in self._of.get(caller, {}).items() if not busy), None)

    @contextmanager
    def opening(self, caller: str) -> Iterator[Callable[[str], None]]:
        """A request is under way that may open one. What is yielded is called with the id of the one it opened:
        from then on that counts, and the request no more, though it may go on for a while.
        """
        with ExitStack() as request:
            self._opening[caller] += 1
            request.callback(self._has_opened, caller)

            def began(id: str) -> None:
                self._of.setdefault(caller, {}).setdefault(id, 0)
                request.close()

            yield began

    def _has_opened(self, caller: str) -> None:
        self._opening[caller] -= 1
        self._opening += Counter()  # without those at nought

    @contextmanager
    def using(self, caller: str, id: str) -> Iterator[None]:
        self._count(caller, id, 1)
        try:
            yield
        finally:
            self._count(caller, id, -1)

    def ended(self, caller: str, id: str) -> None:
        own = self._of.get(caller, {})
        own.pop(id, None)
        if not own:
            self._of.pop(caller, None)

    def _count(self, caller: str, id: str, more: int) -> None:
        own = self._of.get(caller, {})
        if id in own:
            own[id] = own.pop(id) + more
