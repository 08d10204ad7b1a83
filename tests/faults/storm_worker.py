"""One process of the storm: it works until it is killed, and writes down what it tries and what it is promised.

python -m tests.faults.storm_worker FOLDER ROLE WHO KIND BUG
"""

from __future__ import annotations

import os
import random
import sys
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from postroom.errors import LeaseLost
from postroom.letter import Work
from postroom.mailbox import Mailbox
from postroom.room import Room
from postroom.settings import Settings
from postroom.store.protocol import Store
from tests.faults.kinds import opener
from tests.faults.ledger import Ledger

CROWD = "crowd"  # the scope of broadcasts
MEMBERS = ("work", "c1", "c2", "c3")
WORK, DESK = "work", "desk"  # where letters are acknowledged, and where they are answered
LEASE = 1.0  # seconds: what a killed holder had in hand comes back soon
CALM = Settings(lease=LEASE, max_attempts=1_000_000, backoff_first=0, archive_after=0, retain_for=0, thread_rate=0)


def room_over(store: Store) -> Room:
    return Room(store, CALM)


def text_of(key: str) -> str:
    """What the letter with this key says: anything between a line and some pages."""
    return f"{key} {'x' * (zlib.crc32(key.encode()) % 6000)}"


# -- what they do


def write_letters(room: Room, ledger: Ledger, who: str) -> None:
    """To those who acknowledge and to those who answer, by turns."""
    box = room.mailbox(who)

    def send(key: str, to: tuple[str, ...]) -> None:
        box.send(list(to), text_of(key), key=key)

    _send_for_ever(ledger, who, send, lambda number: ((WORK, DESK)[number % 2],))


def broadcast_letters(room: Room, ledger: Ledger, who: str) -> None:
    box = room.mailbox(who)

    def send(key: str, _to: tuple[str, ...]) -> None:
        box.broadcast(CROWD, text_of(key), key=key)

    _send_for_ever(ledger, who, send, lambda _number: MEMBERS)


def _send_for_ever(
    ledger: Ledger,
    who: str,
    send: Callable[[str, tuple[str, ...]], None],
    recipients: Callable[[int], tuple[str, ...]],
) -> None:
    """What an earlier life tried without an answer is sent again first, with the same key."""
    earlier = ledger.own()
    tried = [line[2:] for line in earlier if line[1] == "try"]
    if tried and (who, "sent", tried[-1][0]) not in earlier:
        again = tried[-1]
        send(again[0], again[1:])
        ledger.write("sent", again[0])
    for number in count(len(tried)):
        key, to = f"{who}:{number}", recipients(number)
        ledger.write("try", key, *to)
        send(key, to)
        ledger.write("sent", key)


def acknowledge(room: Room, ledger: Ledger, who: str) -> None:
    """Most are done, some fail and come back, a few are refused for good."""

    def settle(work: Work) -> None:
        fate = random.random()
        if fate < 0.7:
            work.ack(archive=False)
            ledger.write("done", work.id, WORK)
        elif fate < 0.9:
            work.fail("not today")
        else:
            work.fail("never", retry=False)
            ledger.write("dead", work.id, WORK)

    _claim_for_ever(room.mailbox(WORK), ledger, who, settle)


def answer(room: Room, ledger: Ledger, who: str) -> None:
    """Done and answered in one commit; now and then a try fails."""

    def settle(work: Work) -> None:
        if random.random() < 0.1:
            work.fail("not today")
        else:
            work.ack_and_reply(f"answer to {work.id}")
            ledger.write("done", work.id, DESK)

    _claim_for_ever(room.mailbox(DESK), ledger, who, settle)


def _claim_for_ever(box: Mailbox, ledger: Ledger, who: str, settle: Callable[[Work], None]) -> None:
    """Each look is written down before and after: only a look that began after an ack must not find the letter."""
    for number in count():
        look = f"{who}:{os.getpid()}:{number}"
        ledger.write("ask", look)
        work = box.claim(timeout=0.2)
        if work is None:
            continue
        ledger.write("got", look, work.id, box.name)
        with suppress(LeaseLost):  # it took us longer than the lease: somebody else has it
            settle(work)


def sweep(room: Room, ledger: Ledger, _who: str) -> None:
    while True:
        room.sweep()
        ledger.write("swept")
        time.sleep(0.02)


ROLES = {
    "writer": write_letters,
    "broadcaster": broadcast_letters,
    "claimer": acknowledge,
    "replier": answer,
    "janitor": sweep,
}


def main(folder: str, role: str, who: str, kind: str, bug: str) -> None:
    ledger = Ledger(Path(folder), who)
    ROLES[role](room_over(opener(kind, bug)(Path(folder))), ledger, who)


if __name__ == "__main__":
    main(*sys.argv[1:])
