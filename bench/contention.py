"""Eight processes send into one room at once, for some seconds; or a share each, beside a receiver that claims and
acknowledges all of it.

Every id is counted: what the senders got back, what lies in the room, and what the receiver got.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles

import apsw
from msgspec import Struct

from .designs import DESIGNS, READER
from .measure import Curve, Effort, Line, micros, per_second
from .raw import RawFile
from .workers import Worker, now, start_together

SENDERS = 8
SHARES = (50.0, 90.0, 99.0, 99.9, 100.0)  # per cent
SHARE = 300  # letters that each of them sends beside a receiver, for every second of a run
WARM = 700  # letters in the room before the clock starts: by then the log has its full size


class Sent(Struct):
    """What one sender did."""

    ids: list[str]
    seconds: list[float]  # of each send


class Run(Struct):
    """What became of one run of all processes."""

    letters: int
    rate: float  # letters per second, until the last is sent; or, with a receiver, acknowledged
    sending: float  # letters per second, until the last is sent
    worst: float  # seconds
    usual: float
    late: float  # 99 of 100 sends are faster
    shares: dict[float, float]  # per cent of the sends -> seconds they took at most
    fairness: float  # how fast the slowest process sent / the fastest
    lost: int
    doubled: int


def send_for(start: Callable[[], None], path: Path, design: str, name: str, seconds: float) -> Sent:
    box = DESIGNS[design](path, name)
    sent = Sent([], [])
    start()
    before = now()
    end = before + seconds
    while before < end:
        sent.ids.append(box.send())
        after = now()
        sent.seconds.append(after - before)
        before = after
    return sent


def send_share(start: Callable[[], None], path: Path, design: str, name: str, letters: int) -> Sent:
    box = DESIGNS[design](path, name)
    sent = Sent([], [])
    start()
    for _ in range(letters):
        before = now()
        sent.ids.append(box.send())
        sent.seconds.append(now() - before)
    return sent


def take_all(start: Callable[[], None], path: Path, design: str, letters: int) -> tuple[list[str], float]:
    """Take letters until so many are acknowledged; and how long that took."""
    box = DESIGNS[design](path, READER)
    taken: list[str] = []
    start()
    began = now()
    while len(taken) < letters:
        taken += box.take()
    return taken, now() - began


def run(path: Path, design: str, seconds: float, *, senders: int = SENDERS) -> Run:
    """All send for so long."""
    warm = _warm(path, design)
    sending = [Worker(send_for, path, design, f"writer-{i}", seconds) for i in range(senders)]
    start_together(sending)
    sent: list[Sent] = [sender.finish() for sender in sending]
    counts = [len(one.ids) for one in sent]
    rate = sum(counts) / seconds
    return _run_of(path, warm, sent, [], rate=rate, sending=rate, fairness=min(counts) / max(counts))


def run_with_receiver(path: Path, design: str, share: int) -> Run:
    """All send their share. It is done when the receiver has acknowledged the last of it."""
    warm = _warm(path, design)
    sending = [Worker(send_share, path, design, f"writer-{i}", share) for i in range(SENDERS)]
    receiver = Worker(take_all, path, design, len(warm) + share * SENDERS)
    start_together([*sending, receiver])
    sent: list[Sent] = [sender.finish() for sender in sending]
    taken, took = receiver.finish()
    times = [sum(one.seconds) for one in sent]
    return _run_of(
        path,
        warm,
        sent,
        taken,
        rate=len(taken) / took,
        sending=share * SENDERS / max(times),
        fairness=min(times) / max(times),
    )


def _warm(path: Path, design: str) -> list[str]:
    first = DESIGNS[design](path, "writer")
    return [first.send() for _ in range(WARM)]


def _run_of(
    path: Path,
    warm: list[str],
    sent: list[Sent],
    taken: list[str],
    *,
    rate: float,
    sending: float,
    fairness: float,
) -> Run:
    result = warm + [id for one in sent for id in one.ids]
    times = [seconds for one in sent for seconds in one.seconds]
    lost, doubled = count_losses(path, result, taken)
    return Run(
        letters=len(result),
        rate=rate,
        sending=sending,
        worst=max(times),
        usual=median(times),
        late=quantiles(times, n=100)[98],
        shares=shares(times),
        fairness=fairness,
        lost=lost,
        doubled=doubled,
    )


def shares(times: Sequence[float]) -> dict[float, float]:
    ordered = sorted(times)
    return {share: ordered[min(int(len(ordered) * share / 100), len(ordered) - 1)] for share in SHARES}


def count_losses(path: Path, results: Sequence[str], taken: Sequence[str]) -> tuple[int, int]:
    """Letters the senders were told of and that are not there; letters there, or taken, more than once."""
    database = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    stored = [id for (id,) in database.execute("SELECT l.id FROM letters l JOIN deliveries d USING (number)")]
    done = {
        id for (id,) in database.execute("SELECT id FROM letters JOIN deliveries USING (number) WHERE state = 3")
    }
    lost = len(set(results) - set(stored)) + len(set(taken) - done)
    twice = sum(times - 1 for ids in (results, stored, taken) for times in Counter(ids).values())
    return lost, twice + len(set(stored) - set(results))


def measure(effort: Effort, folder: Path) -> Iterator[Line | Curve]:
    runs: dict[tuple[str, bool], list[Run]] = {}
    raw_rates = []
    fresh = itertools.count()
    with RawFile(folder / "raw") as raw:
        for _ in range(effort.runs):
            raw_rates.append(raw.rate(effort.seconds / 4))
            for design in DESIGNS:
                path = folder / str(next(fresh)) / "room.db"
                runs.setdefault((design, False), []).append(run(path, design, effort.seconds))
            for design in DESIGNS:
                path = folder / str(next(fresh)) / "room.db"
                share = round(effort.seconds * SHARE)
                runs.setdefault((design, True), []).append(run_with_receiver(path, design, share))
    yield from _rates(runs, raw_rates)
    yield from _fairness(runs)
    for name, design in (("Postroom", "ours"), ("naive design", "naive")):
        middle = {share: median(one.shares[share] for one in runs[design, False]) for share in SHARES}
        yield Curve(figure="latency", name=f"{name}, 8 processes", points=in_steps(middle))


def in_steps(seconds: dict[float, float]) -> list[tuple[float, float]]:
    """Milliseconds, at places of equal distance."""
    return [(float(step), seconds[share] * 1e3) for step, share in enumerate(SHARES)]


def _rates(runs: dict[tuple[str, bool], list[Run]], raw_rates: list[float]) -> Iterator[Line]:
    alone, beside = runs["ours", False], runs["ours", True]
    naive_alone, naive_beside = runs["naive", False], runs["naive", True]
    yield Line(
        name="8 processes, rate / raw sync rate of one process",
        value=median(one.rate / raw for one, raw in zip(alone, raw_rates, strict=True)),
        goal=0.6,
        at_least=True,
        note=f"{_middle_rate(alone)} / {per_second(median(raw_rates))}",
    )
    yield Line(
        name="8 processes and an acking receiver, letters sent and acknowledged per second / naive design",
        value=_compare(beside, naive_beside, lambda one: one.rate),
        goal=2.0,
        at_least=True,
        note=f"{_middle_rate(beside)} / {_middle_rate(naive_beside)}; sent {_sending(beside)}"
        f" / {_sending(naive_beside)}",
    )
    yield Line(
        name="8 processes, rate / naive design",
        value=_compare(alone, naive_alone, lambda one: one.rate),
        goal=1.1,
        at_least=True,
        note=f"{_middle_rate(alone)} / {_middle_rate(naive_alone)}",
    )


def _fairness(runs: dict[tuple[str, bool], list[Run]]) -> Iterator[Line]:
    for receiver, beside in ((False, ""), (True, " and a receiver")):
        ours, naive = runs["ours", receiver], runs["naive", receiver]
        yield Line(
            name=f"8 processes{beside}, worst send / naive worst",
            value=_compare(ours, naive, lambda one: one.worst),
            goal=0.1,
            note=f"{_worst(ours)} / {_worst(naive)}",
        )
        yield Line(
            name=f"8 processes{beside}, slowest process / fastest",
            value=median(one.fairness for one in ours),
            goal=0.5,
            at_least=True,
            note=f"naive {median(one.fairness for one in naive):.2f}",
        )
    everything = [one for group in runs.values() for one in group]
    counted = sum(one.letters for one in everything)
    yield Line(
        name="8 processes, letters lost or doubled",
        value=sum(one.lost + one.doubled for one in everything),
        unit="",
        goal=0,
        note=f"{counted:,} letters in {len(everything)} runs of both designs",
    )


def _compare(ours: list[Run], naive: list[Run], what: Callable[[Run], float]) -> float:
    return median(what(one) / what(other) for one, other in zip(ours, naive, strict=True))


def _middle_rate(runs: list[Run]) -> str:
    return per_second(median(one.rate for one in runs))


def _sending(runs: list[Run]) -> str:
    return per_second(median(one.sending for one in runs))


def _worst(runs: list[Run]) -> str:
    late = median(one.late for one in runs)
    return f"{micros(median(one.worst for one in runs))} (p99 {micros(late)})"
