"""A program that sends, claims and acknowledges until it is stopped, and prints one line per promise.

    python -m tests.faults.writer ROOM_FOLDER NAME [--kind KIND] [--bug unsynced] [--letters 20] [--small-log]

It is what crash tests and power cuts interrupt; `tests.faults.checker` then holds the room to the lines.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from postroom.model import delivery
from postroom.model.codec import digest
from postroom.store.protocol import Move, Store
from tests.faults.kinds import KINDS, SOUND, named, opener
from tests.letters import NOW, held, lease, letter, post

MAILBOXES = ("bob", "cleo")
EVERY = 4  # one letter in so many is also worked on


def promise(line: str) -> None:
    """In one write of its own: the trace and the pipe hold it, or they do not."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


def work(store: Store, name: str, letters: int) -> None:
    """Send letters of all sizes to two mailboxes; of some, one delivery is claimed and acknowledged."""
    for number in range(letters):
        message = letter(
            f"{name}-{os.getpid()}-{number}", MAILBOXES, sender=name, subject="x" * (number * 577 % 9000)
        )
        store.commit([post(message)])
        promise(f"sent {message.id} {digest(message)}")
        if number % EVERY == 0:
            acknowledge(store, message.id)
            promise(f"acked {message.id} bob")


def acknowledge(store: Store, id: str) -> None:
    found = held(store, id, "bob")
    mine = delivery.claim(found, lease(token=id))
    store.commit([Move(found, mine, "claim")])
    store.commit([Move(mine, delivery.ack(mine, NOW, archive=False), "ack")])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--kind", default=KINDS[0].name)
    parser.add_argument("--bug", default=SOUND)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--small-log", action="store_true")
    value = parser.parse_args()
    if value.small_log:
        named(value.kind).shrink()
    work(opener(value.kind, value.bug)(value.folder), value.name, value.letters)


if __name__ == "__main__":
    main()
