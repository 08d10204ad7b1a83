"""What the processes of `test_task_races` do, and a store with a bug in it that its audit must find."""

from __future__ import annotations

from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path

from msgspec.structs import replace

from postroom import PostroomError, Room
from postroom.settings import Settings
from postroom.store.protocol import Put, Write
from postroom.store.sqlite.store import SqliteStore
from tests.store.workers import Forgetful, Ledger, enter

TASKS = [f"t-{number}" for number in range(12)]


def room_of(store: SqliteStore) -> Room:
    return Room(store, Settings())


def take_all(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Take on every task, then finish it; write down each that went well."""
    ledger, bob = Ledger(folder, name), room_of(enter(folder, line, kind)).mailbox("bob")
    for id in TASKS:
        for step in ("accept", "start", "complete"):
            with suppress(PostroomError):
                getattr(bob.task(id), step)()
                ledger.write(f"{step} {id}")


def take_and_cancel(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Half of them finish what the other half takes back."""
    ledger, room = Ledger(folder, name), room_of(enter(folder, line, kind))
    mailbox, step = ("ann", "cancel") if int(name[-1]) % 2 else ("bob", "complete")
    for id in TASKS:
        with suppress(PostroomError):
            getattr(room.mailbox(mailbox).task(id), step)()
            ledger.write(f"over {id}")


def admit_all(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Let the rules decide about every task."""
    ledger, bob = Ledger(folder, name), room_of(enter(folder, line, kind)).mailbox("bob")
    for id in TASKS:
        with suppress(PostroomError):
            ledger.write(f"{'in' if bob.task(id).admit() else 'out'} {id}")


class Hasty(Forgetful):
    """Looks before it stands in line, and forgets the revision of records too."""

    def _at_any_revision(self, write: Write) -> Write:
        if not isinstance(write, Put):
            return super()._at_any_revision(write)
        now = self.records(write.record.kind, write.record.key)
        return replace(write, record=replace(write.record, revision=now[0].revision if now else 0))
