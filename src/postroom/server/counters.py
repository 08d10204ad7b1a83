"""Counters of a running post room, for `/metrics`. Counting costs about a microsecond per call.

They are used on the thread of the event loop alone.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


OK = "ok"
GONE = "gone"  # the outcome of a call that was cancelled: nobody waited for the answer any more


class Counters:
    """Numbers that only grow, and functions that return those that go up and down."""

    def __init__(self) -> None:
        self.began = perf_counter()
        self.calls: dict[tuple[str, str], int] = {}  # by method and outcome
        self.seconds: dict[str, float] = {}  # from a call's arrival to its answer, by method; waiting included
        self.batches = 0  # of calls; each is made durable by one sync at most
        self.batched = 0  # calls in them
        self.connections: dict[str, Callable[[], int]] = {}  # open now, by transport
        self.rings: dict[tuple[str, str], int] = {}  # calls of webhooks, by webhook and outcome
        self.subscribers: Callable[[], int] = int  # set by the broker; 0 until then

    def called(self, method: str, began: float, error: BaseException | None, *, is_gone: bool = False) -> None:
        """Count a call that is over."""
        outcome = GONE if is_gone else OK if error is None else type(error).__name__
        self.calls[method, outcome] = self.calls.get((method, outcome), 0) + 1
        self.seconds[method] = self.seconds.get(method, 0.0) + perf_counter() - began

    def rang(self, webhook: str, outcome: str) -> None:
        """Count a call of a webhook."""
        self.rings[webhook, outcome] = self.rings.get((webhook, outcome), 0) + 1

    @property
    def uptime(self) -> float:
        return perf_counter() - self.began
