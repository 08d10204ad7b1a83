"""What the processes of `test_many_processes` do."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path

from postroom.nanobot import MailboxManager
from tests.coverage import nothing_counted

PATIENCE = 120.0  # seconds; only a process that hangs takes this long
SPAWN = multiprocessing.get_context("spawn")


def together(work: Callable[..., None], root: Path, count: int, *more: object) -> set[int | None]:
    """Processes that begin at the same moment; their exit codes."""
    line = SPAWN.Barrier(count)
    processes = [SPAWN.Process(target=work, args=(root, n, line, *more), daemon=True) for n in range(count)]
    with nothing_counted():
        for process in processes:
            process.start()
    for process in processes:
        process.join(PATIENCE)
    return {process.exitcode for process in processes}


def killed_after(
    enough: Callable[[], bool], work: Callable[..., None], root: Path, count: int, *more: object
) -> None:
    """Processes that begin at the same moment, and are killed without warning once they have done enough."""
    line = SPAWN.Barrier(count)
    processes = [SPAWN.Process(target=work, args=(root, n, line, *more), daemon=True) for n in range(count)]
    with nothing_counted():
        for process in processes:
            process.start()
    end = time.monotonic() + PATIENCE
    while not enough() and time.monotonic() < end:
        processes[0].join(0.01)
    for process in processes:
        process.kill()
        process.join(PATIENCE)


def register_many(root: Path, number: int, line: Barrier, each: int) -> None:
    manager = MailboxManager(root)
    line.wait(PATIENCE)
    for place in range(each):
        manager.register(f"agent{number}-{place}", {"description": f"the {place}th of {number}"})


def register_for_ever(root: Path, number: int, line: Barrier, promises: Path) -> None:
    """Until it is killed; what was promised is written down elsewhere."""
    manager, place = MailboxManager(root), 0
    ledger = os.open(promises / f"{number}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    line.wait(PATIENCE)
    while True:
        manager.register(f"agent{number}-{place}", {})
        os.write(ledger, f"agent{number}-{place}\n".encode())
        place += 1


def beat_and_update(root: Path, number: int, line: Barrier, each: int) -> None:
    manager = MailboxManager(root)
    manager.register(f"agent{number}", {})
    line.wait(PATIENCE)
    for place in range(each):
        manager.heartbeat(f"agent{number}")
        manager.update_status(f"agent{number}", "busy", [f"task{place}"])


def send_many(root: Path, number: int, line: Barrier, each: int, sender: str) -> None:
    manager = MailboxManager(root)
    line.wait(PATIENCE)
    for place in range(each):
        manager.send(sender.format(number), "sink", {"content": {"parts": []}, "mark": f"{number}-{place}"})


def poll_and_finish(root: Path, number: int, line: Barrier, wanted: int) -> None:
    """Two of these share an inbox."""
    manager = MailboxManager(root)
    line.wait(PATIENCE)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and len(list((root / "sink" / "processed").glob("*"))) < wanted:
        for mail in manager.poll("sink", limit=20):
            manager.mark_processed("sink", mail["_filename"])
