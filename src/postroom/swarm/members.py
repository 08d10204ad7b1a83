"""Who is in a swarm, and which mailbox a name means.

A swarm's members are the files `swarms/<swarm>/agents/*.md` below the working folder, and the agents that
registered with the swarm as a scope. Member X of swarm S has two spellings, X and `S/X`. A letter is filed under
the spelling its sender used, because programs of the design check one spelling only; a look at either finds both.
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
    with the swarm is addressed by the name it registered.
    """
    check_scope(swarm, "swarm_name")
    registered = sorted(_registered(room, swarm), key=lambda name: "/" not in name)  # a bare name wins
    return list({fold(full_name(name, swarm)): name for name in (*_files_of(swarm), *registered)}.values())


def full_name(name: str, swarm: str) -> str:
    """Return `S/X` for a bare X of swarm S; another name as it is."""
    return name if "/" in name else f"{swarm}/{name}"


def mailbox(room: Room, name: str, swarm: str | None) -> str:
    """Return the name under which a letter of a swarm is filed: as it was written, or `S/X` where only that is
    registered. A look at `S/X` finds mail for a bare X only where a member file tells that they are one.
    """
    if swarm is None or "/" in name or not _has_mailboxes(swarm) or _has_file(swarm, name):
        return name
    registered = {fold(one): one for one in _registered(room, check_scope(swarm, "swarm_name"))}
    return name if fold(name) in registered else registered.get(fold(full_name(name, swarm)), name)


def places(name: str) -> list[Place]:
    """Return everywhere that mail for this name may lie: a member has two spellings and one mailbox.

    Where several swarms have an X, a letter to the bare X belongs to the swarm that the letter names.
    """
    mailbox = check_agent(name, "agent_name")
    swarm, slash, bare = mailbox.rpartition("/")
    swarms = [folder.name for folder in _folders() if _has_file(folder.name, bare)]
    if not slash:
        other = [Place(f"{swarms[0]}/{bare}")] if len(swarms) == 1 else []
    else:
        other = [Place(bare, None if len(swarms) == 1 else swarm)] if swarm in swarms else []
    return [Place(mailbox), *other]


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


def _has_file(swarm: str, name: str) -> bool:
    """Both are checked names, so this is never a path out of the folder."""
    is_member = _has_mailboxes(swarm) and not name.startswith("_")
    return is_member and (SWARMS / swarm / "agents" / f"{name}.md").is_file()


def _has_mailboxes(swarm: str) -> bool:
    """Can `swarm/agent` be the name of a mailbox? In a scope such as `swarm:team` everybody has the bare name."""
    return not {":", "/"} & set(swarm)


def _folders() -> list[Path]:
    return [folder for folder in SWARMS.iterdir() if folder.is_dir()] if SWARMS.is_dir() else []


def _registered(room: Room, swarm: str) -> list[str]:
    return room._office.store.keys(MEMBER + swarm)
