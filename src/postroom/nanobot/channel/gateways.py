"""Which conversations a gateway can speak into: those at the channels that it runs.

A terminal (`nanobot agent`) and a request to nanobot's own API are over when they got their answer. What comes
later for them is told to nobody; it is kept, and `mail_tasks` shows it.
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


NEVER = frozenset({"cli", "api", "system"})  # nanobot's names for what is no channel
WITHOUT_SECTION = frozenset({OWN_CHANNEL, "websocket"})  # the browser's is on by default


def is_reached(channel: str, sections: Mapping[str, Any]) -> bool:
    """Does a gateway with these sections under `channels` send to this channel?"""
    name = channel.partition(".")[0]  # one of several bots is `telegram.second`
    if name in NEVER:
        return False
    if name not in sections:
        return name in WITHOUT_SECTION
    section = sections[name]
    enabled = section.get("enabled") if isinstance(section, dict) else getattr(section, "enabled", None)
    return enabled is not False


# Whose claims may be taken over. A gateway signs its claims so that its successor knows them for dead.
#
# A process is known by its number, by when it began, and by the namespace in which the number counts: numbers are
# used again, and in a container the first process is always number 1. Of another namespace nothing is known;
# there
# the lease decides.

_SIGNED = re.compile(r"gateway of \S+ \[(?P<place>[^ \]]*) (?P<began>[^ \]]*)\] \(process (?P<pid>\d+)\)")
_NO_MORE = ("Z", "X")  # it has ended, and whoever started it has not asked how


def free_dead_claims(mailbox: Mailbox) -> int:
    """Give back what is held by gateways of this agent that are certainly no more; how many letters it was."""
    core = mailbox._core
    held = core.store.find(Query(mailbox=mailbox.name, states=(State.CLAIMED,)))
    dead = [found for found in held if found.delivery.lease and is_dead(found.delivery.lease.holder)]
    if dead:
        core_work.release(core, mailbox._caller, mailbox.name, dead)
    return len(dead)


def signature(agent: str) -> str:
    """How this process signs a claim."""
    pid = os.getpid()
    return f"gateway of {agent} [{_place()} {_began(pid)}] (process {pid})"


def is_dead(holder: str) -> bool:
    """Is it certain that the gateway that signed this is no more?"""
    signed = _SIGNED.fullmatch(holder)
    if signed is None or signed["place"] != _place() or not signed["place"]:
        return False
    return _began(int(signed["pid"])) != signed["began"]


@cache
def _place() -> str:
    """The namespace of our process numbers; empty where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
        return f"{Path('/proc/self/ns/pid').stat().st_ino}@{boot}"
    except OSError:
        return ""


def _began(pid: int) -> str:
    """When a process began, in the kernel's own count; `gone` if there is none, or none but its name on a list."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "gone"
    state, *more = stat.rpartition(")")[2].split()
    return "gone" if state in _NO_MORE else more[18]


# Is a gateway of an agent up? What its card and the signs of its gateways say, looked at from outside.

CHECK = "gateway"
PROGRAM = "nanobot"  # as gateways say on their card
FIRST_PORT = 18790  # of a gateway, where nothing else is said
MINUTE, HOUR, DAY = 60, 3600, 86_400  # seconds


def of_gateway(value: Config, config: Path, *, is_second: bool = False) -> Finding:
    """Nothing is made by looking: where no room is yet, no gateway ever was. A second gateway of this machine has
    another config and needs another port.
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
    there = gateways_there(opened._core, agent.card.id)
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
    seconds = max(0, int((opened._core.now().wall - at).total_seconds()))
    value = "it said goodbye" if agent.presence.left else "last sign of life"
    return f"{value} {_ago(seconds)} ago (program {agent.card.program or 'unknown'})"


def _ago(seconds: int) -> str:
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds // unit} {name}"
    return f"{seconds} s"


# Several gateways of one agent share its mail; a session lives at one of them, and what was asked there goes
# there.
#
# A home is the data folder of a gateway: whoever starts there again has the same sessions. Each gateway signs in
# a
# record that it is there. One that is gone is awaited for a while; then its letters are for whoever can tell.

log = logging.getLogger("postroom")

ALIVE = timedelta(seconds=60)  # after its last sign a gateway still counts as there
AWAITED = timedelta(minutes=10)  # after its last sign it is expected back
KEPT = timedelta(days=30)
FILE = "mailbox.id"
LONGEST = 100  # characters of an id


class Gateway(msgspec.Struct, frozen=True, kw_only=True):
    """The last sign of a gateway."""

    home: str
    signed: str  # as it signs its claims
    at: Annotated[datetime, Meta(tz=True)]
    left: bool = False

    def is_there(self, now: datetime) -> bool:
        return not self.left and now - self.at < ALIVE and not is_dead(self.signed)


def home_at(folder: Path) -> str:
    """What the gateways of this folder are known by: an id that is kept there, and moves with it."""
    file = folder / FILE
    try:
        if not file.exists():
            _write_once(file, uuid.uuid4().hex)
        return file.read_text(encoding="utf-8").strip()[:LONGEST] or str(folder)[-LONGEST:]
    except (OSError, ValueError):  # it cannot be kept; then the place has to do
        return str(folder)[-LONGEST:]


def _write_once(file: Path, text: str) -> None:
    """Whole, and by the first of several who try."""
    aside = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    aside.write_text(f"{text}\n", encoding="utf-8")
    with suppress(FileExistsError):
        os.link(aside, file)
    aside.unlink()


def sign(core: Core, agent: str, home: str, signed: str, *, left: bool = False) -> None:
    """This gateway is there, or leaves."""
    now = core.now().wall
    key = _key(agent, home, signed)
    sign = Gateway(home=home, signed=signed, at=now, left=left)

    def plan() -> Sequence[Write]:
        return [put_record(GATEWAY, key, to_plain(sign), find_record(core, GATEWAY, key), durable=False)]

    core.store.commit(plan)


def forget_old(core: Core, agent: str) -> None:
    """Strike those of whom nothing was heard for long."""
    before = core.now().wall - KEPT

    def plan() -> Sequence[Write]:
        signs = _gateways(core, agent, log.warning)
        return [
            put_record(GATEWAY, record.key, None, record, durable=False)
            for record in core.store.records(GATEWAY)
            if record.key in signs and signs[record.key].at < before
        ]

    core.store.commit(plan)


def gateways_there(core: Core, agent: str) -> int:
    """How many of this agent are there."""
    now = core.now().wall
    return sum(gateway.is_there(now) for gateway in _gateways(core, agent).values())


def is_alone(core: Core, agent: str, home: str, signed: str) -> bool:
    """Is no other gateway of this agent there?"""
    now, own = core.now().wall, _key(agent, home, signed)
    return not any(gateway.is_there(now) for key, gateway in _gateways(core, agent).items() if key != own)


def is_gateway_there(core: Core, agent: str, home: str) -> bool:
    """Is a gateway there that has the sessions of this home?"""
    now = core.now().wall
    return any(sign.is_there(now) for sign in _signs_of(core, agent, home))


def is_awaited(core: Core, agent: str, home: str) -> bool:
    """Is one there, or will one be soon?"""
    now = core.now().wall
    return any(sign.is_there(now) or now - sign.at < AWAITED for sign in _signs_of(core, agent, home))


def _signs_of(core: Core, agent: str, home: str) -> list[Gateway]:
    return [gateway for gateway in _gateways(core, agent).values() if gateway.home == home]


def home_of(core: Core, agent: str, signed: str) -> str:
    """Where a gateway lives that signed a claim; empty if that is not known."""
    return next((one.home for one in _gateways(core, agent).values() if one.signed == signed), "")


def _gateways(core: Core, agent: str, tell: Callable[[str], None] | None = None) -> dict[str, Gateway]:
    """The signs that can be read. Another program, or a later version of this one, may have put others there."""
    found: dict[str, Gateway] = {}
    for record in core.store.records(GATEWAY):
        if record.key.startswith(f"{agent} "):
            try:
                found[record.key] = convert(record.value, Gateway)
            except msgspec.ValidationError as wrong:
                if tell is not None:
                    tell(f"mailbox: the sign of a gateway, {record.key!r}, cannot be read and is ignored: {wrong}")
    return found


def _key(agent: str, home: str, signed: str) -> str:
    return f"{agent} {hashlib.sha256(f'{home} {signed}'.encode()).hexdigest()[:32]}"


# One gateway among those of its agent: it signs that it is there, and leaves to the others what is theirs.

BETWEEN_SIGNS = 20.0  # seconds


class Reach(Protocol):
    async def reaches(self, channel: str) -> bool: ...


class Gateways:
    """Where this gateway lives, and the letters that it has seen to be for another."""

    def __init__(self, post: Post, reach: Reach, signed: str) -> None:
        self._post = post
        self._reach = reach
        self._signed = signed
        self._signed_at = 0.0  # seconds of a steady clock
        self._left: dict[str, Intent] = {}

    @property
    def left(self) -> frozenset[str]:
        """The letters that are not to be claimed here."""
        return frozenset(self._left)

    async def arrive(self) -> None:
        await self._post.room.run(forget_old, self._post.core, self._post.name)
        await self._sign()

    async def stay(self) -> None:
        if time.monotonic() - self._signed_at >= BETWEEN_SIGNS:
            await self._sign()

    async def depart(self) -> bool:
        """Says whether nobody else is there."""
        await self._sign(left=True)
        return await self._post.room.run(is_alone, self._post.core, self._post.name, self._post.home, self._signed)

    async def _sign(self, *, left: bool = False) -> None:
        self._signed_at = time.monotonic()
        post = self._post
        await post.room.run(sign, post.core, post.name, post.home, self._signed, left=left)

    async def is_left(self, work: AsyncWork, errand: Intent) -> bool:
        """Is it for another gateway? Then it is put back, and not taken again."""
        if not await self._is_elsewhere(work.id, errand):
            return False
        self._left[work.id] = errand
        await work.release()
        return True

    async def look_again(self) -> None:
        """What the others took is forgotten; what they will not take is for us."""
        if not self._left:
            return
        query = Query(mailbox=self._post.name, states=(State.UNREAD,), message_ids=tuple(self._left))
        waiting = {found.message.id for found in await self._post.room.run(self._post.core.store.find, query)}
        for letter, errand in list(self._left.items()):
            is_new = _is_new(letter, errand)  # who had its thread may be another by now: it is sorted again
            if letter not in waiting or is_new or not await self._is_elsewhere(letter, errand):
                del self._left[letter]

    async def _is_elsewhere(self, letter: str, errand: Intent) -> bool:
        post, where = self._post, errand.origin
        if errand.home in {"", post.home} or (where is not None and where.channel in NEVER):
            return False
        if _is_new(letter, errand):  # it can be done without what was before
            return await post.room.run(is_gateway_there, post.core, post.name, errand.home)
        if await post.room.run(is_awaited, post.core, post.name, errand.home):
            return True
        return errand.what == "tell" and where is not None and not await self._reach.reaches(where.channel)


def _is_new(letter: str, errand: Intent) -> bool:
    """Is it no answer to anything that this agent has begun?"""
    return errand.what == "work" and errand.answers in {None, letter}
