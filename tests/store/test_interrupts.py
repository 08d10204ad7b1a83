"""An interrupt may come at any moment, a parent may fork and be killed, a room may be taken away."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import postroom

INTERRUPTED = """
import os, random, signal, sys
from contextlib import suppress
from pathlib import Path
import postroom
from postroom.store.sqlite.lock import WriterLock


class Alarm(BaseException):
    pass


def ring(number, frame):
    raise Alarm


def disturbed(call, shortest, longest):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(shortest, longest))
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        return True
    return False


def many(call, shortest, longest, times):
    struck = 0
    for _ in range(times):
        with suppress(Alarm):
            struck += disturbed(call, shortest, longest)
        signal.setitimer(signal.ITIMER_REAL, 0)
    return struck


signal.signal(signal.SIGALRM, ring)
path = Path(sys.argv[1])
room = postroom.open(path, busy_timeout=60)
box = room.mailbox("a")
box.send("b", "loads what is loaded late: the locks of Python's own imports are not ours")
assert many(lambda: box.send("b", "x"), 2e-5, 1e-3, 400) > 20
with WriterLock(Path(f"{path}.lock"), timeout=60):
    pass
before = room.mailbox("b").counts()["total"]
box.send("b", "works")
assert before + 1 == room.mailbox("b").counts()["total"]

room.mailbox("c").wait(0.001)
descriptors = len(os.listdir("/proc/self/fd"))
many(lambda: room.mailbox("c").wait(0.01), 1e-4, 2e-3, 200)
assert len(os.listdir("/proc/self/fd")) <= descriptors + 16
"""


def test_interrupts_at_any_moment_leave_the_room_open_to_all(tmp_path: Path) -> None:
    """In a process of its own and without coverage, whose own locks an interrupt would wedge."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "room.db")]
    done = subprocess.run(command, env=plain, capture_output=True, text=True, timeout=120, check=False)
    assert (0, "") == (done.returncode, done.stderr)


FORKS = """
import os, sys, time, postroom
room = postroom.open(sys.argv[1])
box = room.mailbox("a")
box.send("b", "x")
child = os.fork()
if child == 0:
    os.close(1)
    time.sleep(60)
print(child, flush=True)
room.core.store.connection().lock.acquire()
print("holding", flush=True)
time.sleep(60)
"""


def test_a_forked_child_does_not_keep_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    parent = subprocess.Popen([sys.executable, "-c", FORKS, str(path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        assert "holding" == parent.stdout.readline().strip()
        parent.kill()
        parent.wait()
        with postroom.open(path, busy_timeout=60) as room:
            room.mailbox("a").send("b", "still open")
    finally:
        os.kill(child, signal.SIGKILL)
        parent.stdout.close()


@pytest.mark.parametrize("gone", ["", "-wal"])
def test_a_room_that_is_taken_away_takes_no_letters(tmp_path: Path, gone: str) -> None:
    path = tmp_path / "room.db"
    room = postroom.open(path)
    room.mailbox("a").send("b", "before")
    for file in tmp_path.glob("room.db*"):
        if file.is_file() and (not gone or file.name.endswith(gone)):
            file.unlink()
    with pytest.raises(postroom.StoreFailing, match="replaced or deleted"):
        room.mailbox("a").send("b", "into nothing")
    room.close()


def test_a_room_that_was_replaced_is_found_again_at_the_next_try(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    room = postroom.open(path)
    room.mailbox("a").send("b", "old")
    for file in tmp_path.glob("room.db*"):
        if file.is_file():
            file.unlink()
    with postroom.open(path) as new:
        new.mailbox("c").send("b", "new")
        with pytest.raises(postroom.StoreFailing):
            room.mailbox("a").send("b", "into nothing")
        room.mailbox("a").send("b", "again")
        assert ["new", "again"] == [letter.text for letter in new.mailbox("b").check()]
    room.close()


def test_a_replaced_room_has_other_mailboxes_under_the_same_numbers(tmp_path: Path) -> None:
    path = tmp_path / "room.db"
    room = postroom.open(path)
    for name in ("a", "b"):
        room.mailbox(name).register()
    room.mailbox("a").send("b", "old")
    for file in tmp_path.glob("room.db*"):
        if file.is_file():
            file.unlink()
    with postroom.open(path) as new:
        for name in ("c", "d"):
            new.mailbox(name).register()
        with pytest.raises(postroom.StoreFailing):
            room.mailbox("a").send("b", "into nothing")
        room.mailbox("a").send("b", "for b alone")
        assert ["for b alone"] == [letter.text for letter in new.mailbox("b").check()]
        assert [] == new.mailbox("d").check()
        assert ["a", "b", "c", "d"] == new.mailboxes()
    room.close()


def test_a_name_as_long_as_names_may_be_can_be_waited_for(tmp_path: Path) -> None:
    name = "x" * 128 + "/" + "y" * 128
    with postroom.open(tmp_path / "room.db") as room:
        sender = threading.Timer(0.05, room.mailbox("a").send, [name, "hello"])
        sender.start()
        letter = room.mailbox(name).wait(60)
        assert letter is not None and "hello" == letter.text
        sender.join()
