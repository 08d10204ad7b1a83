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
What Redis, PostgreSQL, NATS and others do with the same work stands in [peers.md](peers.md).

## Repeat it

    make bench                                # all of it; below ten minutes
    make bench-peers                          # the same work by others
    .venv/bin/python -m bench --quick         # fewer rounds, up to 100,000 letters
    .venv/bin/python -m bench --only send     # one theme
    .venv/bin/python -m bench --write         # and write this page
    .venv/bin/python -m bench --only command  # what a command costs from its start to its end
    .venv/bin/python -m bench --only hooks    # what an agent host waits for at each step
    make imports                              # which modules each command loads, and how long that takes
    .venv/bin/python tools/imports.py send someone --as me --body x   # one command, in more detail

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

- A send of 1 KiB, without its sync, is about 210,000 instructions (counted with callgrind): 115,000 in the
  Python interpreter, 53,000 in SQLite, 16,000 in making and encoding values and in the checksum, 12,000 in the C
  library; and 22 calls of the kernel. Its steps on this machine, with warm caches (the fastest twentieth of
  3,000 sends, on ext4):

  | step | µs | of it |
  |---|---|---|
  | compose the letter, check the rules, make the receipt | 9 | Python alone |
  | enter and leave the lock queue | 5 | 4 calls: lock, two reads of the lock file, unlock |
  | are the files still the same? | 3 | 1 call, on the folder |
  | BEGIN IMMEDIATE | 5 | 4 calls: SQLite's own locks |
  | the rows of the letter and its delivery, and their indexes | 9 | two rows, in four trees |
  | COMMIT | 14 | 2 locks, 10 writes: 5.1 pages, 21 KB of log |
  | notifications, and state kept for the next send | 4 | 1 call |

  To sync 21 KB takes 6 µs longer than to sync 1 KiB. But right after a sync the processor comes back from sleep,
  and has to get used to its work again: the same steps take 1.7 to 2 times as long, all alike. It is the sleep:
  after a nap of 10 µs without any disk a send that is not synced takes 75 µs in place of 44 (the fastest
  twentieth of 1,200), after 100 µs of idle counting 47, after 2 MB were written over in memory 54. That, and not
  the disk, decides the ratio to a raw write. A send that need not be synced does the same work, so it is not
  many times as fast. A process that sends alone starts the write to disk as soon as the letter is in the log;
  leaving the lock queue and preparing the notifications then cost nothing, 4 to 8 % of a send. If other
  processes are in the queue, they would wait for that too (14 % fewer letters of eight processes), so it is left
  out.
- To claim a letter and acknowledge it is two commits, of which one is synced, and 2.5 times the work of a send.
- Eight processes on two processors are bound by the same work. Both processors are busy, and each send costs
  about twice the processor time it costs alone: a process that wakes up finds the caches filled by others. Of that
  time (perf, cpu-clock, eight senders) three fifths are Python, a quarter is the kernel, mostly syncs and
  changes of process, and a tenth SQLite. Committing the letters of waiting processes together saves
  syncs and transactions, not the work of composing a letter. The naive design has less to do per letter, and it
  lets one process keep the room for itself, with warm caches (see the line on the slowest and the fastest).
- A broadcast is compared with one send, so it looks worse when a send gets faster. Three quarters of it are
  SQLite, which writes a thousand rows and their places in an index.
- To index a letter of 1 KiB takes some 30 µs of a processor: a third of it reading the letter, the rest FTS5.
  That is a tenth of a send, so senders leave most of it to others: one letter in 8,192 adds 512 and takes some
  16 ms longer. The next search, or the janitor, adds the rest; the table shows the cost. An index without
  positions would take a third less, and phrases would have to be looked for letter by letter. Larger slices, a
  larger hash table, pages of another size and fewer merges changed next to nothing.
- A letter in a file is synced as often as by hand (one fdatasync and one fsync; an ack two fsyncs), and what the
  index writes does not make these syncs slower (51 µs and 53 µs, an ext4 of its own in memory). The ratio is
  what is done besides. Where syncs cost nothing (tmpfs), a send takes some 165 µs of the processor and 18 µs by
  hand, an ack some 95 µs and 13 µs; between syncs, with cold caches, half as much again and more. A send is 41
  calls of the kernel, an ack 33, of which 15 and 11 write the index's log. Where the processor's time goes
  (perf, cpu-clock, nanobot's layout, an ext4 of its own in memory):

  | | send | ack |
  |---|---|---|
  | Python | 36 % | 34 % |
  | SQLite | 8 % | 13 % |
  | JSON, the C library and others | 7 % | 6 % |
  | kernel: the syncs | 15 % | 8 % |
  | kernel: the index's log (7.8 pages; 5.6) and marks | 8 % | 13 % |
  | kernel: create, rename, open, close, looks at names and folders | 18 % | 19 % |
  | kernel: everything else | 8 % | 7 % |

  Of Python, no function has much more than a tenth: a send is 3,400 steps of its machine in 130 calls, an ack
  2,150 in 90; with all of SQLite and JSON, 424,000 and 275,000 instructions (counted with callgrind). On an ext4
  without a journal, to make a file takes up to 0.8 ms, by hand as well, while many were deleted in the last
  seconds: the kernel passes over their inodes one by one. Then the ratio looks better than it is. Tried without
  gain: the folder's sync in a thread of its own while the index is committed (the two hops cost what it saves:
  354 µs and 444 µs, 516 and 543, 476 and 456); the kernel's asynchronous syncs (a process that used
  them takes 35 to 50 ms to end); telling the kernel early to write the file (6 µs more). The mark in mapped
  memory could save 4 µs at most. Files found by name before folder would be two pages less for an ack, but
  then the few letters that wait in a mailbox are found among all it ever had: 26 ms instead of 0.3 ms among
  100,000, for every command. To
  look at a folder by opening it takes as long as to ask for its state (2.6 and 2.4 µs); a plainer statement for
  the file of a letter saves 0.4 µs.
- A letter over the socket is some 4,400 steps of Python's machine in 180 calls where one client sends, 3,800 in
  150 where eight do; with all of SQLite and JSON, 419,000 and 368,000 instructions (counted with callgrind). Of
  the daemon's processor time (perf, cpu-clock) 50 to 63 % are Python, 20 to 37 % the kernel and 8 % SQLite; no
  function has more than a twentieth of the steps. A thousand letters that are taken at once are 85 million
  instructions. Measured apart, little is left to be gained by asking inside the transaction who is sealed (4 µs
  of a letter), or by doing without savepoints (2 µs of one).
- The service sleeps between two lines of a client as the processor does in a sync, and pays for it in the same
  way. So it stays awake for up to 0.2 ms for a client that came back within that time before, as long as there is
  nothing else to do: 10 to 18 % more letters per second of one client (in turns with the same service without
  it). A client that takes its time is not waited for.
- Of a letter through a link, the processor's time is 330 to 475 µs of its sender, 100 to 125 of the daemon that
  sends it, and 140 to 175 of the one that receives it, eight processes sending on two processors: up to 32
  letters go in one call, and are written by one commit and one sync.
- Tried without gain: pages of 1 and 2 KiB, a blocking lock, spinning before sleeping, waking the next writer
  early, a second line in which most writers rest while a few take turns, keeping the room while the log is
  synced (what waits is then taken along, which costs as much as to go in oneself); larger pages of memory; the
  whole path compiled with mypyc (8 % fewer instructions, and 8 % more time).
- What takes processor time in one of two compared programs only moves with the machine's hour. Several runs of
  the same code within a quarter of an hour: a send 1.92 and 1.96 times a raw write, process over power 2.64 and
  3.50, claim and ack 0.67, 0.68 and 0.69 of a send, claim(10) 3.85, 3.96 and 4.12, one client of the socket 2.05
  and 2.37 times agent-inbox (1.96 to 2.20 in eight runs within two hours), eight clients 5.71 and 6.71, the
  thousand letters 11 and 16 ms; eight processes and a receiver 1.26 times the naive design, and 1.14 and 1.38 on
  other days. So a line that is near its goal meets it in one run and misses it in the next. Through the link it
  was 0.41 and 0.42, with 2.21 to 2.54 sends of latency.
- Eight processes and a receiver: the naive design takes 3,200 to 3,500 letters per second here, so twice that is
  more than our senders reach without a receiver (4,800 to 5,900). Both processors are busy all the time, 78 % of
  it in our own code (vmstat).

## What it does not show

- A real power cut. Whether the disk keeps its word after fdatasync cannot be seen from here.
- Other disks. On one whose sync takes milliseconds, Postroom's own work vanishes in the ratios of sending; on one
  that syncs in a few microseconds, it is most of them.
- A cold start: files are in the page cache.
- Letters of other sizes, and rooms on which a backup, a virus scanner or a neighbour is busy at the same time.
- The naive worst send is a rare event; a short run may miss it, or catch a very bad one.
"""
