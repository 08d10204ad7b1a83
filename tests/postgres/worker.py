"""One process at work on a room on a server, until it is killed. It writes down what it tries and what it is
promised.

python -m tests.postgres.worker ADDRESS LEDGER ROLE WHO
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

from postroom.core.core import Core
from postroom.errors import Conflict, PostroomError, Resync
from postroom.model.record import Cursor
from postroom.room import Room
from postroom.settings import Settings
from postroom.store.address import open_store
from tests.faults.ledger import Ledger

LEASE = 3.0  # seconds: what a killed holder had in hand comes back soon
CALM = Settings(lease=LEASE, max_attempts=1_000_000, backoff_first=0, archive_after=0, retain_for=0, thread_rate=0)
DESK = "desk"  # where all letters go
PAUSE = 0.05  # seconds between two tries
WALL = 0.3  # seconds after which a follower looks again without a signal


def send_letters(room: Room, ledger: Ledger, who: str) -> None:
    """Send for ever. What got no answer is sent again with its key, also by the next life of this sender."""
    box = room.mailbox(who)
    known = ledger.own()
    tried = [line[2] for line in known if line[1] == "try"]
    sent = {line[2] for line in known if line[1] == "sent"}
    for number in count(len(tried) - 1 if tried and tried[-1] not in sent else len(tried)):
        key = f"{who}-{number}"
        if key not in tried:
            ledger.write("try", key)
        while True:
            try:
                receipt = box.send(DESK, f"text of {key}", key=key)
            except PostroomError as error:
                ledger.write("refused", key, type(error).__name__)
                if not error.temporary:
                    raise
                time.sleep(PAUSE)
            else:
                ledger.write("sent", key, receipt.id)
                break


def work_off(room: Room, ledger: Ledger, who: str) -> None:
    """Claim and acknowledge for ever."""
    box = room.mailbox(DESK)
    while True:
        try:
            work = box.claim(holder=who)
            if work is None:
                time.sleep(PAUSE)
                continue
            ledger.write("held", work.id)
            work.ack()
            ledger.write("acked", work.id)
        except Conflict as lost:  # the server forgot the claim
            ledger.write("lost", type(lost).__name__)
        except PostroomError as error:
            if not error.temporary:
                raise
            time.sleep(PAUSE)


def follow(room: Room, ledger: Ledger, _who: str) -> None:
    """Follow the changes of the room with a cursor, and write down each letter."""
    core: Core = room.core
    cursor: Cursor | None = None
    while True:
        try:
            if cursor is None:
                now = core.store.cursor()
                cursor = Cursor(now.store, now.epoch, 0)
                ledger.write("epoch", cursor.epoch)
            changes, after = core.store.changes(cursor, 1000)
            for change in changes:
                if change.what == "posted" and change.message_id:
                    ledger.write("saw", change.message_id, cursor.epoch)
            cursor = after
        except Resync:
            cursor = None
        except PostroomError as error:
            if not error.temporary:
                raise
            time.sleep(PAUSE)


ROLES: dict[str, Callable[[Room, Ledger, str], None]] = {"send": send_letters, "work": work_off, "follow": follow}


def main() -> None:
    address, folder, role, who = sys.argv[1:5]
    ledger = Ledger(Path(folder), who)
    while True:
        with suppress(PostroomError):  # the server may be away just now
            store = open_store(address, durable=True, busy_timeout=5.0)
            break
        time.sleep(PAUSE)
    ledger.write("ready")
    ROLES[role](Room(store, CALM), ledger, who)


if __name__ == "__main__":
    main()
