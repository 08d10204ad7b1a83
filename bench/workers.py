"""Processes that work beside this one: spawned, so each opens the room for itself, and started together."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

_SPAWN = multiprocessing.get_context("spawn")
_PATIENCE = 120.0  # seconds; a worker that says nothing for so long is broken

Job = Callable[..., Any]  # job(start, *arguments): get ready, call start(), work, return the result


class Worker:
    """One process with one job."""

    def __init__(self, job: Job, *arguments: Any) -> None:
        self._link, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_run, args=(theirs, job, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def hear(self) -> Any:
        if not self._link.poll(_PATIENCE):
            raise TimeoutError(f"{self._process.name} is silent")
        return self._link.recv()

    def go(self) -> None:
        self._link.send(None)

    def finish(self) -> Any:
        """What the job returned."""
        result = self.hear()
        self._process.join()
        return result


def start_together(workers: list[Worker]) -> None:
    """Wait until all are ready, then let all go."""
    for worker in workers:
        worker.hear()
    for worker in workers:
        worker.go()


def now() -> float:
    """One clock for all processes of this machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def _run(link: Connection, job: Job, arguments: tuple[Any, ...]) -> None:
    def start() -> None:
        link.send("ready")
        link.recv()

    link.send(job(start, *arguments))
