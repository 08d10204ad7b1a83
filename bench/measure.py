"""What every measure is made of: a line of the report, an effort, rounds in which candidates take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median
from typing import TypeAlias

from msgspec import Struct

LETTER = ("Merge sort keeps equal keys in the order they came in; quicksort does not. " * 20)[:1024]

Act: TypeAlias = Callable[[], object]
Turns: TypeAlias = Mapping[str, tuple[Act, int]]  # candidate -> what it does, and how often in its turn
Samples: TypeAlias = dict[str, list[list[float]]]  # candidate -> one list of seconds per round
Average: TypeAlias = Callable[[Sequence[float]], float]


class Effort(Struct, frozen=True, kw_only=True):
    """How long to look."""

    rounds: int  # in which the candidates take turns
    burst: int  # times a candidate acts in its turn
    runs: int  # of many processes at once
    seconds: float  # each of these runs lasts
    idle: float  # seconds a waiter is watched doing nothing
    largest: int  # letters in the largest room


FULL = Effort(rounds=11, burst=200, runs=5, seconds=2.5, idle=5.0, largest=1_000_000)
QUICK = Effort(rounds=5, burst=100, runs=2, seconds=1.0, idle=2.0, largest=100_000)


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the report."""

    name: str
    value: float
    unit: str = "x"
    goal: float | None = None  # None: for orientation
    at_least: bool = False  # else the goal is a ceiling
    note: str = ""  # absolute numbers, of this machine on that day

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        met = self.value >= self.goal if self.at_least else self.value <= self.goal
        return "meets" if met else "misses"


class Curve(Struct, frozen=True, kw_only=True):
    """One line of a figure."""

    figure: str  # one of those in plot.py
    name: str
    points: list[tuple[float, float]]


def timed(act: Act, times: int) -> list[float]:
    """Seconds of each call."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        taken.append(time.perf_counter() - start)
    return taken


def take_turns(acts: Turns, rounds: int) -> Samples:
    """In every round each candidate acts its number of times."""
    samples: Samples = {name: [] for name in acts}
    for _ in range(rounds):
        for name, (act, times) in acts.items():
            samples[name].append(timed(act, times))
    return samples


def ratio(samples: Samples, upper: str, lower: str, average: Average = median) -> float:
    """The median over all rounds of upper / lower."""
    pairs = zip(samples[upper], samples[lower], strict=True)
    return median(average(above) / average(below) for above, below in pairs)


def rate(samples: Samples, name: str) -> float:
    """How often per second, pauses included."""
    return 1 / median(mean(taken) for taken in samples[name])


def typical(samples: Samples, name: str) -> float:
    return median(seconds for taken in samples[name] for seconds in taken)


def micros(seconds: float) -> str:
    """Seconds in a unit that reads well."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.1f} s"


def per_second(rate: float) -> str:
    return f"{rate:,.0f}/s"
