"""Who is in a swarm, and which mailbox a name means.

A swarm's members are the files `swarms/<swarm>/agents/*.md` below the working folder, and the agents that
registered with the swarm as a scope. Member X of swarm S has two spellings, X and `S/X`. A letter is filed under
the spelling its sender used, because programs of the design check one spelling only; a look at either finds both.
Names that differ in case only are one name: the room keeps the first spelling, and refuses another.
Others, such as `coo`, are members of no swarm: their bare name is their mailbox.
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
    """Return the names of everyone in a swarm, each agent once.

    A member file X is addressed as X, the spelling that the design's own programs check. An agent that registered
    with the swarm is addressed by the name it registered. Either is in the case that the room knows.
    """
    check_scope(swarm, "swarm_name")
    registered = sorted(_registered(room, swarm), key=lambda name: "/" not in name)  # a bare name wins
    everyone = {fold(full_name(name, swarm)): name for name in (*_files_of(swarm), *registered)}
    return [as_known(room, name) for name in everyone.values()]


def as_known(room: Room, name: str) -> str:
    """Return the name in the case that the room knows."""
    held = room._office.store.spelling(name)
    return held if held is not None and fold(held) == fold(name) else name


def full_name(name: str, swarm: str) -> str:
    """Return `S/X` for a bare X of swarm S; another name as it is."""
    return name if "/" in name else f"{swarm}/{name}"


def mailbox(room: Room, name: str, swarm: str | None) -> str:
    """Return the name under which a letter of a swarm is filed: as it was written, or `S/X` where only that is
    registered. A look at `S/X` finds mail for a bare X only where a member file tells that they are one.
    """
    if swarm is None or "/" in name or not _has_mailboxes(swarm) or _file_of(swarm, name):
        return name
    registered = {fold(one): one for one in _registered(room, check_scope(swarm, "swarm_name"))}
    return name if fold(name) in registered else registered.get(fold(full_name(name, swarm)), name)


def places(name: str) -> list[Place]:
    """Return everywhere that mail for this name may lie: a member has two spellings and one mailbox.

    Where several swarms have an X, a letter to the bare X belongs to the swarm that the letter names.
    """
    mailbox = check_agent(name, "agent_name")
    swarm, slash, bare = mailbox.rpartition("/")
    files = {folder.name: file for folder in _folders() if (file := _file_of(folder.name, bare)) is not None}
    if slash:
        scopes = {one: None if len(files) == 1 else one for one in files if fold(one) == fold(swarm)}
        return [Place(mailbox), *(Place(files[one], scope) for one, scope in scopes.items())]
    return [Place(mailbox), *(Place(f"{one}/{file}") for one, file in files.items() if len(files) == 1)]


def _files_of(swarm: str) -> list[str]:
    names: list[str] = []
    if not _has_mailboxes(swarm):
        return names
    for path in sorted((SWARMS / swarm / "agents").glob("*.md")):
        if path.name.startswith("_"):
            continue
        try:
            names.append(check_agent(path.stem, "agent"))
        except Invalid as wrong:
            _log.warning("%s is no member: %s", path, wrong)
    return names


def _file_of(swarm: str, name: str) -> str | None:
    """Return the name of the member file of an agent, in its own case; None where there is none. The swarm is a
    checked name, so this is never a path out of the folder.
    """
    if not _has_mailboxes(swarm) or name.startswith("_"):
        return None
    files = (SWARMS / swarm / "agents").glob("*.md")
    return next((path.stem for path in files if fold(path.stem) == fold(name)), None)


def _has_mailboxes(swarm: str) -> bool:
    """Can `swarm/agent` be the name of a mailbox? In a scope such as `swarm:team` everybody has the bare name."""
    return not {":", "/"} & set(swarm)


def _folders() -> list[Path]:
    return [folder for folder in SWARMS.iterdir() if folder.is_dir()] if SWARMS.is_dir() else []


def _registered(room: Room, swarm: str) -> list[str]:
    return room._office.store.keys(MEMBER + swarm)
