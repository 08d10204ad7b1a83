"""Who waits at the desk for its turn.

It refuses to know what is called. Above it stands `desk`.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .outcome import Outcome

FEW = 16  # calls that are done on the loop's own thread


class Ticket:
    """One call that waits for its turn."""

    __slots__ = ("caller", "done", "is_heavy", "is_wait", "looks", "run")

    def __init__(
        self,
        run: Callable[[], Any],
        done: Outcome,
        caller: object,
        looks: bool = False,
        is_wait: bool = False,
        is_heavy: bool = False,
    ) -> None:
        self.run = run
        self.done = done
        self.caller = caller
        self.looks = looks  # does it change nothing?
        self.is_wait = is_wait  # is it for nobody, once its caller is gone?
        self.is_heavy = is_heavy  # does it name so many that it keeps others waiting?

    def outcome(self) -> Any:
        """What came of it. A bug met by one caller is told to that one; the calls of the others go on."""
        if self.is_wait and self.done.done():  # gone: a letter is not handed to nobody
            return None
        try:
            return self.run()
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            return error


class Queue:
    """Who waits for its turn: each caller's calls in their order, and callers in turn. One caller with much to say
    does not keep the others waiting.
    """

    def __init__(self) -> None:
        self._lines: dict[object, deque[Ticket]] = {}
        self._seen = 0  # callers who stood here at the last look

    def __bool__(self) -> bool:
        return bool(self._lines)

    def has_grown(self) -> bool:
        """Have more callers come since the last look, and not many yet? For one alone nobody is waited for."""
        before, now = self._seen, len(self._lines)
        self._seen = now
        return 1 < now < FEW and before < now

    def is_all_of(self, caller: object) -> bool:
        """Does this caller stand here, and nobody else?"""
        return len(self._lines) == 1 and caller in self._lines

    def add(self, ticket: Ticket) -> None:
        self._lines.setdefault(ticket.caller, deque()).append(ticket)

    def put_back(self, tickets: Sequence[Ticket]) -> None:
        """Those that were taken and not begun: they come first again."""
        lines: dict[object, deque[Ticket]] = {}
        for ticket in tickets:
            lines.setdefault(ticket.caller, deque()).append(ticket)
        for caller, line in self._lines.items():
            lines.setdefault(caller, deque()).extend(line)
        self._lines = lines

    def take(self, most: int) -> list[Ticket]:
        taken: list[Ticket] = []
        self._seen = 0
        while self._lines and len(taken) < most:
            caller = next(iter(self._lines))
            line = self._lines.pop(caller)
            taken.append(line.popleft())
            if line:
                self._lines[caller] = line  # behind the others
        return taken

    def take_looks(self, busy: set[object]) -> list[Ticket]:
        """What changes nothing and overtakes nothing of its own caller. Those who are `busy` have something under
        way.
        """
        free = [caller for caller, line in self._lines.items() if caller not in busy and line[0].looks]
        taken = [self._lines[caller].popleft() for caller in free]
        for caller in free:
            if not self._lines[caller]:
                del self._lines[caller]
        return taken


def tell(batch: list[Ticket], answers: list[Any]) -> None:
    """The first of a batch, as many as there are answers."""
    for ticket, answer in zip(batch, answers, strict=False):
        ticket.done.settle(answer)
