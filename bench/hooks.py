"""What a host waits for at each step of its agent: a hook without news, against an interpreter without a task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from .command import PROGRAM
from .daemon import ours
from .measure import Effort, Line, micros, ratio, take_turns, typical

EVENTS = ("UserPromptSubmit", "PostToolBatch", "Stop")
LAYOUTS = ("nanobot", "chipset", "swarm")
SEND = ["send", "reader", "--as", "writer", "--body", "x"]
LOOKS = ("check", "hook prompt")  # for who has read all


def measure(effort: Effort, folder: Path) -> Iterator[Line]:
    """This process is the host, of one session in the room itself, of one behind a daemon's socket, and of one in
    each kind of folders; there also of what is asked without a host.
    """
    mine = ("PYTHON", "POSTROOM_", "INBOX_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
    own = {"HOME": str(folder), "PYTHONPYCACHEPREFIX": f"{folder}/pycache"}
    room = {"POSTROOM_STORE": str(folder / "room.db")}
    yield from _lines(effort, folder, kept | own | room, "in a room")
    with ours(folder) as (path, _):
        yield from _lines(effort, folder, kept | own | {"POSTROOM_SOCKET": str(path)}, "at a daemon's socket")
    for layout in LAYOUTS:
        files = {"POSTROOM_STORE": f"files:{folder}/{layout}?layout={layout}"}
        yield from _lines(effort, folder, kept | own | files, f"in {layout} folders", EVENTS[:1], LOOKS)


def _lines(
    effort: Effort,
    folder: Path,
    environment: Mapping[str, str],
    where: str,
    events: Sequence[str] = EVENTS,
    looks: Sequence[str] = (),
) -> Iterator[Line]:
    def run(command: list[str], value: bytes = b"") -> bytes:
        done = subprocess.run(
            command, input=value, stdout=subprocess.PIPE, env=dict(environment), cwd=folder, check=True
        )
        return done.stdout

    def hook(event: str) -> None:
        result = {
            "session_id": where.replace(" ", "-").replace("'", ""),
            "cwd": str(folder),
            "hook_event_name": event,
        }
        if run([str(PROGRAM), "hook", "claude"], json.dumps(result | {"prompt": "Sort the list."}).encode()):
            raise RuntimeError("there was nothing to say")

    def look(words: str) -> None:
        run([str(PROGRAM), *words.split(), "--as", "reader"])

    for event in ("SessionStart", *events):  # makes the room, and the bytecode of everything imported
        hook(event)
    if looks:
        run([str(PROGRAM), *SEND])
    for words in looks:
        look(words)
    acts: dict[str, tuple[Callable[[], object], int]] = {
        "nothing": (lambda: run([sys.executable, "-c", "pass"]), 3)
    }
    for event in events:
        acts[f"hook claude, {event}"] = (partial(hook, event), 3)
    for words in looks:
        acts[words] = (partial(look, words), 3)
    samples = take_turns(acts, max(effort.rounds, 7))
    for act in list(acts)[1:]:
        yield Line(
            name=f"postroom {act} {where}, nothing new / python -c pass",
            value=ratio(samples, act, "nothing"),
            goal=2.5,
            note=f"{micros(typical(samples, act))} / {micros(typical(samples, 'nothing'))}",
        )
