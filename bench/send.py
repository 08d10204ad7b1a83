"""One process sends 1 KiB letters, safe against power loss, or against the end of the process only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean

import postroom

from .contention import in_steps, shares
from .measure import LETTER, Curve, Effort, Line, Turns, micros, per_second, rate, ratio, take_turns, typical
from .raw import RawFile

WARM = 700  # letters before the clock starts: by then the log has its full size


def measure(effort: Effort, folder: Path) -> Iterator[Line | Curve]:
    power = postroom.open(str(folder / "power" / "room.db"), durability="power")
    process = postroom.open(str(folder / "process" / "room.db"), durability="process")
    with RawFile(folder / "raw") as raw, power, process:
        send_power = partial(power.mailbox("writer").send, "reader", LETTER)
        send_process = partial(process.mailbox("writer").send, "reader", LETTER)
        for _ in range(WARM):
            send_power()
            send_process()
        acts: Turns = {
            "raw": (raw.write, effort.burst),
            "power": (send_power, effort.burst),
            "process": (send_process, effort.burst),
        }
        samples = take_turns(acts, effort.rounds)
    yield Line(
        name="durable send of 1 KiB / raw 1 KiB write + fdatasync",
        value=ratio(samples, "power", "raw"),
        goal=2.0,
        note=f"{micros(typical(samples, 'power'))} / {micros(typical(samples, 'raw'))}",
    )
    yield Line(
        name="durability=process, rate / power-safe rate",
        value=ratio(samples, "power", "process", mean),
        goal=3.0,
        at_least=True,
        note=f"{per_second(rate(samples, 'process'))} / {per_second(rate(samples, 'power'))}",
    )
    yield Line(
        name="durability=process, median send",
        value=typical(samples, "process") * 1e6,
        unit="µs",
        note=f"{ratio(samples, 'power', 'process'):.2f} x faster by medians, without the pauses",
    )
    for name, candidate in (("Postroom, 1 process", "power"), ("raw write + fdatasync", "raw")):
        times = [seconds for taken in samples[candidate] for seconds in taken]
        yield Curve(figure="latency", name=name, points=in_steps(shares(times)))
