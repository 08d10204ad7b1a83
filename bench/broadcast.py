"""One letter to a thousand registered agents, with nothing in their inboxes, and with fifty unread in each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw

import postroom

from .measure import LETTER, Effort, Line, Samples, micros, ratio, timed, typical

AGENTS = 1000
UNREAD = 50
SENDS = 20  # single sends to compare with, in each round


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    path = folder / "room.db"
    prepare(path)
    emptied = compare(path, effort.rounds, emptied=True)
    yield _line(f"broadcast to {AGENTS:,} agents, empty inboxes / one send", emptied, 10.0)
    with postroom.open(str(path), durability="process") as room:
        for _ in range(UNREAD):
            room.mailbox("writer").broadcast("all", LETTER)
    filled = compare(path, effort.rounds, emptied=False)
    yield _line(f"broadcast to {AGENTS:,} agents, {UNREAD} unread in each / one send", filled, 25.0)


def prepare(path: Path) -> None:
    """The agents register, and the log grows to its full size."""
    with postroom.open(str(path), durability="process") as room:
        for number in range(AGENTS):
            room.mailbox(f"agent-{number}").register(scopes=["all"])
        for _ in range(700):
            room.mailbox("writer").send("reader", LETTER)


def compare(path: Path, rounds: int, *, emptied: bool) -> Samples:
    """Sends and broadcasts take turns; the inboxes are emptied behind the house's back, outside the clock."""
    samples: Samples = {"send": [], "broadcast": []}
    broom = apsw.Connection(str(path))
    with postroom.open(str(path)) as room:
        writer = room.mailbox("writer")
        for _ in range(rounds):
            samples["send"].append(timed(lambda: writer.send("reader", LETTER), SENDS))
            samples["broadcast"].append(timed(lambda: writer.broadcast("all", LETTER), 1))
            if emptied:
                broom.execute("UPDATE deliveries SET state = 3 WHERE state = 1")
    broom.close()
    return samples


def _line(name: str, samples: Samples, goal: float) -> Line:
    both = f"{micros(typical(samples, 'broadcast'))} / {micros(typical(samples, 'send'))}"
    return Line(name=name, value=ratio(samples, "broadcast", "send"), goal=goal, note=both)
