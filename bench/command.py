"""What a command costs from its start to its end, against an interpreter that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from .measure import Effort, Line, micros, ratio, take_turns, typical

PROGRAM = Path(sys.executable).parent / "postroom"  # as pip installs it
CHECK = ["check", "--as", "writer"]  # a mailbox that the room knows, and that has no mail
MISSPELT = ["check", "--as", "writter"]  # a name that nobody has, and that is like another: a note says so
SEND = ["send", "reader", "--as", "writer", "--body", "x"]


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "POSTROOM_"))
    }
    own = {
        "HOME": str(folder),
        "POSTROOM_STORE": str(folder / "room.db"),
        "PYTHONPYCACHEPREFIX": f"{folder}/pycache",
    }

    def run(command: list[str]) -> None:
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment | own
        )

    run([str(PROGRAM), *SEND])  # makes the room, and the bytecode of everything imported
    run([str(PROGRAM), *CHECK])
    programs = {
        "nothing": [sys.executable, "-c", "pass"],
        "version": [str(PROGRAM), "--version"],
        "check": [str(PROGRAM), *CHECK],
        "misspelt": [str(PROGRAM), *MISSPELT],
        "send": [str(PROGRAM), *SEND],
    }
    acts = {name: (lambda command=command: run(command), 3) for name, command in programs.items()}
    samples = take_turns(acts, max(effort.rounds, 7))
    wanted = {
        "version": ("postroom --version", None),
        "check": ("postroom check, nothing unread", 2.5),
        "misspelt": ("postroom check by a name that looks misspelt", None),
        "send": ("postroom send", 5.5),
    }
    for name, (what, goal) in wanted.items():
        yield Line(
            name=f"{what} / python -c pass",
            value=ratio(samples, name, "nothing"),
            goal=goal,
            note=f"{micros(typical(samples, name))} / {micros(typical(samples, 'nothing'))}",
        )
