"""What a running post room counts of itself, for whoever watches it. Counting costs about a microsecond per call.

It refuses to know what it counts for. Everything stands on one thread, that of the event loop.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .executor import JobFuture


OK = "ok"
GONE = "gone"  # nobody waited for the answer any more


class Counters:
    """Numbers that only grow, and functions that tell those that go up and down."""

    def __init__(self) -> None:
        self.began = perf_counter()
        self.calls: dict[tuple[str, str], int] = {}  # by method and outcome
        self.seconds: dict[str, float] = {}  # from a call's arrival to its answer, by method; waiting included
        self.batches = 0  # of calls; each is made safe by one sync at most
        self.batched = 0  # calls in them
        self.connections: dict[str, Callable[[], int]] = {}  # open now, by rim
        self.rings: dict[tuple[str, str], int] = {}  # calls of webhooks, by webhook and outcome
        self.subscribers: Callable[[], int] = int  # none, until somebody can tell

    def called(self, method: str, began: float, done: JobFuture) -> None:
        """A call is over."""
        error = done.exception()
        outcome = OK if error is None else GONE if done.cancelled() else type(error).__name__
        self.calls[method, outcome] = self.calls.get((method, outcome), 0) + 1
        self.seconds[method] = self.seconds.get(method, 0.0) + perf_counter() - began

    def rang(self, webhook: str, outcome: str) -> None:
        """A webhook was called."""
        self.rings[webhook, outcome] = self.rings.get((webhook, outcome), 0) + 1

    @property
    def uptime(self) -> float:
        return perf_counter() - self.began
