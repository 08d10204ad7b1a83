"""Who is in a swarm, and which mailbox a name means.

A swarm's members are the files `swarms/<swarm>/agents/*.md` below the working folder, and the agents that
registered with the swarm as a scope. Member file X of swarm S is mailbox `S/X`, and a bare X means the same
wherever the swarm is known. Others, such as `coo`, are nobody's members: their bare name is their mailbox.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import Invalid
from ..model.names import check_agent, check_scope, fold
from ..model.record import MEMBER

if TYPE_CHECKING:
    from ..room import Room

SWARMS = Path("swarms")
_log = logging.getLogger("postroom")


class Place(NamedTuple):
    """Where mail for a name lies: a mailbox, and of it all, or what belongs to one swarm."""

    mailbox: str
    scope: str | None = None


def members(room: Room, swarm: str) -> list[str]:
    """The mailboxes of everyone in a swarm, each once."""
    check_scope(swarm, "swarm_name")
    found = [f"{swarm}/{name}" for name in _files_of(swarm)]
    found += [mailbox(room, name, swarm) for name in _registered(room, swarm)]
    return list({fold(name): name for name in reversed(found)}.values())[::-1]


def mailbox(room: Room, name: str, swarm: str | None) -> str:
    """The mailbox that a name means where a swarm is spoken of."""
    if swarm is None or "/" in name:
        return name
    full = f"{check_scope(swarm, 'swarm_name')}/{name}"
    return full if _has_file(swarm, name) or full in _registered(room, swarm) else name


def places(name: str) -> list[Place]:
    """Everywhere that mail for this name may lie: other programs know a member by its bare name."""
    swarm, slash, bare = check_agent(name, "agent_name").rpartition("/")
    if slash:
        aside = [Place(bare, swarm)] if _has_file(swarm, bare) else []
    else:
        homes = [folder.name for folder in _folders() if _has_file(folder.name, bare)]
        aside = [Place(f"{homes[0]}/{bare}")] if len(homes) == 1 else []  # of several, nobody knows which is meant
    return [Place(check_agent(name, "agent_name")), *aside]


def _files_of(swarm: str) -> list[str]:
    names = []
    for path in sorted((SWARMS / swarm / "agents").glob("*.md")):
        if path.name.startswith("_"):
            continue
        try:
            names.append(check_agent(path.stem, "agent"))
        except Invalid as wrong:
            _log.warning("%s is no member: %s", path, wrong)
    return names


def _has_file(swarm: str, name: str) -> bool:
    """Both are checked names, so this is never a path out of the folder."""
    return not name.startswith("_") and (SWARMS / swarm / "agents" / f"{name}.md").is_file()


def _folders() -> list[Path]:
    return [folder for folder in SWARMS.iterdir() if folder.is_dir()] if SWARMS.is_dir() else []


def _registered(room: Room, swarm: str) -> list[str]:
    return room._office.store.keys(MEMBER + swarm)
