"""What a long past costs: check, claim and open in rooms of a thousand letters up to a million."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

import postroom
from postroom.mailbox import Mailbox

from .fill import READER, UNREAD, filled_room
from .measure import Effort, Line, Samples, micros, ratio, take_turns, typical

SMALLEST = 1000
CHECKS, CLAIMS = 50, 20  # of each room in each round


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    del folder  # these rooms are kept
    sizes = [size for size in (SMALLEST, 10_000, 100_000, 1_000_000) if size <= effort.largest]
    paths = {size: filled_room(size) for size in sizes}
    checks, claims = _samples(paths, effort.rounds)
    opened = {
        size: median(_open_and_check(path) for _ in range(2 * effort.rounds)) for size, path in paths.items()
    }
    largest = str(sizes[-1])
    yield Line(
        name=f"check of the top 20 of {UNREAD} unread, at {sizes[-1]:,} letters / at {SMALLEST:,}",
        value=ratio(checks, largest, str(SMALLEST)),
        goal=1.5,
        note=_by_size({size: typical(checks, str(size)) for size in sizes}),
    )
    yield Line(
        name=f"open + first check at {sizes[-1]:,} letters, warm",
        value=opened[sizes[-1]] * 1e3,
        unit="ms",
        goal=10.0,
        note=_by_size(opened),
    )
    yield Line(
        name=f"claim + release, at {sizes[-1]:,} letters / at {SMALLEST:,}",
        value=ratio(claims, largest, str(SMALLEST)),
        note=_by_size({size: typical(claims, str(size)) for size in sizes}),
    )
    yield Line(
        name=f"room file per letter of 1 KiB text, at {sizes[-1]:,} letters",
        value=paths[sizes[-1]].stat().st_size / sizes[-1],
        unit="bytes",
    )


def _samples(paths: dict[int, Path], rounds: int) -> tuple[Samples, Samples]:
    rooms = {str(size): postroom.open(str(path)) for size, path in paths.items()}
    readers = {size: room.mailbox(READER) for size, room in rooms.items()}
    for reader in readers.values():
        reader.check(limit=None, peek=True)
    checks = take_turns({size: (partial(_check, r), CHECKS) for size, r in readers.items()}, rounds)
    claims = take_turns({size: (partial(_claim, r), CLAIMS) for size, r in readers.items()}, rounds)
    for room in rooms.values():
        room.close()
    return checks, claims


def _check(reader: Mailbox) -> None:
    reader.check(limit=20, peek=True)


def _claim(reader: Mailbox) -> None:
    """Give it back, so that the room stays as it is."""
    work = reader.claim()
    if work is not None:
        work.release()


def _open_and_check(path: Path) -> float:
    before = time.perf_counter()
    room = postroom.open(str(path))
    _check(room.mailbox(READER))
    taken = time.perf_counter() - before
    room.close()
    return taken


def _by_size(seconds: dict[int, float]) -> str:
    return ", ".join(f"{size:,}: {micros(taken)}" for size, taken in seconds.items())
