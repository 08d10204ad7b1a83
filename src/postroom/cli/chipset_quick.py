"""A hook's first look into a chipset's state folder: is there surely no work and no nudge to tell an agent of?

It reads at most three small files and loads next to nothing. What is unusual counts as "maybe", and is left to
`chipset`, which reads the same files with care.
"""

from __future__ import annotations

import os

from ..hosts.heard import read_object, text_of

TYPE_CHECKING = False  # what `typing` says too, without its weight
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LAYOUT = "?layout=chipset"
_LONGEST = 1024 * 1024  # bytes of a file


def state_of(room: str) -> str:
    """Return the state folder of a room's address, or nothing where the room is no chipset's."""
    is_one = room.startswith("files:") and room.endswith(LAYOUT)
    return room.removeprefix("files:").removesuffix(LAYOUT) if is_one else ""


def has_nothing(state: str, agent: str, since: float, *, only_new: bool) -> bool:
    """Is there surely nothing for the agent, on its hook or in its nudge slot?"""
    about = (state, agent, since)
    return not may_have_work(*about, only_new=only_new) and not may_have_nudge(*about, only_new=only_new)


def may_have_work(state: str, agent: str, since: float, *, only_new: bool) -> bool:
    """May there be work on the agent's hook that nobody took up?

    `only_new`: what has not changed since `since`, the time of the session's last hook, was told before.
    """
    hook, written = _read(f"{state}/hooks", f"{agent.replace('/', '_')}.json")
    return text_of(hook, "status") == "pending" and not (only_new and written < since)


def may_have_nudge(state: str, agent: str, since: float, *, only_new: bool) -> bool:
    """May there be a nudge that the agent has not handled? An answer to its own nudge is told once in any case."""
    name = agent.replace("/", "_")
    nudge, written = _read(f"{state}/nudge", name, "/latest.json")
    if not nudge or (written < since and (only_new or nudge.get("type") == "nudge_response")):
        return False
    handled, _ = _read(f"{state}/.postroom/nudges", f"{name}.json")
    return text_of(handled, "handled") != text_of(nudge, "timestamp") or not text_of(nudge, "timestamp")


def _read(folder: str, name: str, rest: str = "") -> tuple[Mapping[str, Any], float]:
    """Return what a file holds and when it was written; nothing where there is no such file.

    Names that differ in case alone are one agent's. A file that cannot be read says nothing here, as it does for
    whoever reads it with care.
    """
    try:
        if not os.path.lexists(f"{folder}/{name}"):
            name = next(one for one in os.listdir(folder) if one.lower() == name.lower())  # noqa: PTH208 - light
        file = os.open(f"{folder}/{name}{rest}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return read_object(os.read(file, _LONGEST)), os.fstat(file).st_mtime
        finally:
            os.close(file)
    except (OSError, StopIteration):
        return {}, 0.0
