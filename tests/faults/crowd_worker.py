"""One process of a crowd at the door: it sends and acknowledges, and rests between two sends when told to.

    python -m tests.faults.crowd_worker FOLDER WHO KIND BUG

Beside the words of every ledger (`audit.py`) it writes:

    first  key, id, repeated    what it was told of a letter that nobody had tried to send before
    rests                       it stops itself, with nothing in hand
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

from postroom.errors import LeaseLost
from postroom.mailbox import Mailbox
from tests.faults.kinds import opener
from tests.faults.ledger import Ledger
from tests.faults.storm_worker import WORK, room_over, text_of

GATE = "gate"  # while there is a file of this name, whoever comes to it rests


def work(folder: Path, who: str, ledger: Ledger, box: Mailbox, shell: Mailbox) -> None:
    earlier = ledger.own()
    tried = [line[2] for line in earlier if line[1] == "try"]
    if tried and (who, "sent", tried[-1]) not in earlier:  # a kill came between: nobody knows whether it is there
        box.send(WORK, text_of(tried[-1]), key=tried[-1])
        ledger.write("sent", tried[-1])
    for number in count(len(tried)):
        while (folder / GATE).exists():
            ledger.write("rests")
            os.kill(os.getpid(), signal.SIGSTOP)
        key = f"{who}:{number}"
        ledger.write("try", key, WORK)
        receipt = box.send(WORK, text_of(key), key=key)
        ledger.write("sent", key)
        ledger.write("first", key, receipt.id, str(receipt.repeated))
        acknowledge(ledger, shell, f"{who}:{os.getpid()}:{number}")


def acknowledge(ledger: Ledger, shell: Mailbox, look: str) -> None:
    ledger.write("ask", look)
    claimed = shell.claim()
    if claimed is not None:
        ledger.write("got", look, claimed.id, WORK)
        with suppress(LeaseLost):  # we were stopped for longer than the lease
            claimed.ack(archive=False)
            ledger.write("done", claimed.id, WORK)


def main(folder: str, who: str, kind: str, bug: str) -> None:
    ledger = Ledger(Path(folder), who)
    room = room_over(opener(kind, bug)(Path(folder)))
    work(Path(folder), who, ledger, room.mailbox(who), room.mailbox(WORK))


if __name__ == "__main__":
    main(*sys.argv[1:])
