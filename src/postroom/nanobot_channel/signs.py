"""Is a gateway of an agent up? What its card and the signs of its gateways say, looked at from outside."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from .. import room
from ..errors import PostroomError, UnknownAgent
from ..model.card import Status
from ..model.health import note, ok, warning
from ..model.names import check_agent
from ..store.files.tree import OWN_FOLDER
from ..store.opening import folder_of, is_there
from . import homes

if TYPE_CHECKING:
    from ..model.card import Agent
    from ..model.health import Finding
    from .config import Config

CHECK = "gateway"
PROGRAM = "nanobot"  # as gateways say on their card
FIRST_PORT = 18790  # of a gateway, where nothing else is said
MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds


def of_gateway(said: Config, config: Path, *, is_second: bool = False) -> Finding:
    """Nothing is made by looking: where no room is yet, no gateway ever was. A second gateway of this machine has
    another config and needs another port.
    """
    start = f"nanobot gateway -c {shlex.quote(str(config))}"
    start += f" -p {_free_port()}" if is_second else ""
    name = check_agent(said.agent_id, "agentId")
    if not _was_opened(said.address):
        return _not_started(name, start)
    try:
        with room.open(said.address) as opened:
            return _of_agent(opened, name, start)
    except UnknownAgent:
        return _not_started(name, start)
    except PostroomError as wrong:
        return warning(CHECK, f"the mailboxes cannot be looked at: {wrong}", "postroom doctor")


def _free_port() -> int:
    """The first port after that of the first gateway on which nobody listens."""
    for port in range(FIRST_PORT + 1, FIRST_PORT + 100):
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return port
    return FIRST_PORT + 1


def _was_opened(address: str) -> bool:
    """Was this a room before? Of a folder, only what we keep beside the mail tells."""
    folder = folder_of(address)
    return is_there(address) is True and (folder is None or (Path(folder) / OWN_FOLDER).is_dir())


def _not_started(name: str, start: str) -> Finding:
    return note(CHECK, f"no gateway of {name} was ever started here", start)


def _of_agent(opened: room.Room, name: str, start: str) -> Finding:
    agent = opened.agent(name)
    there = homes.gateways_there(opened._office, agent.card.id)
    seen = _last_sign(opened, agent)
    if there:
        up = f"a gateway of {name} is up" if there == 1 else f"{there} gateways of {name} are up"
        return ok(CHECK, f"{up}: {agent.presence.status}, {seen}")
    program = agent.card.program
    if agent.presence.status is not Status.OFFLINE and program != PROGRAM:
        who = f"another program, {program}," if program else "another program"
        return warning(CHECK, f"{who} is up under the name {name}, {seen}", "end it, or choose another agentId")
    return note(CHECK, f"no gateway of {name} is up: {seen}", start)


def _last_sign(opened: room.Room, agent: Agent) -> str:
    at = agent.presence.last_heartbeat
    if at is None:
        return "no sign of life yet"
    seconds = max(0, int((opened._office.now().wall - at).total_seconds()))
    said = "it said goodbye" if agent.presence.left else "last sign of life"
    return f"{said} {_ago(seconds)} ago (program {agent.card.program or 'unknown'})"


def _ago(seconds: int) -> str:
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"
