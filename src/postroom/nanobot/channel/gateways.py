"""The gateways of an agent: which are running, which sessions they hold, and which conversations they reach.

A gateway reaches the conversations of the channels that it runs. A terminal (`nanobot agent`) and a request to
nanobot's own API end with their answer. What comes later for them is kept, and `mail_tasks` shows it.

Several gateways of one agent share its mail. A session lives in the data folder of one gateway, its home; a
gateway that starts in the same folder continues its sessions. Each gateway writes a record that it is running. One
that disappears is awaited for a while; then its letters go to any gateway that can report them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import socket
import time
import uuid
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from ... import room
from ...core import work as core_work
from ...core.core import find_record, put_record
from ...core.verb import perform
from ...errors import PostroomError, UnknownAgent
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

    from ...aio import AsyncWork
    from ...core.core import Core
    from ...mailbox import Mailbox
    from ...model.agent import Agent
    from ...model.report import Finding
    from ...store.protocol import Write
    from .config import Config
    from .intent import Intent
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


# -- claims of dead gateways
#
# A gateway signs its claims with its process, so that its successor can see that the process is dead. Process
# numbers are reused, and in a container the first process is always number 1; so the signature also holds the
# start time and the namespace. Of a process in another namespace nothing is known: its lease has to expire.

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
    signed = _SIGNED.fullmatch(holder)
    if signed is None or signed["place"] != _place() or not signed["place"]:
        return False
    return _began(int(signed["pid"])) != signed["began"]


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
    there = count_gateways(opened.core, agent.card.id)
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
    seconds = max(0, int((opened.core.now().wall - at).total_seconds()))
    event = "it said goodbye" if agent.presence.left else "last sign of life"
    return f"{event} {_ago(seconds)} ago (program {agent.card.program or 'unknown'})"


def _ago(seconds: int) -> str:
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


# -- records of running gateways

log = logging.getLogger("postroom")

ALIVE = timedelta(seconds=60)  # a gateway counts as running for so long after its last record
AWAITED = timedelta(minutes=10)  # it is expected back for so long after its last record
KEPT = timedelta(days=30)
FILE = "mailbox.id"
LONGEST = 100  # characters of an id


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """The record by which a gateway shows that it is running. Its fields are stored: their names stay."""

    home: str
    signed: str  # the signature on its claims
    at: Annotated[datetime, Meta(tz=True)]
    left: bool = False

    def is_there(self, now: datetime) -> bool:
        return not self.left and now - self.at < ALIVE and not is_dead(self.signed)


def home_at(folder: Path) -> str:
    """Return the id of the gateways of this data folder. It is stored in the folder and moves with it."""
    file = folder / FILE
    try:
        if not file.exists():
            _write_once(file, uuid.uuid4().hex)
        return file.read_text(encoding="utf-8").strip()[:LONGEST] or str(folder)[-LONGEST:]
    except (OSError, ValueError):  # the id cannot be stored: use the path
        return str(folder)[-LONGEST:]


def _write_once(file: Path, text: str) -> None:
    """Write a file at once; of several writers the first wins."""
    aside = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    aside.write_text(f"{text}\n", encoding="utf-8")
    with suppress(FileExistsError):
        os.link(aside, file)  # unlike a rename, it never replaces the file of another writer
    aside.unlink()


def sign(core: Core, agent: str, home: str, signed: str, *, left: bool = False) -> None:
    """Record that this gateway is running, or that it leaves."""
    now = core.now().wall
    key = _key(agent, home, signed)
    sign = Gateway(home=home, signed=signed, at=now, left=left)

    def plan() -> Sequence[Write]:
        return [put_record(GATEWAY, key, to_plain(sign), find_record(core, GATEWAY, key), durable=False)]

    core.store.commit(plan)


def forget_old(core: Core, agent: str) -> None:
    """Delete the records of gateways that have not been running for KEPT."""
    before = core.now().wall - KEPT

    def plan() -> Sequence[Write]:
        signs = _gateways(core, agent, log.warning)
        return [
            put_record(GATEWAY, record.key, None, record, durable=False)
            for record in core.store.records(GATEWAY)
            if record.key in signs and signs[record.key].at < before
        ]

    core.store.commit(plan)


def count_gateways(core: Core, agent: str) -> int:
    """Return the number of running gateways of this agent."""
    now = core.now().wall
    return sum(gateway.is_there(now) for gateway in _gateways(core, agent).values())


def is_alone(core: Core, agent: str, home: str, signed: str) -> bool:
    """Return whether no other gateway of this agent is running."""
    now, own = core.now().wall, _key(agent, home, signed)
    return not any(gateway.is_there(now) for key, gateway in _gateways(core, agent).items() if key != own)


def has_gateway(core: Core, agent: str, home: str) -> bool:
    """Return whether a gateway with the sessions of this home is running."""
    now = core.now().wall
    return any(sign.is_there(now) for sign in _signs_of(core, agent, home))


def is_awaited(core: Core, agent: str, home: str) -> bool:
    """Return whether a gateway of this home is running, or was until recently and is expected back."""
    now = core.now().wall
    return any(sign.is_there(now) or now - sign.at < AWAITED for sign in _signs_of(core, agent, home))


def _signs_of(core: Core, agent: str, home: str) -> list[Gateway]:
    return [gateway for gateway in _gateways(core, agent).values() if gateway.home == home]


def home_of(core: Core, agent: str, signed: str) -> str:
    """Return the home of the gateway that signed a claim; empty if it is unknown."""
    return next((one.home for one in _gateways(core, agent).values() if one.signed == signed), "")


def _gateways(core: Core, agent: str, warn: Callable[[str], None] | None = None) -> dict[str, Gateway]:
    """Return the readable records by key. Another program, or a later version, may have written others."""
    found: dict[str, Gateway] = {}
    for record in core.store.records(GATEWAY):
        if record.key.startswith(f"{agent} "):
            try:
                found[record.key] = convert(record.value, Gateway)
            except msgspec.ValidationError as wrong:
                if warn is not None:
                    warn(
                        f"mailbox: the record of a gateway, {record.key!r}, cannot be read and is ignored: {wrong}"
                    )
    return found


def _key(agent: str, home: str, signed: str) -> str:
    return f"{agent} {hashlib.sha256(f'{home} {signed}'.encode()).hexdigest()[:32]}"


# -- one gateway among several

BETWEEN_SIGNS = 20.0  # seconds between two records that this gateway is running


class Reach(Protocol):
    async def reaches(self, channel: str) -> bool: ...


class Gateways:
    """This gateway among those of its agent: its record, and the letters that it leaves to the others."""

    def __init__(self, post: Post, reach: Reach, signed: str) -> None:
        self._post = post
        self._reach = reach
        self._signed = signed
        self._signed_at = 0.0  # by the monotonic clock
        self._left: dict[str, Intent] = {}

    @property
    def left(self) -> frozenset[str]:
        """The letters that this gateway does not claim."""
        return frozenset(self._left)

    async def arrive(self) -> None:
        await self._post.room.run(forget_old, self._post.core, self._post.name)
        await self._sign()

    async def stay(self) -> None:
        if time.monotonic() - self._signed_at >= BETWEEN_SIGNS:
            await self._sign()

    async def depart(self) -> bool:
        """Record that this gateway leaves; return whether no other one is running."""
        await self._sign(left=True)
        return await self._post.room.run(is_alone, self._post.core, self._post.name, self._post.home, self._signed)

    async def _sign(self, *, left: bool = False) -> None:
        self._signed_at = time.monotonic()
        post = self._post
        await post.room.run(sign, post.core, post.name, post.home, self._signed, left=left)

    async def leave_if_elsewhere(self, work: AsyncWork, intent: Intent) -> bool:
        """Release a letter that is for another gateway, and claim it no more; return whether it is one."""
        if not await self._is_elsewhere(work.id, intent):
            return False
        self._left[work.id] = intent
        await work.release()
        return True

    async def look_again(self) -> None:
        """Forget the letters that other gateways took, and allow again those that they will not take."""
        if not self._left:
            return
        query = Query(mailbox=self._post.name, states=(State.UNREAD,), message_ids=tuple(self._left))
        waiting = {found.message.id for found in await self._post.room.run(self._post.core.store.find, query)}
        for letter, intent in list(self._left.items()):
            is_new = _is_new(letter, intent)  # its thread may have another gateway by now: it is classified again
            if letter not in waiting or is_new or not await self._is_elsewhere(letter, intent):
                del self._left[letter]

    async def _is_elsewhere(self, letter: str, intent: Intent) -> bool:
        post, origin = self._post, intent.origin
        if intent.home in {"", post.home} or (origin is not None and origin.channel in NEVER):
            return False
        if _is_new(letter, intent):  # it can be done without the history of the session
            return await post.room.run(has_gateway, post.core, post.name, intent.home)
        if await post.room.run(is_awaited, post.core, post.name, intent.home):
            return True
        return intent.action == "report" and origin is not None and not await self._reach.reaches(origin.channel)


def _is_new(letter: str, intent: Intent) -> bool:
    """Return whether it answers nothing that this agent has begun."""
    return intent.action == "work" and intent.answers in {None, letter}
