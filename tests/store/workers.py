"""What the processes of `test_many_processes` do, and stores with a bug in them that its audits must find.

Each process writes down what it was promised, in a ledger outside the room: the audits go by that alone.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from postroom.model import delivery
from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.protocol import Move, Plan, Post, Posted, Write
from postroom.store.sqlite import lock
from postroom.store.sqlite.store import SqliteStore
from tests.coverage import nothing_counted
from tests.letters import BOOT, BootClock, held, lease, letter, post

PATIENCE = 60.0  # seconds; only a process that hangs takes this long
SPAWN = multiprocessing.get_context("spawn")
Work: TypeAlias = Callable[[Path, str, Barrier, type[SqliteStore]], None]


class WorkerPool:
    """Processes that begin their work at the same moment."""

    def __init__(self, work: Work, count: int, folder: Path, kind: type[SqliteStore] = SqliteStore) -> None:
        self._line = SPAWN.Barrier(count)  # kept: the children find it by its name
        self._processes: list[BaseProcess] = [
            SPAWN.Process(target=work, args=(folder, f"worker{number}", self._line, kind), daemon=True)
            for number in range(count)
        ]
        with nothing_counted():  # other tests pass the same lines; these are about who comes first
            for process in self._processes:
                process.start()

    def finish(self) -> set[int | None]:
        """Wait for all. Their exit codes; None for one that hangs."""
        for process in self._processes:
            process.join(PATIENCE)
        return {process.exitcode for process in self._processes}

    def kill_once(self, enough: Callable[[], bool]) -> set[int | None]:
        """Kill all, without warning, once they have done enough."""
        while not enough() and all(process.is_alive() for process in self._processes):
            self._processes[0].join(0.005)
        for process in self._processes:
            process.kill()
        return self.finish()


class Ledger:
    """One line per promise. It survives a kill, because every line is handed to the system at once."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = os.open(folder / f"{name}.ledger", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(self, line: str) -> None:
        os.write(self._file, f"{line}\n".encode())


def promises(folder: Path) -> list[str]:
    """All whole lines of all ledgers."""
    found = []
    for ledger in folder.glob("*.ledger"):
        found += ledger.read_text().split("\n")[:-1]
    return found


def enter(folder: Path, line: Barrier, kind: type[SqliteStore]) -> SqliteStore:
    line.wait(PATIENCE)
    store = kind(folder / "room.db", clock=BootClock(BOOT))
    if isinstance(store, Forgetful):
        store.meeting = line
    return store


# -- work


def send_some(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Open the room with everyone else, send 25 letters, write down each that was accepted."""
    ledger, store = Ledger(folder, name), enter(folder, line, kind)
    for number in range(25):
        (posted,) = store.commit([post(letter(f"{name}-{number}", ["bob", "cleo"], sender=name))])
        ledger.write(posted.message_id)


def send_for_ever(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Send until killed."""
    ledger, store = Ledger(folder, name), enter(folder, line, kind)
    first = len(promises(folder)) * 1000
    for number in range(first, first + 1_000_000):
        id = f"{name}-{os.getpid()}-{number}"
        store.commit([post(letter(id, ["bob", "cleo"], sender=name, subject="x" * (number % 5000)))])
        ledger.write(id)


def claim_all(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Claim bob's letters one by one until there are none, write down each."""
    ledger, store = Ledger(folder, name), enter(folder, line, kind)
    waiting = Query(mailbox="bob", states=(State.UNREAD,), order="priority", limit=1)
    taken: list[str] = []

    def take() -> Sequence[Write]:
        taken[:] = []
        found = store.find(waiting)
        taken.extend(f.message.id for f in found)
        return [Move(f.delivery, delivery.claim(f.delivery, lease(token=name)), "claim") for f in found]

    while True:
        store.commit(take)
        if not taken:
            return
        ledger.write(taken[0])


def send_for_a_while(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Send for a second, write down how many."""
    store = kind(folder / "room.db", clock=BootClock(BOOT))
    line.wait(PATIENCE)
    end, number = time.monotonic() + 1.0, 0
    while time.monotonic() < end:
        number += 1
        store.commit([post(letter(f"{name}-{os.getpid()}-{number}", sender=name))])
    Ledger(folder, name).write(str(number))


def send_rudely(folder: Path, name: str, line: Barrier, kind: type[SqliteStore]) -> None:
    """Like `send_for_a_while`, but only one worker asks for the lock again at once; the others nap."""
    if name != "worker0":
        lock.SHORTEST = lock.LONGEST = lock.EAGER = lock.RAREST = 0.2
    send_for_a_while(folder, name, line, kind)


# -- stores with a bug


class Lossy(SqliteStore):
    """Reports success too early: the last two writes are always still to come."""

    _later: list[Write]

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        assert not callable(writes)
        pending = [*getattr(self, "_later", []), *writes]
        super().commit(pending[:-2])
        self._later = pending[-2:]
        return tuple(Posted(message_id=w.message.id, number=1) for w in writes if isinstance(w, Post))


class Doubling(SqliteStore):
    """Sends again under another id, as if no answer had come."""

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        assert not callable(writes)
        again = [
            replace(w, message=replace(w.message, id=f"{w.message.id}.2")) for w in writes if isinstance(w, Post)
        ]
        posted = super().commit(writes)
        super().commit(again)
        return posted


class Forgetful(SqliteStore):
    """Looks before it stands in line, and forgets the revision it saw."""

    meeting: Barrier | None = None

    def commit(self, writes: Sequence[Write] | Plan) -> tuple[Posted, ...]:
        planned = writes() if callable(writes) else writes
        meeting, self.meeting = self.meeting, None
        if meeting is not None:  # all have looked before the first of them writes: the bug never hides
            meeting.wait(PATIENCE)
        return super().commit(lambda: [self._at_any_revision(write) for write in planned])

    def _at_any_revision(self, write: Write) -> Write:
        if not isinstance(write, Move):
            return write
        now = held(self, write.before.message_id, write.before.mailbox)
        return Move(now, replace(write.after, revision=now.revision + 1), write.action)
