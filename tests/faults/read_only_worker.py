"""Sends and acks on a disk that turns read-only at some call, and writes down what each came to.

python -m tests.faults.read_only_worker FOLDER KIND BUG

The first letter and the claim come before that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from postroom.errors import PostroomError
from tests.faults.kinds import opener
from tests.faults.ledger import Ledger
from tests.faults.storm_worker import room_over

WHO = "worker"
LETTERS = 4


def main(folder: str, kind: str, bug: str) -> None:
    ledger = Ledger(Path(folder), WHO)

    def tried(what: str, do: Callable[[], object]) -> None:
        ledger.write("try", what)
        try:
            do()
        except PostroomError as error:
            ledger.write("refused", what, type(error).__name__, error.key or "")
        except Exception as error:
            ledger.write("refused", what, repr(error), "")
        else:
            ledger.write("done", what)

    room = room_over(opener(kind, bug)(Path(folder)))
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "first", key="first")
    work = bob.claim(lease=60)
    assert work is not None
    ledger.write("ready")
    for number in range(LETTERS):
        tried(f"send {number}", lambda number=number: ann.send("bob", "more", key=f"send {number}"))  # type: ignore[misc]
    tried("ack", work.ack)


if __name__ == "__main__":
    main(*sys.argv[1:])
