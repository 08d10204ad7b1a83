"""A waiter in another process: how soon it has the letter after the sender's send returned, and what it costs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles

import postroom

from .measure import LETTER, Effort, Line, micros
from .workers import Worker, now, start_together

PAUSE = (0.004, 0.012)  # seconds between two sends: the waiter sleeps again by then


def receive(start: Callable[[], None], path: Path, letters: int) -> dict[str, float]:
    """When each letter was here."""
    with postroom.open(str(path)) as room:
        mailbox = room.mailbox("reader")
        here = {}
        start()
        for _ in range(letters):
            letter = mailbox.wait(timeout=30)
            if letter is not None:
                here[letter.id] = now()
        return here


def idle(start: Callable[[], None], path: Path, seconds: float) -> float:
    """The share of one processor a waiter takes while nothing comes."""
    with postroom.open(str(path)) as room:
        mailbox = room.mailbox("nobody")
        mailbox.wait(timeout=0.1)
        start()
        spent, began = time.process_time(), now()
        mailbox.wait(timeout=seconds)
        return (time.process_time() - spent) / (now() - began)


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    path = folder / "room.db"
    late = sorted(wake(path, effort.rounds * effort.burst // 8))
    ninety = quantiles(late, n=100)[98]
    yield Line(
        name="wait: the letter is here after send() returned",
        value=median(late) * 1e3,
        unit="ms",
        goal=1.0,
        note=f"p99 {micros(ninety)}, {len(late)} letters",
    )
    waiter = Worker(idle, path, effort.idle)
    start_together([waiter])
    share = waiter.finish()
    yield Line(name="wait: an idle waiter's share of a processor", value=share * 100, unit="%", goal=1.0)


def wake(path: Path, letters: int) -> list[float]:
    """Seconds from the end of each send to the waiter having the letter."""
    with postroom.open(str(path)) as room:
        writer = room.mailbox("writer")
        waiter = Worker(receive, path, letters)
        start_together([waiter])
        sent = {}
        for _ in range(letters):
            time.sleep(random.uniform(*PAUSE))
            id = writer.send("reader", LETTER).id
            sent[id] = now()
        here: dict[str, float] = waiter.finish()
    return [here[id] - sent[id] for id in here]
