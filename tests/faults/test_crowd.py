"""A crowd of processes waits for one lock; each is stopped or killed at any moment, also while it holds it.

Each letter that a process was told of is in the room, once, under the id it was given; no process is told that a
first letter is a repeat; and no process that has its answer keeps others out.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.daemons import until
from tests.faults import audit
from tests.faults.crowd_worker import GATE
from tests.faults.kinds import SOUND, Kind
from tests.faults.ledger import Ledger, Line, lines, lines_with
from tests.faults.storm_worker import WORK, room_over, text_of

ROOT = Path(__file__).parent.parent.parent
CROWD = tuple(f"one{number}" for number in range(6))
ROUNDS, SECONDS = (20, 10.0) if LONG else (2, 2.0)
STOPPED = (0.005, 0.4)  # seconds
KILLED = 0.15  # of those who are hit
AT_ONCE = 1.0  # seconds in which a stranger gets in while all others rest
PATIENCE = 60.0


class Crowd:
    def __init__(self, folder: Path, kind: Kind, bugs: dict[str, str], seed: int = 0) -> None:
        self.folder, self.kind = folder, kind
        self.kills = self.stops = 0
        self._bugs = bugs
        self._dice = random.Random(seed)
        self._stopped: dict[str, float] = {}  # until when
        kind.open(folder).close()
        (folder / "ledger").touch()
        self.at_work = {who: self._start(who) for who in bugs}

    def _start(self, who: str) -> subprocess.Popen[bytes]:
        words = [str(self.folder), who, self.kind.name, self._bugs[who]]
        with (self.folder / "stderr").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.faults.crowd_worker", *words], cwd=ROOT, stderr=errors
            )

    def rage(self, seconds: float) -> None:
        """Stop one after the other, some for ever."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self._dice.uniform(0, 0.1))
            self._wake(time.monotonic())
            who = self._dice.choice(list(self._bugs))
            if self._dice.random() < KILLED:
                self._stopped.pop(who, None)
                self.kill(who)
                self.at_work[who] = self._start(who)
            elif who not in self._stopped:
                self.at_work[who].send_signal(signal.SIGSTOP)
                self._stopped[who] = time.monotonic() + self._dice.uniform(*STOPPED)
                self.stops += 1
        self._wake(float("inf"))

    def _wake(self, now: float) -> None:
        for who in [who for who, end in self._stopped.items() if end <= now]:
            self.at_work[who].send_signal(signal.SIGCONT)
            del self._stopped[who]

    def kill(self, who: str) -> None:
        self.at_work[who].kill()
        assert self.at_work[who].wait(PATIENCE) == -signal.SIGKILL, (self.folder / "stderr").read_text()
        self.kills += 1

    def rest(self) -> None:
        """All of them, each after its send."""
        (self.folder / GATE).touch()
        self.wait_until(lambda: all(self._is_at_rest(who) for who in self._bugs))

    def _is_at_rest(self, who: str) -> bool:
        return self.is_stopped(who) and Ledger(self.folder, who).own()[-1][1] == "rests"

    def is_stopped(self, who: str) -> bool:
        state = Path(f"/proc/{self.at_work[who].pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def go_on(self) -> None:
        (self.folder / GATE).unlink()
        for process in self.at_work.values():
            process.send_signal(signal.SIGCONT)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        until(is_so, PATIENCE, (self.folder / "stderr").read_text)

    def end(self) -> None:
        for process in self.at_work.values():
            process.kill()
            process.wait(PATIENCE)

    def sent(self, who: str) -> int:
        return [line[:2] for line in lines(self.folder)].count((who, "sent"))


def kept_out(crowd: Crowd, name: str) -> list[str]:
    """While all rest, a stranger sends: whoever still held the room would keep it waiting."""
    ledger, began = Ledger(crowd.folder, name), time.monotonic()
    store = crowd.kind.open(crowd.folder)
    try:
        key = f"{name}:0"
        ledger.write("try", key, WORK)
        room_over(store).mailbox(name).send(WORK, text_of(key), key=key)
        waited = time.monotonic() - began
        ledger.write("sent", key)
    finally:
        store.close()
        ledger.close()
    return [f"kept out for {waited:.1f} s"] if waited > AT_ONCE else []


def mistold(room: audit.Room, written: list[Line]) -> list[str]:
    """First letters that were told under another id than they have, or as a repeat."""
    there = {key: message.id for key, message in room.by_key.items()}
    firsts = lines_with(written, "first")
    wrong = [f"told another id: {key}" for key, id, _ in firsts if there.get(key) != id]
    return wrong + [f"told a repeat: {key}" for key, _, repeated in firsts if repeated == "True"]


def complaints(folder: Path, kind: Kind) -> list[str]:
    store, written = kind.open(folder), lines(folder)
    try:
        return [*audit.audit(store, written, text_of), *mistold(audit.Room(store), written)]
    finally:
        store.close()


@pytest.mark.costly
def test_whoever_is_stopped_or_killed_what_was_reported_is_true_and_nobody_is_kept_out(
    kind: Kind, tmp_path: Path
) -> None:
    seed = int(os.environ.get("POSTROOM_TEST_SEED") or time.time_ns() % 1_000_000)
    crowd = Crowd(tmp_path, kind, dict.fromkeys(CROWD, SOUND), seed)
    waited = []
    try:
        crowd.wait_until(lambda: all(crowd.sent(who) for who in CROWD))
        for number in range(ROUNDS):
            crowd.rage(SECONDS)
            crowd.rest()
            waited += kept_out(crowd, f"stranger{number}")
            crowd.go_on()
    finally:
        crowd.end()

    written = lines(tmp_path)
    counts = {word: len(lines_with(written, word)) for word in ("sent", "first", "done")}
    print(counts, crowd.kills, crowd.stops)
    assert [] == [*complaints(tmp_path, kind), *waited], f"POSTROOM_TEST_SEED={seed}"
    assert "" == (tmp_path / "stderr").read_text()
    assert crowd.kills and crowd.stops and counts["done"]


# -- twins


def test_the_audit_finds_who_keeps_the_room_to_itself(kind: Kind, tmp_path: Path) -> None:
    crowd = Crowd(tmp_path, kind, {"holder": "clinging"})
    try:
        crowd.wait_until(lambda: crowd.sent("holder") > 0 and crowd.is_stopped("holder"))
        threading.Timer(2 * AT_ONCE, crowd.at_work["holder"].kill).start()
        assert [] != kept_out(crowd, "stranger")
    finally:
        crowd.end()


def test_the_audit_finds_a_wrong_id_and_a_first_letter_reported_as_a_repeat(kind: Kind, tmp_path: Path) -> None:
    store, key = kind.open(tmp_path), "ann:0"
    id = room_over(store).mailbox("ann").send(WORK, text_of(key), key=key).id
    room = audit.Room(store)
    store.close()

    assert mistold(room, [("ann", "first", key, id, "False")]) == []
    assert mistold(room, [("ann", "first", key, "another", "False")]) == [f"told another id: {key}"]
    assert mistold(room, [("ann", "first", key, id, "True")]) == [f"told a repeat: {key}"]
