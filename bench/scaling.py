"""One, two, four and eight processes send into one room: how the rate grows, who is late, who gets how much."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from .contention import Run, run
from .designs import DESIGNS
from .measure import Curve, Effort, Line, micros, per_second
from .raw import RawFile

PROCESSES = (1, 2, 4, 8)
SHARE = 0.4  # of the time that a run of eight gets elsewhere

Runs = dict[tuple[str, int], list[Run]]


def measure(effort: Effort, folder: Path) -> Iterator[Line | Curve]:
    runs: Runs = {}
    raw = []
    seconds = effort.seconds * SHARE
    fresh = itertools.count()
    with RawFile(folder / "raw") as file:
        for _ in range(effort.runs):
            raw.append(file.rate(seconds / 2))
            for design, processes in itertools.product(DESIGNS, PROCESSES):
                path = folder / str(next(fresh)) / "room.db"
                one = run(path, design, seconds, senders=processes)
                runs.setdefault((design, processes), []).append(one)
    for processes in PROCESSES:
        yield from _lines(runs, raw, processes)
    yield from _curves(runs, raw)


def _lines(runs: Runs, raw: list[float], processes: int) -> Iterator[Line]:
    ours, naive = runs["ours", processes], runs["naive", processes]
    label = f"{processes} sending at once" if processes > 1 else "1 sending"
    yield Line(
        name=f"{label}, rate / raw sync rate",
        value=_to_raw(ours, raw, lambda one, limit: one.rate / limit),
        note=f"{per_second(_middle(ours, 'rate'))} / {per_second(median(raw))}; naive"
        f" {per_second(_middle(naive, 'rate'))}, {_to_raw(naive, raw, lambda one, limit: one.rate / limit):.2f} x",
    )
    yield Line(
        name=f"{label}, p99 of a send / one raw write",
        value=_to_raw(ours, raw, lambda one, limit: one.late * limit),
        note=f"{micros(_middle(ours, 'late'))} / {micros(1 / median(raw))}; naive"
        f" {micros(_middle(naive, 'late'))}, its worst {micros(_middle(naive, 'worst'))}",
    )
    if processes > 1:
        yield Line(
            name=f"{label}, slowest process / fastest",
            value=_middle(ours, "fairness"),
            note=f"naive {_middle(naive, 'fairness'):.2f}",
        )


def _curves(runs: Runs, raw: list[float]) -> Iterator[Curve]:
    for name, design in (("Postroom", "ours"), ("naive design", "naive")):
        rates = [(float(processes), _middle(runs[design, processes], "rate")) for processes in PROCESSES]
        yield Curve(figure="contention", name=name, points=rates)
    limit = [(float(processes), median(raw)) for processes in PROCESSES]
    yield Curve(figure="contention", name="raw write + fdatasync, 1 process", points=limit)


def _to_raw(runs: list[Run], raw: list[float], compare: Callable[[Run, float], float]) -> float:
    return median(compare(one, limit) for one, limit in zip(runs, raw, strict=True))


def _middle(runs: list[Run], what: str) -> float:
    middle: float = median(getattr(one, what) for one in runs)
    return middle
