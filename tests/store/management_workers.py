"""What the processes of `test_management_races` do. Each records its results, as in `workers`."""

from __future__ import annotations

from multiprocessing.synchronize import Barrier
from pathlib import Path

from postroom import IllegalMove, LeaseLost, Room
from postroom.settings import Settings
from postroom.store.sqlite.store import SqliteStore
from tests.rooms import FakeClock
from tests.store.workers import Ledger, enter

LETTERS = 60
HOURS = 4 * 3600.0


def room_of(store: SqliteStore, hours_later: float = 0) -> Room:
    clock = FakeClock()
    clock.advance(hours_later)
    return Room(store, Settings(), clock=clock)


def claim_or_unsend(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """The first two take letters back, the others work on them."""
    ledger, room = Ledger(folder, name), room_of(enter(folder, line, kind))
    if name in {"worker0", "worker1"}:
        for number in range(LETTERS):  # the very letters the others are about to claim
            try:
                room.mailbox("ann").unsend(f"m{number}")
            except IllegalMove:
                continue
            ledger.write(f"unsent m{number}")
        return
    while (work := room.mailbox("bob").claim()) is not None:
        ledger.write(f"claimed {work.id}")
        try:
            work.ack()
        except (IllegalMove, LeaseLost):  # a store with a bug: it was taken back while we held it
            continue


def sweep(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Everyone is the janitor, and it is four hours later."""
    room = room_of(enter(folder, line, kind), HOURS)
    Ledger(folder, name).write(str(room.sweep().climbed))
