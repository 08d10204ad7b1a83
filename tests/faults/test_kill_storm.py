"""Everybody at work in one room, each in a process of its own, and all the while one after the other is killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from postroom.store.protocol import Store
from tests.conftest import LONG
from tests.faults import audit
from tests.faults.kinds import SOUND, Kind
from tests.faults.ledger import NAME, Ledger, lines, lines_with
from tests.faults.storm_worker import CROWD, DESK, LEASE, MEMBERS, WORK, room_over, text_of

ROOT = Path(__file__).parent.parent.parent
MANY = 1000
ROLES = {
    "writer1": "writer",
    "writer2": "writer",
    "broadcaster": "broadcaster",
    "claimer1": "claimer",
    "claimer2": "claimer",
    "replier1": "replier",
    "replier2": "replier",
    "janitor": "janitor",
}
PATIENCE = 60.0  # seconds without a line from anybody: something hangs


class Worker:
    """A process, and when it is to be killed: after so many lines in the ledger, or so many seconds."""

    def __init__(self, command: list[str], complaints: Path, life: tuple[float, float]) -> None:
        with complaints.open("ab") as errors:
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=errors, stdin=subprocess.DEVNULL)
        self.began = time.monotonic()
        self.lines_left, self.seconds = life

    def is_due(self) -> bool:
        return self.lines_left <= 0 or time.monotonic() > self.began + self.seconds

    def kill(self) -> int:
        """Without warning. How it ended."""
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait(PATIENCE)


class Storm:
    """All at work. Which of them dies when comes from the seed; where in its work that finds it, from chance."""

    def __init__(
        self, folder: Path, kind: Kind, bug: str = SOUND, roles: dict[str, str] = ROLES, seed: int = 0
    ) -> None:
        self.folder = folder
        self.complaints = folder / "stderr"
        self.kills = 0
        self.ends: Counter[int] = Counter()
        self._words = (kind.name, bug)
        self._dice = random.Random(seed)
        self._read = 0  # bytes of the ledger
        self._heard = time.monotonic()
        self._roles = roles
        prepare(folder, kind)
        self._at_work = {who: self._start(who) for who in roles}

    def rage(self, kills: int) -> None:
        while self.kills < kills:
            self._listen()
            for who, worker in list(self._at_work.items()):
                if worker.is_due():
                    self._kill(worker)
                    self._at_work[who] = self._start(who)
            time.sleep(self._dice.uniform(0, 0.005))

    def wait_for(self, who: str, word: str, times: int) -> None:
        """Until one of them has written a word so often, or is dead by its own hand."""
        while self._at_work[who].process.poll() is None:
            self._listen()
            if [line[:2] for line in lines(self.folder)].count((who, word)) >= times:
                return
            time.sleep(0.01)

    def end(self) -> None:
        for worker in self._at_work.values():
            self._kill(worker)

    def _start(self, who: str) -> Worker:
        role = self._roles[who]
        command = [sys.executable, "-m", "tests.faults.storm_worker", str(self.folder), role, who, *self._words]
        # One in four dies early, maybe while it opens the room; the others when they have something to lose.
        early = self._dice.random() < 0.25
        life = (1e9, self._dice.uniform(0.0, 0.6)) if early else (self._dice.randint(1, 40), 1e9)
        return Worker(command, self.complaints, life)

    def _kill(self, worker: Worker) -> None:
        self.ends[worker.kill()] += 1
        self.kills += 1

    def _listen(self) -> None:
        """Count who has written how many lines since the last look."""
        with (self.folder / NAME).open("rb") as ledger:
            ledger.seek(self._read)
            news = ledger.read().rpartition(b"\n")[0]
        if news:
            self._read += len(news) + 1
            self._heard = time.monotonic()
        for line in news.splitlines():
            who = line.split(b'"', 2)[1].decode()
            if who in self._at_work:
                self._at_work[who].lines_left -= 1
        if time.monotonic() > self._heard + PATIENCE:
            raise TimeoutError("nobody does anything")


def prepare(folder: Path, kind: Kind) -> None:
    """A room in which those are registered that broadcasts are for, and some work is waiting."""
    ledger, store = Ledger(folder, "first"), kind.open(folder)
    room = room_over(store)
    for name in MEMBERS:
        room.mailbox(name).register(scopes=[CROWD])
    for number, box in enumerate((WORK, DESK, WORK, DESK)):
        key = f"first:{number}"
        ledger.write("try", key, box)
        room.mailbox("first").send(box, text_of(key), key=key)
        ledger.write("sent", key)
    ledger.close()
    store.close()


def finish(folder: Path, store: Store) -> None:
    """Nobody is killed any more: whatever is left is done by one who has time."""
    room, ledger = room_over(store), Ledger(folder, "finisher")
    for box in (WORK, DESK):
        while claimed := room.mailbox(box).claim(500, lease=PATIENCE, timeout=2 * LEASE):
            for work in claimed:
                ledger.write("ask", work.id)
                ledger.write("got", work.id, work.id, box)
            if box == DESK:
                for work in claimed:
                    work.ack_and_reply("at last")
            claimed.ack()
            for work in claimed:
                ledger.write("done", work.id, box)
    ledger.close()


def complaints(folder: Path, store: Store) -> list[str]:
    return [
        *audit.audit(store, lines(folder), text_of),
        *audit.unanswered(store, DESK),
        *audit.unbounced(store),
    ]


def test_no_kill_breaks_a_promise(kind: Kind, tmp_path: Path) -> None:
    seed = int(os.environ.get("POSTROOM_TEST_SEED") or time.time_ns() % 1_000_000)
    storm = Storm(tmp_path, kind, seed=seed)
    kills = MANY if LONG else kind.kills
    storm.rage(kills)
    storm.end()

    assert {-signal.SIGKILL: storm.kills} == dict(storm.ends), (seed, storm.complaints.read_text())
    store = kind.open(tmp_path)
    try:
        assert [] == complaints(tmp_path, store), f"POSTROOM_TEST_SEED={seed}"
        finish(tmp_path, store)
        assert [] == [*complaints(tmp_path, store), *audit.unsettled(store, (WORK, DESK))], seed
    finally:
        store.close()
    written = lines(tmp_path)
    print({word: len(lines_with(written, word)) for word in ("try", "sent", "got", "done", "dead", "swept")})
    assert all(len(lines_with(written, word)) >= kills / 4 for word in ("sent", "got", "done"))


TWINS = [  # the bug, who stumbles over it, once it has written this often, and what the audit says
    ("early", "writer", "sent", 3, "lost: "),
    ("doubling", "writer", "sent", 2, "ghost: "),
    ("swapping", "writer", "sent", 2, "disorder: "),
    ("garbling", "writer", "sent", 1, "changed: "),
    ("unfenced", "claimer", "done", 2, "handed out again: "),
    ("unfenced", "claimer", "done", 2, "completed twice: "),
    ("torn", "broadcaster", "sent", 1, "half: "),
    ("torn", "replier", "done", 1, "done with 0 answers: "),
]


@pytest.mark.costly
@pytest.mark.parametrize(("bug", "role", "word", "times", "complaint"), TWINS)
def test_the_audit_finds_a_planted_bug(
    kind: Kind, tmp_path: Path, bug: str, role: str, word: str, times: int, complaint: str
) -> None:
    storm = Storm(tmp_path, kind, bug, {"twin": role})
    storm.wait_for("twin", word, times)
    storm.end()

    store = kind.open(tmp_path)
    try:
        found = complaints(tmp_path, store)
    finally:
        store.close()
    assert any(each.startswith(complaint) for each in found), (found, storm.complaints.read_text())
