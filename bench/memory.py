"""The memory of a process: with a room just opened, and after ten thousand sends, against a bare interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from .measure import LETTER, Effort, Line
from .start import OPEN, python

SENDS = 10_000
SEND = f"""
import sys, postroom
with postroom.open(sys.argv[1], durability="process") as room:
    writer = room.mailbox("writer")
    for _ in range({SENDS}):
        writer.send("reader", {LETTER!r})
"""
STATUS = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))"
STATES = {"with an open room": OPEN, f"after {SENDS:,} sends": SEND}


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    del effort  # it hardly varies
    if sys.platform != "linux":
        return
    bare = resident("pass", folder / "bare")
    for number, (state, program) in enumerate(STATES.items()):
        full = resident(program, folder / str(number))
        yield Line(
            name=f"memory of a process {state}",
            value=full,
            unit="MiB",
            note=f"{full / bare:.1f} x python alone, {bare:.1f} MiB",
        )


def resident(program: str, folder: Path) -> float:
    """MiB in memory at the end of the program."""
    folder.mkdir()
    path = str(folder / "room.db")
    python(program, path)  # what is compiled is compiled then
    return int(python(f"{program}\n{STATUS}", path)) / 1024
