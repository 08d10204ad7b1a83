"""The gateway of an agent: whether one is running, and which conversations it reaches.

A gateway reaches the conversations of the channels that it runs. A terminal (`nanobot agent`) and a request to
nanobot's own API end with their answer. What comes later for them is kept, and `mail_tasks` shows it.

An agent has one gateway. It writes a record that it is running; a second one is refused.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import socket
import time
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from ... import room
from ...core import work as core_work
from ...core.core import find_record, put_record
from ...core.verb import perform
from ...errors import NotAllowed, PostroomError, UnknownAgent
from ...model.agent import Status
from ...model.codec import convert, to_plain
from ...model.delivery import State
from ...model.names import check_agent
from ...model.query import Query
from ...model.record import GATEWAY
from ...model.report import note, ok, warning
from ...store.address import folder_of, is_there
from ...store.files.tree import OWN_FOLDER
from .config import OWN_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ...core.core import Core
    from ...mailbox import Mailbox
    from ...model.agent import Agent
    from ...model.report import Finding
    from ...store.protocol import Write
    from .config import Config
    from .post import Post


NEVER = frozenset({"cli", "api", "system"})  # nanobot's names for sources that are no channels
WITHOUT_SECTION = frozenset({OWN_CHANNEL, "websocket"})  # the browser's channel is on by default


def is_reached(channel: str, sections: Mapping[str, Any]) -> bool:
    """Return whether a gateway with these sections under `channels` sends to this channel."""
    name = channel.partition(".")[0]  # one of several bots is `telegram.second`
    if name in NEVER:
        return False
    if name not in sections:
        return name in WITHOUT_SECTION
    section = sections[name]
    enabled = section.get("enabled") if isinstance(section, dict) else getattr(section, "enabled", None)
    return enabled is not False


# -- signatures
#
# A gateway signs its claims and its record with its process, so that another one can see whether the process is
# dead. Process numbers are reused, and in a container the first process is always number 1; so the signature also
# holds the start time and the namespace. Of a process in another namespace nothing is known.

_SIGNED = re.compile(r"gateway of \S+ \[(?P<place>[^ \]]*) (?P<began>[^ \]]*)\] \(process (?P<pid>\d+)\)")
_ENDED = ("Z", "X")  # states of a process that has ended and whose parent has not waited for it


def free_dead_claims(mailbox: Mailbox) -> int:
    """Release the letters that dead gateways of this agent hold; return their number."""
    core = mailbox.core
    held = core.store.find(Query(mailbox=mailbox.name, states=(State.CLAIMED,)))
    dead = [found for found in held if found.delivery.lease and is_dead(found.delivery.lease.holder)]
    if dead:
        ids = [found.message.id for found in dead]
        perform(core, mailbox.principal, core_work.Release(agent_id=mailbox.name, ids=ids, held=dead))
    return len(dead)


def signature(agent: str) -> str:
    """Return the text by which this process signs its claims."""
    pid = os.getpid()
    return f"gateway of {agent} [{_place()} {_began(pid)}] (process {pid})"


def is_dead(holder: str) -> bool:
    """Return whether the gateway that signed this is certainly dead."""
    signed = _signed_here(holder)
    return signed is not None and _began(int(signed["pid"])) != signed["began"]


def is_alive(holder: str) -> bool:
    """Return whether the gateway that signed this is certainly running."""
    signed = _signed_here(holder)
    return signed is not None and _began(int(signed["pid"])) == signed["began"]


def _signed_here(holder: str) -> re.Match[str] | None:
    """Return the signature of a process that we can look at; None for any other."""
    signed = _SIGNED.fullmatch(holder)
    return signed if signed is not None and signed["place"] == _place() != "" else None


@cache
def _place() -> str:
    """Return the namespace of our process numbers; empty if the system does not show it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
        return f"{Path('/proc/self/ns/pid').stat().st_ino}@{boot}"
    except OSError:
        return ""


def _began(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; `gone` if it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "gone"
    # The state follows the command name, which is in parentheses and may itself hold spaces and parentheses.
    state, *more = stat.rpartition(")")[2].split()
    return "gone" if state in _ENDED else more[18]


# -- the check of `postroom doctor`: is a gateway of this agent running?

CHECK = "gateway"
PROGRAM = "nanobot"  # the program on the card of an agent with a gateway
FIRST_PORT = 18790  # nanobot's default port of a gateway
MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds


def check_gateway(value: Config, config: Path, *, is_second: bool = False) -> Finding:
    """Report whether a gateway of this agent is running.

    The check creates nothing: where there is no room yet, no gateway was ever started. A second gateway on this
    machine has its own config and needs its own port.
    """
    start = f"nanobot gateway -c {shlex.quote(str(config))}"
    start += f" -p {_free_port()}" if is_second else ""
    name = check_agent(value.agent_id, "agentId")
    if not _was_opened(value.address):
        return _not_started(name, start)
    try:
        with room.open(value.address) as opened:
            return _of_agent(opened, name, start)
    except UnknownAgent:
        return _not_started(name, start)
    except PostroomError as wrong:
        return warning(CHECK, f"the mailboxes cannot be looked at: {wrong}", "postroom doctor")


def _free_port() -> int:
    """Return the first port above FIRST_PORT on which nothing listens."""
    for port in range(FIRST_PORT + 1, FIRST_PORT + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    return FIRST_PORT + 1


def _was_opened(address: str) -> bool:
    """Return whether a room was opened here. A mail folder has our own folder in it since then."""
    folder = folder_of(address)
    return is_there(address) is True and (folder is None or (Path(folder) / OWN_FOLDER).is_dir())


def _not_started(name: str, start: str) -> Finding:
    return note(CHECK, f"no gateway of {name} was ever started here", start)


def _of_agent(opened: room.Room, name: str, start: str) -> Finding:
    agent = opened.agent(name)
    seen = _last_sign(opened, agent)
    if running(opened.core, agent.card.id) is not None:
        return ok(CHECK, f"a gateway of {name} is up: {agent.presence.status}, {seen}")
    program = agent.card.program
    if agent.presence.status is not Status.OFFLINE and program != PROGRAM:
        who = f"another program, {program}," if program else "another program"
        return warning(CHECK, f"{who} is up under the name {name}, {seen}", "end it, or choose another agentId")
    return note(CHECK, f"no gateway of {name} is up: {seen}", start)


def _last_sign(opened: room.Room, agent: Agent) -> str:
    at = agent.presence.last_heartbeat
    if at is None:
        return "no sign of life yet"
    seconds = max(0, int((opened.core.now().wall - at).total_seconds()))
    event = "it said goodbye" if agent.presence.left else "last sign of life"
    return f"{event} {_ago(seconds)} ago (program {agent.card.program or 'unknown'})"


def _ago(seconds: int) -> str:
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


# -- the record of the running gateway

ALIVE = timedelta(
    seconds=60
)  # a gateway of which nothing else is known counts as running for so long after its record
BETWEEN_RECORDS = 20.0  # seconds
LOOK = 1.0  # seconds between two looks whether another gateway has disappeared


class GatewayRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record by which a gateway shows that it is running. Its fields are stored: their names stay."""

    signed: str  # the signature on its claims
    at: Annotated[datetime, Meta(tz=True)]
    left: bool = False

    def is_there(self, now: datetime) -> bool:
        return not self.left and (is_alive(self.signed) or (now - self.at < ALIVE and not is_dead(self.signed)))


def running(core: Core, agent: str, but: str = "") -> GatewayRecord | None:
    """Return the record of a running gateway of this agent, except the one that signs as `but`; None without one.

    Earlier versions kept several records for an agent, and another program may have written others.
    """
    now = core.now().wall
    for record in core.store.records(GATEWAY):
        if record.key.partition(" ")[0] == agent:
            try:
                found = convert(record.value, GatewayRecord)
            except msgspec.ValidationError:
                continue
            if found.signed != but and found.is_there(now):
                return found
    return None


def take_place(core: Core, agent: str, signed: str) -> GatewayRecord | None:
    """Record that this gateway is running, unless another one of the agent is: its record is returned."""
    other = None

    def plan() -> Sequence[Write]:
        nonlocal other
        other = running(core, agent, but=signed)
        return [_record(core, agent, signed)] if other is None else ()

    core.store.commit(plan)
    return other


def sign(core: Core, agent: str, signed: str, *, left: bool = False) -> None:
    """Record that this gateway is still running, or that it leaves."""
    core.store.commit(lambda: [_record(core, agent, signed, left=left)])


def _record(core: Core, agent: str, signed: str, *, left: bool = False) -> Write:
    value = to_plain(GatewayRecord(signed=signed, at=core.now().wall, left=left))
    return put_record(GATEWAY, agent, value, find_record(core, GATEWAY, agent), durable=False)


class OnlyGateway:
    """The place of this gateway as the only one of its agent."""

    def __init__(self, post: Post, signed: str) -> None:
        self._post = post
        self._signed = signed
        self._signed_at = 0.0  # by the monotonic clock

    async def arrive(self) -> None:
        """Take the place; refuse to where another gateway is running.

        Of one in another container only its record is known: it is awaited until it is renewed, or too old.
        """
        first = other = await self._run(take_place)
        while other is not None:
            if is_alive(other.signed) or other.at != first.at:
                hint = "end that one, or choose another agentId for this one"
                raise NotAllowed(f"a gateway of {self._post.name} is running already", field="agentId", hint=hint)
            await asyncio.sleep(LOOK)
            other = await self._run(take_place)
        self._signed_at = time.monotonic()

    async def stay(self) -> None:
        if time.monotonic() - self._signed_at >= BETWEEN_RECORDS:
            self._signed_at = time.monotonic()
            await self._run(sign)

    async def depart(self) -> None:
        await self._run(sign, left=True)

    async def _run(self, write: Callable[..., Any], **more: Any) -> Any:
        return await self._post.room.run(write, self._post.core, self._post.name, self._signed, **more)
