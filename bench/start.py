"""What a program pays to begin: import and open, against an interpreter that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .measure import Effort, Line, micros, ratio, take_turns, typical

OPEN = "import sys, postroom; room = postroom.open(sys.argv[1]); room.mailbox('reader').check(peek=True)"


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    path = str(folder / "room.db")
    python(OPEN, path)  # makes the room, and the bytecode of everything imported
    programs = {"nothing": "pass", "import": "import postroom", "open": OPEN}
    acts = {name: (lambda program=program: python(program, path), 2) for name, program in programs.items()}
    samples = take_turns(acts, max(effort.rounds, 5))
    nothing, imported, opened = (typical(samples, name) for name in programs)
    yield Line(
        name="start: import postroom / python -c pass",
        value=ratio(samples, "import", "nothing"),
        note=f"{micros(imported)} / {micros(nothing)}; what is used is loaded when it is used",
    )
    yield Line(
        name="start: import postroom, open, first check / python -c pass",
        value=ratio(samples, "open", "nothing"),
        note=f"{micros(opened)} / {micros(nothing)}",
    )


def python(program: str, path: str) -> str:
    """What a fresh interpreter prints. It finds its bytecode made, as in an installed package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = f"{path}.pycache"
    command = [sys.executable, "-c", program, path]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout
