"""Rooms in folders of files: what a letter costs beside the files it is made of, and many letters waiting."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import postroom
from postroom.nanobot import MailboxManager

from .measure import LETTER, Effort, Line, Turns, micros, ratio, take_turns, timed, typical

LAYOUTS = ("nanobot", "chipset", "swarm")
FEW = 1_000
CLAIMS = 50


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    yield from sends(effort, folder)
    yield from acks(effort, folder)
    yield from waiting(effort, folder)
    yield from heartbeats(effort, folder)


# -- one letter


class Recipe:
    """What a careful program does by hand."""

    def __init__(self, folder: Path) -> None:
        self.inbox, self.processed = folder / "inbox", folder / "processed"
        for place in (self.inbox, self.processed):
            place.mkdir(parents=True)
        self.sent = self.done = 0

    def send(self) -> None:
        self.sent += 1
        temporary = f"{self.inbox}/.{self.sent}.tmp"
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.write(descriptor, LETTER.encode())
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(temporary, f"{self.inbox}/{self.sent}.json")  # noqa: PTH104 - a path object would be measured too
        sync(self.inbox)

    def finish(self) -> None:
        self.done += 1
        os.rename(f"{self.inbox}/{self.done}.json", f"{self.processed}/{self.done}.json")  # noqa: PTH104
        sync(self.inbox)
        sync(self.processed)


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def sends(effort: Effort, folder: Path) -> Iterator[Line]:
    for layout in LAYOUTS:
        by_hand = Recipe(folder / f"hand-{layout}")
        with postroom.open(address(folder / layout, layout)) as room:
            send = partial(room.mailbox("writer").send, "reader", LETTER, subject="Sorting")
            send()
            acts: Turns = {"hand": (by_hand.send, effort.burst), "ours": (send, effort.burst)}
            samples = take_turns(acts, effort.rounds)
        yield Line(
            name=f"{layout} files: durable send / create + write + fsync + rename + fsync folder",
            value=ratio(samples, "ours", "hand"),
            goal=1.4,
            note=f"{micros(typical(samples, 'ours'))} / {micros(typical(samples, 'hand'))}",
        )


def acks(effort: Effort, folder: Path) -> Iterator[Line]:
    by_hand = Recipe(folder / "hand-acks")
    with postroom.open(address(folder / "acks", "nanobot")) as room:
        reader, count = room.mailbox("reader"), effort.rounds * effort.burst
        for _ in range(count):
            room.mailbox("writer").send("reader", LETTER)
            by_hand.send()
        held = reader.claim(count, lease=3600)
        acts: Turns = {
            "hand": (by_hand.finish, effort.burst),
            "ours": (lambda: held.pop().ack(), effort.burst),
        }
        samples = take_turns(acts, effort.rounds)
    yield Line(
        name="nanobot files: ack / rename + two folder syncs",
        value=ratio(samples, "ours", "hand"),
        goal=1.4,
        note=f"{micros(typical(samples, 'ours'))} / {micros(typical(samples, 'hand'))}",
    )


# -- many letters


def waiting(effort: Effort, folder: Path) -> Iterator[Line]:
    many = min(effort.largest, 100_000)
    few = folder / "few"
    drop(few, FEW)
    drop(folder / "many", many)
    with postroom.open(address(few, "nanobot")) as room:
        room.mailbox("reader").check(1, peek=True)
        claim_few = claims(room)
    place = address(folder / "many", "nanobot")
    taken = once(lambda: postroom.open(place).close())
    yield Line(
        name=f"nanobot files: the index made from {many:,} files",
        value=taken,
        unit="s",
        goal=10.0 * many / 100_000,
        note=f"{taken / many * 1e6:.0f} µs each",
    )
    with postroom.open(place) as room:
        room.mailbox("reader").check(1, peek=True)  # notes that no folder has changed
    with postroom.open(place) as room:
        first = once(lambda: room.mailbox("reader").check(1, peek=True))
        claim_many = claims(room)
    yield Line(
        name=f"nanobot files: first letter of {many:,} waiting, in a room just opened",
        value=first * 1000,
        unit="ms",
        goal=50.0,
    )
    yield Line(
        name=f"nanobot files: claim of one of {many:,} / of {FEW:,}",
        value=claim_many / claim_few,
        goal=3.0,
        note=f"{micros(claim_many)} / {micros(claim_few)}",
    )
    shutil.rmtree(folder / "many")


def drop(root: Path, count: int) -> None:
    """Letters as the design's own programs write them."""
    inbox = root / "reader" / "inbox"
    inbox.mkdir(parents=True)
    for number in range(count):
        name = f"{1_745_659_200_000 + number}_writer"
        fields = {
            "id": f"msg_{name}",
            "from": "writer",
            "to": "reader",
            "timestamp": "2026-04-26T10:00:00Z",
            "type": "message",
            "content": {"parts": [{"type": "text", "text": LETTER[:200]}]},
        }
        (inbox / f"{name}.msg.json").write_text(json.dumps(fields))


def claims(room: postroom.Room) -> float:
    reader = room.mailbox("reader")
    reader.claim()
    return sorted(timed(reader.claim, CLAIMS))[CLAIMS // 2]


def once(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


# -- signs of life


def heartbeats(effort: Effort, folder: Path) -> Iterator[Line]:
    managers = {}
    for agents in (10, 1_000):
        managers[agents] = manager = MailboxManager(folder / f"agents-{agents}")
        for number in range(agents):
            manager.register(f"agent-{number}", {"description": "beats"})
    acts: Turns = {
        str(agents): (partial(manager.heartbeat, "agent-1"), effort.burst) for agents, manager in managers.items()
    }
    samples = take_turns(acts, effort.rounds)
    yield Line(
        name="nanobot files: heartbeat among 1,000 agents / among 10",
        value=ratio(samples, "1000", "10"),
        goal=1.2,
        note=f"{micros(typical(samples, '1000'))} / {micros(typical(samples, '10'))}",
    )


def address(root: Path, layout: str) -> str:
    return f"files:{root}?layout={layout}"
