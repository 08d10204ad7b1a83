"""A short working day in one process: open, register, send, broadcast, ack, reply, refuse, sweep, copy.

    python -m tests.faults.session FOLDER KIND BUG PACE

What fails for a time is written down and tried once more, with the same key. So a run with one fault in it does
everything, and its ledger says what the fault hit. With the pace `brisk` rare things happen often.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from postroom.errors import PostroomError
from postroom.letter import Work
from postroom.room import Room
from tests.faults.kinds import named, opener
from tests.faults.ledger import Ledger
from tests.faults.storm_worker import CROWD, DESK, MEMBERS, WORK, room_over, text_of

T = TypeVar("T")
WHO = "session"
COPY = "copy.db"
STEADY, BRISK = "steady", "brisk"


class Session:
    def __init__(self, folder: Path, kind: str, bug: str) -> None:
        self.folder = folder
        self.ledger = Ledger(folder, WHO)
        self.room: Room = self.twice("open", lambda: room_over(opener(kind, bug)(folder)))

    def twice(self, what: str, do: Callable[[], T]) -> T:
        """A fault comes once; what is temporary about it must be over at the second try."""
        try:
            return do()
        except PostroomError as error:
            if not error.temporary:
                raise
            self.ledger.write("failed", what, type(error).__name__)
            return do()

    def run(self) -> None:
        for name in MEMBERS:
            self.twice(f"register {name}", lambda name=name: self.room.mailbox(name).register(scopes=[CROWD]))  # type: ignore[misc]
        self.send(0, WORK)
        self.send(1, DESK)
        self.broadcast(2)
        self.work(WORK, lambda work: work.ack(), "done")
        self.work(DESK, lambda work: work.ack_and_reply("so be it"), "done")
        self.work(WORK, lambda work: work.fail("never", retry=False), "dead")
        self.twice("sweep", self.room.sweep)
        self.twice("copy", lambda: self.room.backup(self.folder / COPY, overwrite=True))
        self.ledger.write("copied")
        self.send(3, DESK)
        self.room.close()

    def send(self, number: int, to: str) -> None:
        key = f"{WHO}:{number}"
        self.ledger.write("try", key, to)
        self.twice(f"send {key}", lambda: self.room.mailbox(WHO).send(to, text_of(key), key=key))
        self.ledger.write("sent", key)

    def broadcast(self, number: int) -> None:
        key = f"{WHO}:{number}"
        self.ledger.write("try", key, *MEMBERS)
        self.twice(f"send {key}", lambda: self.room.mailbox(WHO).broadcast(CROWD, text_of(key), key=key))
        self.ledger.write("sent", key)

    def work(self, box: str, settle: Callable[[Work], object], word: str) -> None:
        look = f"{box}:{word}"
        self.ledger.write("ask", look)
        work = self.twice(f"claim {box}", lambda: self.room.mailbox(box).claim(lease=60))
        if work is None:
            return
        self.ledger.write("got", look, work.id, box)
        self.twice(f"{word} {work.id}", lambda: settle(work))
        self.ledger.write(word, work.id, box)


def main(folder: str, kind: str, bug: str, pace: str) -> None:
    if pace == BRISK:
        named(kind).hurry()
    Session(Path(folder), kind, bug).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
