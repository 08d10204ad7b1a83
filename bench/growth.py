"""What a long past costs: the daily verbs in rooms of a thousand letters up to a million."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import postroom
from postroom.core.authorize import agent_principal
from postroom.core.verb import perform
from postroom.mailbox import Mailbox
from postroom.room import Room
from postroom.server.mail import List

from .fill import RARE, READER, ROOT, TALKER, THREAD, UNREAD, filled_room
from .measure import Act, Curve, Effort, Line, Samples, micros, ratio, take_turns, typical

SMALLEST = 1000
SIZES = (SMALLEST, 10_000, 100_000, 1_000_000)
# Of each in each room in each round.
TIMES = {"check": 50, "claim": 20, "search": 20, "thread": 20, "conversations": 10, "list": 10, "stats": 10}
SOON = {"conversations", "list", "stats"}  # have a time as their goal: 50 ms
OPENINGS = 2
NAMES = {
    "check": f"check of the top 20 of {UNREAD} unread",
    "claim": "claim + release",
    "search": "search for a rare word",
    "thread": f"thread of {THREAD}",
    "conversations": "conversations of the room",
    "list": "mail/list of an agent, by pages of 50",
    "stats": "stats of the room",
    "open": "open + first check",
}


def measure(effort: Effort, folder: Path) -> Iterator[Line | Curve]:
    del folder  # these rooms are kept
    paths = {size: filled_room(size) for size in SIZES if size <= effort.largest}
    samples = _samples(paths, effort.rounds)
    for verb, name in NAMES.items():
        yield _line(verb, samples[verb], list(paths))
        points = [(float(size), typical(samples[verb], str(size)) * 1e3) for size in paths]
        yield Curve(figure="growth", name=name, points=points)
    yield _size(paths)


def _line(verb: str, samples: Samples, sizes: list[int]) -> Line:
    """Opening has a time as its goal; everything else is compared with the smallest room."""
    note = ", ".join(f"{size:,}: {micros(typical(samples, str(size)))}" for size in sizes)
    largest = sizes[-1]
    if verb == "open" or verb in SOON:
        slowest, goal = typical(samples, str(largest)) * 1e3, 50.0 if verb in SOON else 10.0
        return Line(
            name=f"{NAMES[verb]} at {largest:,} letters, warm", value=slowest, unit="ms", goal=goal, note=note
        )
    return Line(
        name=f"{NAMES[verb]}, at {largest:,} letters / at {SMALLEST:,}",
        value=ratio(samples, str(largest), str(SMALLEST)),
        goal=1.5 if verb == "check" else None,
        note=note,
    )


def _size(paths: dict[int, Path]) -> Line:
    each = {size: path.stat().st_size / size for size, path in paths.items()}
    indexed = {size: Path(f"{path}.search").stat().st_size / size for size, path in paths.items()}
    largest = max(paths)
    return Line(
        name=f"room file per letter of 1 KiB text, at {largest:,} letters",
        value=each[largest],
        unit="bytes",
        note=", ".join(f"{size:,}: {bytes:,.0f}" for size, bytes in each.items())
        + f"; the index of words {indexed[largest]:,.0f} more",
    )


def _samples(paths: dict[int, Path], rounds: int) -> dict[str, Samples]:
    """Verb -> room -> seconds. The rooms take turns."""
    with ExitStack() as opened:
        rooms = {str(size): opened.enter_context(postroom.open(str(path))) for size, path in paths.items()}
        acts = {size: _acts(room) for size, room in rooms.items()}
        samples = {
            verb: take_turns({size: (acts[size][verb], times) for size in rooms}, rounds)
            for verb, times in TIMES.items()
        }
    return samples | {"open": _openings(paths, rounds)}


def _openings(paths: dict[int, Path], rounds: int) -> Samples:
    taken: Samples = {str(size): [] for size in paths}
    for _ in range(rounds):
        for size, path in paths.items():
            taken[str(size)].append([_open_and_check(path) for _ in range(OPENINGS)])
    return taken


def _acts(room: Room) -> dict[str, Act]:
    reader, talker = room.mailbox(READER), room.mailbox(TALKER)
    reader.check(limit=None, peek=True)
    if len(talker.thread(ROOT)) != THREAD or len(talker.search(RARE)) != 3:
        raise RuntimeError("this room is not what it was made to be; remove it from the cache")
    return {
        "check": partial(_check, reader),
        "claim": partial(_claim, reader),
        "search": partial(talker.search, RARE),
        "thread": partial(talker.thread, ROOT),
        "conversations": room.conversations,
        "list": partial(perform, room.core, agent_principal(TALKER), List(limit=50)),
        "stats": room.stats,
    }


def _check(reader: Mailbox) -> None:
    reader.check(limit=20, peek=True)


def _claim(reader: Mailbox) -> None:
    """Give it back, so that the room stays as it is."""
    work = reader.claim()
    if work is not None:
        work.release()


def _open_and_check(path: Path) -> float:
    """Seconds; closing is not among them."""
    before = time.perf_counter()
    with postroom.open(str(path)) as room:
        _check(room.mailbox(READER))
        return time.perf_counter() - before
