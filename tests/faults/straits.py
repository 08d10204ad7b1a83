"""A process whose room runs into a wall: a full disk, no inodes, no file handles, a folder that is read-only.

    python -m tests.faults.straits OUTSIDE INSIDE KIND BUG STRAIT

The room lies INSIDE, where the wall is; the ledger OUTSIDE. It prints its complaints, one a line: sends may be
refused, for a time and in our own words; reads and acks go on; afterwards all is as before, in the same process.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from postroom.errors import PostroomError
from postroom.letter import Work
from postroom.room import Room
from tests.faults import audit
from tests.faults.kinds import named, opener
from tests.faults.ledger import Ledger, lines
from tests.faults.planting import Opener
from tests.faults.storm_worker import DESK, WORK, room_over, text_of

WHO = "straits"
BEFORE, MEANWHILE, MOST = 60, 10, 500  # letters sent before the wall, behind it, and at most until one is refused
LONG_DAY = 400  # claims, given back: far more than a log and all that was set aside could hold


# -- walls


@contextmanager
def full_disk(inside: Path) -> Iterator[None]:
    """Somebody else takes all the space there is."""
    stuff = inside / "stuff"
    with stuff.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    try:
        yield
    finally:
        stuff.unlink()


@contextmanager
def no_inodes(inside: Path) -> Iterator[None]:
    """Somebody else makes as many files as there can be."""
    made: list[Path] = []
    with suppress(OSError):
        while True:
            made.append(inside / f"stuff{len(made)}")
            made[-1].touch()
    try:
        yield
    finally:
        for path in made:
            path.unlink(missing_ok=True)


@contextmanager
def no_handles(_inside: Path) -> Iterator[None]:
    """This process may open no more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    with suppress(OSError):
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    try:
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def read_only(inside: Path) -> Iterator[None]:
    """Make the folder read-only for every process from now on; root too, so it is done by a mount."""
    subprocess.run(["mount", "--bind", inside, inside], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", inside], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", inside], check=True)


WALLS = {"disk": full_disk, "inodes": no_inodes, "handles": no_handles, "read-only": read_only}


# -- the run


class Straits:
    def __init__(self, outside: Path, inside: Path, open_store: Opener, stops_at: tuple[str, ...] = ()) -> None:
        self.inside = inside
        self.ledger = Ledger(outside, WHO)
        self.complaints: list[str] = []
        self.refused = 0
        self._open = open_store
        self._number = 0
        self._stops_at = stops_at
        self.store = open_store(inside)
        self.room = room_over(self.store)
        self.audit: Callable[[], list[str]] = lambda: audit.audit(self.store, lines(outside), text_of)

    def run(self, wall: str) -> None:
        for _ in range(BEFORE):
            self.send()
        self.warm_up()
        with WALLS[wall](self.inside):
            self.try_behind_the_wall(wall)
        self.try_afterwards()
        self.complaints += self.audit()

    def warm_up(self) -> None:
        """Each thing once: without a handle Python could not even load the code for it."""
        self.ack(self.room)
        self.claimed(self.room, DESK).ack_and_reply("soon")
        self.room.mailbox(WORK).search(WHO)
        self.room.mailbox(DESK).wait(0.01, kinds="none")

    def try_behind_the_wall(self, wall: str) -> None:
        for _ in range(MOST if wall == "disk" else MEANWHILE):
            if not self.allowed("send", self.send, wall):
                break
        self.allowed("open a new room", lambda: self._open(self.inside / "new").close(), wall)
        if not self.refused:
            self.complaints.append("nothing was refused: where is the wall?")
        self.demand("read", lambda: self.room.mailbox(WORK).check(peek=True)[0])
        self.demand("search", lambda: self.room.mailbox(WORK).search(WHO)[0])
        self.demand("wait", lambda: self.room.mailbox(WORK).wait(1, peek=True))
        self.demand("wait in vain", lambda: self.room.mailbox("stranger").wait(0.05))
        ask = partial(self.allowed, wall=wall) if wall in self._stops_at else self.demand
        for _ in range(BEFORE // 2):
            ask("ack", lambda: self.ack(self.room))
        ask("a long day", self.work_all_day)
        if wall in {"disk", "inodes"}:  # who comes only now is let in too
            self.demand("ack of a newcomer", lambda: self.ack(room_over(self._open(self.inside))))

    def try_afterwards(self) -> None:
        again = self._number - 1
        self.demand("send again", lambda: self.send(again))
        self.demand("send afterwards", self.send)
        self.demand("ack afterwards", lambda: self.ack(self.room))
        self.demand("answer afterwards", lambda: self.claimed(self.room, DESK).ack_and_reply("at last"))
        self.demand("open a room afterwards", lambda: self._open(self.inside / "new").close())

    def send(self, number: int | None = None) -> None:
        if number is None:
            number, self._number = self._number, self._number + 1
        key, to = f"{WHO}:{number}", (WORK, WORK, DESK)[number % 3]
        self.ledger.write("try", key, to)
        self.room.mailbox(WHO).send(to, text_of(key), key=key)
        self.ledger.write("sent", key)

    def ack(self, room: Room) -> None:
        work = self.claimed(room, WORK)
        work.ack()
        self.ledger.write("done", work.id, WORK)

    def work_all_day(self) -> None:
        for _ in range(LONG_DAY):
            self.claimed(self.room, WORK).release()

    def claimed(self, room: Room, box: str) -> Work:
        work = room.mailbox(box).claim(lease=60)
        assert work is not None, f"nothing to claim in {box}"
        return work

    # -- judging

    def allowed(self, what: str, do: Callable[[], object], wall: str) -> bool:
        """It works, or it is refused for a time, in our own words."""
        try:
            do()
        except PostroomError as error:
            self.refused += 1
            if not error.temporary:
                self.complaints.append(f"{what}: not temporary: {error!r}")
            if wall == "read-only" and (str(self.inside) not in str(error) or ".tmp" in str(error)):
                self.complaints.append(f"{what}: does not say where: {error!r}")
            return False
        except Exception as error:
            self.complaints.append(f"{what}: not ours: {error!r}")
            return False
        return True

    def demand(self, what: str, do: Callable[[], object]) -> None:
        """It works."""
        try:
            do()
        except Exception as error:
            self.complaints.append(f"{what}: refused: {error!r}")


def main(outside: str, inside: str, kind: str, bug: str, wall: str) -> None:
    straits = Straits(Path(outside), Path(inside), opener(kind, bug), named(kind).stops_at)
    straits.run(wall)
    print(*straits.complaints, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
