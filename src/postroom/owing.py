"""What one caller is owed: the replies in the order of what it said, and whether more may be begun for it.

How large a reply is, is known when it is there. So a caller begins with a few calls at once and gets more with
each small reply, fewer with each large one; and what it says at length is done one thing after the other. So what
waits for it in memory stays bounded, whatever it asks for.

It refuses to know how replies travel. Above it stand the rims, below it `wire`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from .outcome import Outcome
from .wire.session import Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_ASKED = 64  # calls of one caller that are under way at once
FIRST = 8  # before anything is known of it
ROOM = 1024 * 1024  # bytes of replies that may be owed, and of what is being answered; one of each more at most


class Owing:
    """One caller's. `carry_out` begins something; `settled` is called when the next reply may be there."""

    def __init__(self, carry_out: Callable[[Asked], Outcome], settled: Callable[[], object]) -> None:
        self._carry_out = carry_out
        self._settled = settled
        self._replies: deque[tuple[Outcome, int]] = deque()  # and the size of what is answered
        self._asked = 0  # all of these sizes
        self._is_alone = False  # is something carried out that nothing may overtake?
        self._most = FIRST

    def __bool__(self) -> bool:
        return bool(self._replies)

    def has_room(self, asked: Asked | dict[str, Any]) -> bool:
        """May this be begun? What takes long overtakes nothing, and nothing overtakes it."""
        if not self._replies:
            return True
        is_alone = isinstance(asked, Asked) and asked.is_alone
        return not is_alone and not self._is_alone and len(self._replies) < self._most

    def may_hear(self, size: int) -> bool:
        """May something of so many bytes be looked at? In memory it may be many times as large."""
        return not self._replies or self._asked + size <= ROOM

    def begin(self, asked: Asked | dict[str, Any], size: int = 0) -> None:
        """Carry it out; or owe the reply that is known already. `size`: of what was said, in bytes."""
        if isinstance(asked, Asked):
            self._is_alone = asked.is_alone
            owed = self._carry_out(asked)
        else:
            owed = Outcome()
            owed.set_result(asked)
        self._replies.append((owed, size))
        self._asked += size
        owed.add_done_callback(lambda _: self._settled())

    def take(self) -> Iterator[Any]:
        """The replies that are there, as far as they are in order."""
        while self._replies and self._replies[0][0].done():
            owed, size = self._replies.popleft()
            self._asked -= size
            reply = None if owed.cancelled() else owed.result()
            if reply is not None:
                yield reply
        self._is_alone = self._is_alone and bool(self._replies)

    def told(self, size: int) -> None:
        """A reply was this large, in bytes; the next may be, too."""
        self._most = max(1, min(MOST_ASKED, 2 * self._most, ROOM // max(size, 1)))
