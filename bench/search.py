"""Searches in rooms with a past, and what it costs to bring the index up to date."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import postroom

from .fill import RARE, TALKER, filled_room
from .measure import Effort, Line, Turns, micros, take_turns, timed, typical

SMALLEST = 1000
COMMON = "quicksort"
SEARCHES = 20  # of each kind in each round
WAITING = 20_480  # letters that are not in the index


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    for size in (SMALLEST, effort.largest):
        yield from _searches(filled_room(size), size, effort.rounds)
    yield from _tail(folder / "tail", effort.rounds)
    yield from _waiting(folder / "send")


def _searches(path: Path, size: int, rounds: int) -> Iterator[Line]:
    with postroom.open(str(path)) as room:
        reader = room.mailbox(TALKER)
        acts: Turns = {
            "rare": (partial(reader.search, RARE), SEARCHES),
            "rare, by the operator": (partial(room.search, RARE), SEARCHES),
            "common": (partial(reader.search, COMMON), SEARCHES),
            "phrase": (partial(reader.search, '"equal keys"'), SEARCHES),
            "ranked": (partial(reader.search, COMMON, ranked=True), 2),
        }
        samples = take_turns(acts, rounds)
    index = sum(Path(f"{path}.search{end}").stat().st_size for end in ("", "-wal")) / size
    operator = micros(typical(samples, "rare, by the operator"))
    yield Line(
        name=f"search for a rare word at {size:,} letters, p50",
        value=typical(samples, "rare") * 1e3,
        unit="ms",
        goal=5.0,
        note=f"by the operator {operator}; the index takes {index:.0f} bytes per letter",
    )
    yield Line(
        name=f"search for a word of every letter at {size:,} letters, newest 20, p50",
        value=typical(samples, "common") * 1e3,
        unit="ms",
        note=f"a phrase {micros(typical(samples, 'phrase'))}; ranked {micros(typical(samples, 'ranked'))}",
    )


def _tail(folder: Path, rounds: int) -> Iterator[Line]:
    """As many letters as may wait before anyone adds them."""
    with postroom.open(str(folder / "room.db"), durability="process") as room:
        writer = room.mailbox("writer")
        writer.send_many([postroom.draft("reader", text) for text in _texts(SMALLEST)])
        samples = take_turns({"tail": (partial(room.mailbox("reader").search, RARE), SEARCHES)}, rounds)
    yield Line(
        name=f"search for a rare word, {SMALLEST:,} letters not in the index yet, p50",
        value=typical(samples, "tail") * 1e3,
        unit="ms",
        goal=5.0,
    )


def _waiting(folder: Path) -> Iterator[Line]:
    """What senders leave to others: a search that meets all those letters, and then the janitor."""
    room = postroom.open(str(folder / "room.db"), durability="process")
    writer, reader = room.mailbox("writer"), room.mailbox("reader")
    texts = _texts(512)
    for _ in range(WAITING // len(texts)):
        writer.send_many([postroom.draft("reader", text) for text in texts])
    waiting = room.stats().letters
    [first] = timed(partial(reader.search, RARE), 1)
    start = time.perf_counter()
    added = room.core.store.trim().indexed
    each = (time.perf_counter() - start) / added
    yield Line(
        name="add a letter to the index, by the janitor or after a search",
        value=each * 1e6,
        unit="µs",
        note=f"{added:,} letters",
    )
    yield Line(
        name=f"the first search, {waiting:,} letters not in the index yet",
        value=first * 1e3,
        unit="ms",
        note=f"the next one, the janitor having been there, {micros(min(timed(partial(reader.search, RARE), 5)))}",
    )


def _texts(count: int) -> list[str]:
    """Text of 1 KiB each, with as many different words as people use: few often, many rarely."""
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(20_000)]
    weights = [1 / (place + 1) for place in range(len(vocabulary))]
    return [" ".join(chance.choices(vocabulary, weights, k=170))[:1024] for _ in range(count)]
