"""What a host waits for at each step of its agent: a hook without news, against an interpreter without a task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from .command import PROGRAM
from .daemon import ours
from .measure import Effort, Line, micros, ratio, take_turns, typical

EVENTS = ("UserPromptSubmit", "PostToolBatch", "Stop")


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    """This process is the host, of one session in the room itself, then of one behind a daemon's socket."""
    mine = ("PYTHON", "POSTROOM_", "INBOX_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    own = {"HOME": str(folder), "PYTHONPYCACHEPREFIX": f"{folder}/pycache"}
    room = {"POSTROOM_STORE": str(folder / "room.db")}
    yield from _lines(effort, folder, kept | own | room, "in a room")
    with ours(folder) as (path, _):
        yield from _lines(effort, folder, kept | own | {"POSTROOM_SOCKET": str(path)}, "at a daemon's socket")


def _lines(effort: Effort, folder: Path, environment: Mapping[str, str], where: str) -> Iterator[Line]:
    def run(command: list[str], said: bytes = b"") -> bytes:
        done = subprocess.run(
            command, input=said, stdout=subprocess.PIPE, env=dict(environment), cwd=folder, check=True
        )
        return done.stdout

    def hook(event: str) -> None:
        told = {
            "session_id": where.replace(" ", "-").replace("'", ""),
            "cwd": str(folder),
            "hook_event_name": event,
        }
        if run([str(PROGRAM), "hook", "claude"], json.dumps(told | {"prompt": "Sort the list."}).encode()):
            raise RuntimeError("there was nothing to say")

    for event in ("SessionStart", *EVENTS):  # makes the room, and the bytecode of everything imported
        hook(event)
    acts: dict[str, tuple[Callable[[], object], int]] = {
        "nothing": (lambda: run([sys.executable, "-c", "pass"]), 3)
    }
    for event in EVENTS:
        acts[event] = (partial(hook, event), 3)
    samples = take_turns(acts, max(effort.rounds, 7))
    for event in EVENTS:
        yield Line(
            name=f"postroom hook claude, {event} {where}, nothing new / python -c pass",
            value=ratio(samples, event, "nothing"),
            goal=2.5,
            note=f"{micros(typical(samples, event))} / {micros(typical(samples, 'nothing'))}",
        )
