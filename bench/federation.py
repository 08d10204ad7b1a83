"""One link between two post rooms on this machine: letters through it beside those that eight processes send here,
and how much later one is there than it was sent.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import postroom
from postroom.core import peers
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.model.delivery import OPEN
from postroom.model.query import Query

from . import contention
from .daemon import serving
from .maps import free_port
from .measure import LETTER, Effort, Line, micros, per_second, timed
from .workers import Worker, now, start_together

PATIENCE = 120.0  # seconds
PROBES = 40  # letters in a round whose way is timed
BETWEEN = 0.01  # seconds between them


class Side:
    """A room, and what serves it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.name, self.port = name, free_port()
        self.room = postroom.open(self.folder / "room.db", system=name)

    @contextmanager
    def served(self) -> Iterator[None]:
        path = self.folder / "s"
        words = [sys.executable, "-m", "postroom", "serve", "--room", str(self.folder / "room.db")]
        more = ["--set", f"system={self.name}", "--set", "sender_rate=0", "--http", f"127.0.0.1:{self.port}"]
        with serving([*words, "--socket", str(path), *more], path):
            yield

    def count(self, mailbox: str) -> int:
        return sum(self.room.core.store.count(Query(mailbox=mailbox, states=OPEN)).values())


@contextmanager
def linked(folder: Path) -> Iterator[tuple[Side, Side]]:
    """`here` has dialled `there`."""
    here, there = Side(folder, "here"), Side(folder, "there")
    there.room.mailbox("reader").register()
    here.room.mailbox("writer").register()
    token = perform(
        there.room.core, OWNER, peers.AddPeer(system="here", fields={"exposure": "all"}, ours="there")
    ).token
    fields = {"exposure": "all", "url": f"ws://127.0.0.1:{there.port}/map", "token": token}
    perform(here.room.core, OWNER, peers.AddPeer(system="there", fields=fields, ours="here"))
    with there.served(), here.served():
        here.room.mailbox("writer").send("reader@there", LETTER)
        _until(there, 1)
        yield here, there
    here.room.close()
    there.room.close()


def _until(side: Side, many: int) -> None:
    end = time.monotonic() + PATIENCE
    while side.count("reader") < many:
        if time.monotonic() > end:
            raise RuntimeError(f"only {side.count('reader')} of {many} letters came")
        time.sleep(0.005)


def send_many(start: Callable[[], None], path: Path, name: str, seconds: float) -> int:
    """To the other system, for so long."""
    box = postroom.open(str(path), system="here").mailbox(name)
    box.send("reader@there", LETTER)
    start()
    sent, end = 1, time.perf_counter() + seconds
    while time.perf_counter() < end:
        box.send("reader@there", LETTER)
        sent += 1
    return sent


def through(folder: Path, seconds: float) -> float:
    """Letters per second of eight processes, until the last of them is there."""
    with linked(folder) as (here, there):
        path = here.folder / "room.db"
        senders = [Worker(send_many, path, f"writer-{n}", seconds) for n in range(contention.SENDERS)]
        start_together(senders)
        began = time.perf_counter()
        sent: int = sum(sender.finish() for sender in senders)
        _until(there, 1 + sent)
        return sent / (time.perf_counter() - began)


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    rounds = []
    for number in range(max(effort.runs, 3)):
        near = contention.run(folder / f"near-{number}" / "room.db", "ours", effort.seconds).rate
        rounds.append((through(folder / f"through-{number}", effort.seconds), near))
    yield Line(
        name="federation: letters of 8 processes through one link / sent here",
        value=median(far / near for far, near in rounds),
        goal=0.25,
        at_least=True,
        note=" / ".join(per_second(median(side)) for side in zip(*rounds, strict=True)),
    )
    yield from latency(effort, folder)


def latency(effort: Effort, folder: Path) -> Iterator[Line]:
    """From a send to the moment in which a reader that waits has the letter: over there, and in the same room."""
    times = effort.rounds * PROBES
    with linked(folder / "latency") as (here, there):
        there.room.mailbox("reader").claim(1)
        writer = here.room.mailbox("writer")
        far = Worker(receive, there.folder / "room.db", "reader", times)
        near = Worker(receive, here.folder / "room.db", "near", times)
        start_together([far, near])
        sends: list[float] = []
        began: dict[str, list[float]] = {"reader@there": [], "near": []}
        for _ in range(times):
            time.sleep(BETWEEN)  # all is quiet again
            sends += timed(partial(writer.send, "nobody-waits", LETTER), 1)
            for to, moments in began.items():
                time.sleep(BETWEEN)
                moments.append(now())
                writer.send(to, LETTER)
        ways = [
            [came - sent for sent, came in zip(began[to], reader.finish(), strict=True)]
            for to, reader in (("reader@there", far), ("near", near))
        ]
    added = [through - at_home for through, at_home in zip(*map(_medians, ways), strict=True)]
    rounds = _medians(sends)
    yield Line(
        name="federation: latency that a link adds / the durable send",
        value=median(way / send for way, send in zip(added, rounds, strict=True)),
        goal=3.0,
        note=f"{micros(median(added))} / {micros(median(rounds))}",
    )


def receive(start: Callable[[], None], path: Path, name: str, times: int) -> list[float]:
    """When each letter was in hand."""
    box = postroom.open(str(path)).mailbox(name)
    start()
    came = []
    for _ in range(times):
        (work,) = box.claim(1, timeout=PATIENCE)
        came.append(now())
        work.ack()
    return came


def _medians(seconds: list[float]) -> list[float]:
    """Of each round."""
    return [median(seconds[first : first + PROBES]) for first in range(0, len(seconds), PROBES)]
