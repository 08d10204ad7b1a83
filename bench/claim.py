"""One process works its mail off: one by one, and ten at a time with one acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import postroom
from postroom.mailbox import Mailbox

from .measure import LETTER, Effort, Line, per_second, timed

WARM = 700


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    rounds = []
    with postroom.open(str(folder / "room.db")) as room:
        writer, reader = room.mailbox("writer"), room.mailbox("reader")
        _send(writer, WARM)
        _take_ten(reader, WARM)
        for _ in range(effort.rounds):
            sent = _send(writer, effort.burst)
            one_by_one = _take(reader, effort.burst)
            _send(writer, effort.burst)
            rounds.append((sent, one_by_one, _take_ten(reader, effort.burst)))
    sent, one, ten = (median(column) for column in zip(*rounds, strict=True))
    yield Line(
        name="claim + ack one by one, rate / send rate",
        value=median(taken / sent for sent, taken, _ in rounds),
        goal=0.7,
        at_least=True,
        note=f"{per_second(one)} / {per_second(sent)}",
    )
    yield Line(
        name="claim(10) + one ack, rate / send rate",
        value=median(taken / sent for sent, _, taken in rounds),
        goal=4.0,
        at_least=True,
        note=f"{per_second(ten)}, {ten / one:.1f} x one by one",
    )


def _send(writer: Mailbox, letters: int) -> float:
    """Letters per second."""
    return letters / sum(timed(lambda: writer.send("reader", LETTER), letters))


def _take(reader: Mailbox, letters: int) -> float:
    def take() -> None:
        work = reader.claim()
        if work is not None:
            work.ack()

    return letters / sum(timed(take, letters))


def _take_ten(reader: Mailbox, letters: int) -> float:
    return letters / sum(timed(lambda: reader.claim(10).ack(), letters // 10))
