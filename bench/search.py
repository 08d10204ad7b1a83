"""Searches in rooms with a past, and what keeping the index costs those who send."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import postroom
from postroom.room import Room
from postroom.store.sqlite import search
from postroom.store.sqlite.store import RARELY

from .fill import RARE, TALKER, filled_room
from .measure import Act, Effort, Line, Samples, Turns, micros, ratio, take_turns, timed, typical

SMALLEST = 1000
COMMON = "quicksort"
SEARCHES = 20  # of each kind in each round
WARM = 1500  # letters before the clock starts: by then senders fill the index
TURN = 512  # letters sent in a row


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    for size in (SMALLEST, effort.largest):
        yield from _searches(filled_room(size), size, effort.rounds)
    yield from _tail(folder / "tail", effort.rounds)
    yield from _sending(folder / "send", effort)


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


def _sending(folder: Path, effort: Effort) -> Iterator[Line]:
    with_search = postroom.open(str(folder / "with" / "room.db"))
    without = postroom.open(str(folder / "without" / "room.db"))
    helps = max(1, effort.rounds // 4)
    with with_search, without:
        acts: Turns = {"with": (_sender(with_search), TURN), "without": (_sender(without), TURN)}
        without.core.store._lookout.is_due = _never  # type: ignore[attr-defined]
        for act, _ in acts.values():
            for _ in range(WARM):
                act()
        with _helping() as spent:
            samples = take_turns(acts, helps * RARELY // TURN)
        yield from _sent(samples, spent)
        yield from _elsewhere(without, typical(samples, "without"))


@contextmanager
def _helping() -> Iterator[list[float]]:
    """The seconds of each time that a sender adds to the index. The disk's own pauses are longer: the difference
    of two sums would tell of those.
    """
    spent: list[float] = []
    help_along = search.index_some

    def timed_help(*result: Any) -> None:
        start = time.perf_counter()
        help_along(*result)
        spent.append(time.perf_counter() - start)

    vars(search)["help_along"] = timed_help
    try:
        yield spent
    finally:
        vars(search)["help_along"] = help_along


def _sent(samples: Samples, spent: Sequence[float]) -> Iterator[Line]:
    sending = sum(second for taken in samples["with"] for second in taken)
    absolute = f"{micros(typical(samples, 'with'))} / {micros(typical(samples, 'without'))}"
    yield Line(
        name="send with the index kept / without, by medians", value=ratio(samples, "with", "without"), goal=1.05,
        note=absolute,
    )  # fmt: skip
    yield Line(
        name="send with the index kept / without, all told",
        value=sending / (sending - sum(spent)),
        goal=1.05,
        note=f"{len(spent)} looks at the index took {micros(sum(spent))} of {micros(sending)} of sending",
    )


def _elsewhere(room: Room, send: float) -> Iterator[Line]:
    """What senders leave to others: a search that meets all those letters, and then the janitor."""
    reader, waiting = room.mailbox("reader"), room.stats().letters
    [first] = timed(partial(reader.search, RARE), 1)
    start = time.perf_counter()
    added = room.core.store.trim().indexed
    each = (time.perf_counter() - start) / added
    yield Line(
        name="add a letter to the index, by the janitor or after a search",
        value=each * 1e6,
        unit="µs",
        note=f"{each / send:.2f} of a send; {added:,} letters",
    )
    yield Line(
        name=f"the first search, {waiting:,} letters not in the index yet",
        value=first * 1e3,
        unit="ms",
        note=f"the next one, the janitor having been there, {micros(min(timed(partial(reader.search, RARE), 5)))}",
    )


def _never(*_: int) -> bool:
    return False


def _sender(room: Room) -> Act:
    """Sends one text after the other."""
    texts, writer = cycle(_texts(512)), room.mailbox("writer")
    return lambda: writer.send("reader", next(texts))


def _texts(count: int) -> list[str]:
    """Text of 1 KiB each, with as many different words as people use: few often, many rarely."""
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["".join(chance.choices(letters, k=chance.randint(2, 10))) for _ in range(20_000)]
    weights = [1 / (place + 1) for place in range(len(vocabulary))]
    return [" ".join(chance.choices(vocabulary, weights, k=170))[:1024] for _ in range(count)]
