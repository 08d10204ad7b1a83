"""`postroom serve` that is killed at one step of handing a letter over: `-m tests.federation.killed STEP BUG …`

The steps: `before` the other room has it, `between` the two commits, `after` both. The bug: it is written down
here as handed over before the other room has it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any
from unittest.mock import patch

from postroom.cli.main import main
from postroom.core import arrivals, outbox
from postroom.federation.courier import Courier

STEPS = ("before", "between", "after")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at(step: str) -> None:
    accept, settle, departed = arrivals.accept, Courier._settle, outbox.record_departure

    def accepting(*message: Any) -> Any:
        if step == "before":
            die()
        return accept(*message)

    async def settling(*message: Any) -> None:
        if step == "between":
            die()
        await settle(*message)

    def open_remote_delivery(*message: Any) -> None:
        departed(*message)
        if step == "after":
            die()

    patch.object(arrivals, "accept", accepting).start()
    patch.object(Courier, "_settle", settling).start()
    patch.object(outbox, "record_departure", open_remote_delivery).start()


def plant_the_bug() -> None:
    carry, record_departure = Courier._send_batch, outbox.record_departure

    async def carrying(self: Courier, send_round: Any, letters: Any) -> None:
        for envelope, _ in letters:
            record_departure(
                self._link.core, [found.delivery for found in envelope.found], envelope.envelope.target
            )
        await carry(self, send_round, letters)

    patch.object(Courier, "_send_batch", carrying).start()


if __name__ == "__main__":
    step, bug, *words = sys.argv[1:]
    if bug == "bug":
        plant_the_bug()
    kill_at(step)
    sys.exit(main(words))
