"""A long day of ordinary work: memory, file handles and latency stay flat.

An hour in the long form (POSTROOM_SOAK says how many seconds), a few seconds in the short one.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import Struct

from postroom import Room, draft
from postroom.settings import Settings
from tests.conftest import LONG
from tests.faults.kinds import Kind
from tests.faults.load_bugs import Tiring
from tests.faults.planting import Opener

SECONDS = float(os.environ.get("POSTROOM_SOAK", "3600" if LONG else "5"))
ROUNDS = 100  # of a twin: as many as it needs to be found out, however quick the machine
SLICE = 10  # rounds between two looks
LOOKS = 500  # at most, in the time there is
INDEXED = 1000  # letters: with so many there is an index of words
MEMORY = 8 * 2**20  # bytes that a process may grow by
SLOWER = 3  # times; and as many milliseconds
_PAGE = resource.getpagesize()
pytestmark = pytest.mark.costly


class Look(Struct, frozen=True):
    memory: int  # bytes in use
    handles: Counter[str]  # what is open, and how often
    latency: float  # seconds for one round, the median of a slice

    def __str__(self) -> str:
        return f"{self.memory:,} bytes, {self.handles.total()} handles, {self.latency * 1000:.1f} ms"


def look(latency: float) -> Look:
    resident = int(Path("/proc/self/statm").read_text().split()[1])
    return Look(resident * _PAGE, open_files(), latency)


def open_files() -> Counter[str]:
    found: Counter[str] = Counter()
    for handle in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):  # the one that lists them
            found[str(handle.readlink())] += 1
    return found


def work(room: Room, number: int) -> None:
    """One letter from its sending to its end, a look in vain, and now and then the janitor."""
    room.mailbox("ann").send("bob", f"letter {number} {'x' * (number % 700)}")
    claimed = room.mailbox("bob").claim()
    assert claimed is not None
    claimed.ack_and_reply("done")
    for letter in room.mailbox("ann").check():
        letter.ack()
    room.mailbox("bob").search("letter", limit=3)
    room.mailbox("bob").wait(0.001, kinds="none")
    if number % SLICE == 0:
        room.sweep()


def soak(
    open_store: Opener,
    folder: Path,
    goes_on: Callable[[int], bool],
    now: Callable[[], float],
    pause: float = 0.0,
) -> list[Look]:
    """Work, in a room that forgets what is done, and look now and then: not before `pause` seconds are over."""
    store = open_store(folder)
    room = Room(store, Settings(retain_count=200, retain_changes=500, thread_rate=0))
    looks, number = list[Look](), 0
    try:
        warm_up(room)
        next_look = time.monotonic()
        while goes_on(number):
            spent = []
            for _ in range(SLICE):
                number += 1
                began = now()
                work(room, number)
                spent.append(now() - began)
            if time.monotonic() >= next_look:  # what is remembered of the looks must not look like a leak itself
                looks.append(look(statistics.median(spent)))
                next_look = time.monotonic() + pause
    finally:
        store.close()
    return looks


def warm_up(room: Room) -> None:
    """So many letters that there is an index of words. A small room does without; later its four files stay open,
    which is no leak.
    """
    drafts = [draft("cleo", f"old letter {number}") for number in range(INDEXED)]
    room.mailbox("ann").send_many(drafts)
    room.sweep()
    room.mailbox("cleo").search("letter", limit=3)
    room.mailbox("cleo").wait(0.001, kinds="none")


def not_flat(looks: Sequence[Look]) -> list[str]:
    """What grew between the second and the last fifth."""
    fifth = max(1, len(looks) // 5)
    early, late = looks[fifth : 2 * fifth], looks[-fifth:]
    wrong = []
    memory = [statistics.median(look.memory for look in part) for part in (early, late)]
    if memory[1] > memory[0] + MEMORY:
        wrong.append(f"memory: from {memory[0]:,.0f} to {memory[1]:,.0f} bytes")
    more = late[-1].handles - max(early, key=lambda look: look.handles.total()).handles
    if more:
        wrong.append(f"handles: {dict(more)} were not open before")
    latency = [statistics.median(look.latency for look in part) for part in (early, late)]
    if latency[1] > SLOWER * latency[0] + SLOWER / 1000:
        wrong.append(f"latency: from {latency[0] * 1000:.1f} to {latency[1] * 1000:.1f} ms")
    return wrong


def test_a_long_day_leaves_memory_handles_and_latency_flat(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    end = time.monotonic() + SECONDS
    now = time.monotonic if LONG else time.process_time  # others' work must not look like ours in a few seconds
    pause = SECONDS / LOOKS if LONG else 0.0
    looks = soak(kind.open, tmp_path, lambda number: time.monotonic() < end or number < 10 * SLICE, now, pause)
    with capsys.disabled():
        first, last = looks[len(looks) // 5], looks[-1]
        print(f"\nsoak of {SECONDS:g} s, {len(looks)} looks: from {first} to {last}")

    assert not_flat(looks) == []


@pytest.mark.parametrize(
    ("bug", "finds"), [("hoarding", "memory"), ("grasping", "handles"), ("tiring", "latency")]
)
def test_the_look_finds_a_store_that_grows(kind: Kind, tmp_path: Path, bug: str, finds: str) -> None:
    Tiring.commits = 0  # another test may have tired it already
    looks = soak(kind.with_bug(bug), tmp_path, lambda number: number < ROUNDS, lambda: Tiring.spent)

    assert any(complaint.startswith(finds) for complaint in not_flat(looks))
