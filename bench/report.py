"""The report: a table on the terminal, the numbers as JSON, the page in the docs."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import apsw
import msgspec
from msgspec import Struct

from .measure import Curve, Line
from .plot import FIGURES, write_figures

HERE = Path(__file__).parent
LATEST = HERE / "results" / "latest.json"
PAGE = HERE.parent / "docs" / "performance.md"
PLOTS = PAGE.parent / "plots"


class Machine(Struct, frozen=True, kw_only=True):
    """Where it was measured."""

    processors: int
    kernel: str
    python: str
    sqlite: str
    load: float  # of the machine, before the first measure; above 0.5, something else was running


class Report(Struct, frozen=True, kw_only=True):
    date: str
    machine: Machine
    lines: list[Line]
    curves: list[Curve] = []


def machine() -> Machine:
    return Machine(
        processors=os.cpu_count() or 1,
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        sqlite=apsw.sqlitelibversion(),
        load=round(os.getloadavg()[0], 1),
    )


def report_of(where: Machine, lines: Sequence[Line], curves: Sequence[Curve]) -> Report:
    today = datetime.now(UTC).date().isoformat()
    return Report(date=today, machine=where, lines=list(lines), curves=list(curves))


def save(report: Report) -> None:
    LATEST.parent.mkdir(exist_ok=True)
    LATEST.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def load() -> Report:
    return msgspec.json.decode(LATEST.read_bytes(), type=Report)


def committed() -> dict[str, float]:
    """The values of the last report that was committed; nothing where there is none."""
    place = LATEST.relative_to(HERE.parent).as_posix()
    shown = subprocess.run(["git", "show", f"HEAD:{place}"], cwd=HERE.parent, capture_output=True, check=False)  # noqa: S607
    if shown.returncode != 0:
        return {}
    return {line.name: line.value for line in msgspec.json.decode(shown.stdout, type=Report).lines}


def print_heading(where: Machine, width: int = 72) -> None:
    print(describe(where))
    print(f"{'measure':{width}} {'measured':>12} {'goal':>9}  {'':7} {'was':>6}  absolute")


def print_line(line: Line, before: dict[str, float], width: int = 72) -> None:
    """`was` is measured now / measured then."""
    held = before.get(line.name)
    change = f"x{line.value / held:.2f}" if held else ""
    print(
        f"{line.name:{width}} {measured(line):>12} {goal(line):>9}  {line.verdict:7} {change:>6}  {line.note}",
        flush=True,
    )


def measured(line: Line) -> str:
    if line.unit == "x":
        return f"{line.value:.2f} x"
    digits = 0 if line.value >= 100 or line.value == int(line.value) else 2
    return f"{line.value:,.{digits}f} {line.unit}".rstrip()


def goal(line: Line) -> str:
    if line.goal is None:
        return ""
    return f"{'≥' if line.at_least else '≤'} {line.goal:g}"


def describe(here: Machine) -> str:
    what = f"{here.processors} processors, {here.kernel}, Python {here.python}, SQLite {here.sqlite}"
    return f"{what}, load {here.load:g} before the start"


def write_page(report: Report) -> None:
    figures = write_figures(report.curves, PLOTS)
    PAGE.write_text(page(report, figures), encoding="utf-8")


def page(report: Report, figures: Sequence[str]) -> str:
    """docs/performance.md, from the numbers."""
    rows = [
        f"| {line.name} | {measured(line)} | {goal(line)} | {line.verdict} | {line.note} |"
        for line in report.lines
    ]
    return _PAGE.format(
        date=report.date,
        machine=describe(report.machine),
        rows="\n".join(rows),
        figures="".join(f"\n![{FIGURES[name].title}](plots/{name}.svg)\n" for name in figures),
    )


_PAGE = """# Performance

<!-- Written by `python -m bench --write` from bench/results/latest.json. -->

Numbers are ratios measured inside one run, because absolute times belong to a machine and a day. The last column
is there for orientation only.

Measured {date}: {machine}.

| measure | measured | goal | | absolute |
|---|---|---|---|---|
{rows}
{figures}
Redis, PostgreSQL, NATS and others do the same work in [the comparison](peers.md).

## Repeat it

```sh
make bench                                # all of it; below ten minutes
make bench-peers                          # the same work by others
.venv/bin/python -m bench --quick         # fewer rounds, up to 100,000 letters
.venv/bin/python -m bench --only send     # one theme
.venv/bin/python -m bench --write         # and write this page
.venv/bin/python -m bench --only command  # what a command costs from its start to its end
.venv/bin/python -m bench --only hooks    # what an agent host waits for at each step
make imports                              # which modules each command loads, and how long that takes
```

The rooms with a long past are made once, under `$XDG_CACHE_HOME/postroom-bench` (or `~/.cache/postroom-bench`;
about 2 GB, with the index of their words), and kept for the next time; the first run takes minutes longer, and
says so. Everything else happens beside the bench, on the disk the working tree is on.

## How it is measured

- Candidates of one comparison take turns, round by round; a line is the median of the rounds' ratios.
- *Raw* is what the disk can do: 1 KiB written into a file that is there already, then fdatasync.
- The *naive design* has the same tables and rows through the same SQLite library: WAL, synchronous=FULL, BEGIN
  IMMEDIATE, a busy timeout of 60 s. It checks nothing, so it has less to do in Python.
- Eight processes are spawned and started together, and send for some seconds. Beside a receiver each of them sends
  a share of the letters, and the clock stops when the receiver, which takes up to ten at once, has acknowledged
  the last: so a design that lets one process run ahead and others starve gains nothing by it. The ids of
  the letters that were sent are compared with those in the room, and with those that the receiver acknowledged.
- One, two, four and eight processes get a fresh room each time; what a plain file takes from one process, in the
  same round, is their yardstick. The p99 is compared with the mean time of such a write.
- A warm start: the log has reached its full size before the clock runs.
- In rooms with a past, 200 letters, spread over all of it, are unread; the others were acknowledged. Twenty, as
  widely spread, are the thread that is read.
- When an inbox is drained over the socket, the clock stops when the client has read the last byte of the
  reply: the service is timed, not its client. Parsing the reply takes a client in Python some milliseconds more.
- Memory is what the kernel calls resident, shared libraries included.
- Three letters hold the rare word. What keeping the index costs is measured with letters of natural variety (of
  20,000 words, few come often), in two rooms that take turns; in one of them senders never look at the index. *All
  told* is the mean of all sends, with those that add letters. No process searches or sweeps meanwhile; the work
  that is left to them is measured afterwards.

## Where a goal is missed, and why

- Half of the processor time of a send is the Python interpreter, a quarter is SQLite, and the rest is the
  kernel and the encoding of values. Right after a sync the processor comes back from sleep, and the same steps
  take 1.7 to 2 times as long as with warm caches. That, and not the disk, decides the ratio to a raw write; a
  send that need not be synced does the same work, so it is not many times as fast.
- To claim a letter and acknowledge it is two commits, of which one is synced, and 2.5 times the work of a send.
- Eight processes on two processors are bound by the same work: both processors are busy, and each send costs about
  twice the processor time that it costs alone, because a process that wakes up finds the caches filled by others.
  The naive design does less per letter and lets one process keep the room, with warm caches; see the line on the
  slowest and the fastest.
- A broadcast is compared with one send. Three quarters of it are SQLite, which writes a thousand rows and their
  places in an index.
- To index a letter of 1 KiB takes some 30 µs of a processor. Searches and the janitor do it, not senders.
- A letter in a file is synced as often as by hand. The ratio is what is done besides: about 40 calls of the
  kernel, of which a third write the index, and as much Python again.
- What takes processor time in only one of two compared programs moves with the machine's hour: a line that is near
  its goal meets it in one run and misses it in the next.

## What it does not show

- A real power cut. Whether the disk keeps its word after fdatasync cannot be seen from here.
- Other disks. On one whose sync takes milliseconds, Postroom's own work vanishes in the ratios of sending; on one
  that syncs in a few microseconds, it is most of them.
- A cold start: files are in the page cache.
- Letters of other sizes, and rooms on which a backup, a virus scanner or a neighbour is busy at the same time.
- The naive worst send is a rare event; a short run may miss it, or catch a very bad one.
"""
