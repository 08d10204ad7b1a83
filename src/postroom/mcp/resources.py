"""Inboxes, threads and messages as resources: to read without marking anything, and to watch."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from ..errors import Busy, Resync
from .letters import message, messages

if TYPE_CHECKING:
    from .caller import Caller
    from .shelf import Changed, Watch

MOST = 100  # letters in one answer
PAUSE = 50.0  # seconds of one wait; the next begins where it ended
TROUBLE = 5.0  # seconds before it is tried again


class Template(NamedTuple):
    """A row of the table."""

    uri: str
    name: str
    about: str


TEMPLATES = (
    Template("inbox://{agent}", "inbox", "The unread mail of an agent, as messages. Changes when mail comes."),
    Template("thread://{id}", "thread", "All messages of a thread that you sent or got. Changes when one comes."),
    Template("message://{id}", "message", "One message, its recipients and replies. Changes when a reply comes."),
)  # fmt: skip
_URI = re.compile(r"(inbox|thread|message)://([^?#]+)")


class Place(NamedTuple):
    kind: str
    id: str


def target(uri: str) -> Place | None:
    """What a URI names. None: it is not ours."""
    found = _URI.fullmatch(uri)
    return Place(found[1], unquote(found[2]).removesuffix("/")) if found else None


async def look(caller: Caller, place: Place) -> dict[str, Any]:
    """Read it; nothing is marked."""
    if place.kind == "inbox":
        said = {"agent_id": place.id, "peek": True, "limit": MOST}
        return messages((await caller.call("check", said))["letters"], agentId=place.id)
    me = caller.who(None)
    if place.kind == "thread":
        found = await caller.call("thread", {"agent_id": me, "thread": place.id})
        return messages(found["letters"], thread=place.id)
    life = await caller.call("trace", {"agent_id": me, "message_id": place.id})
    stops = [{"agentId": stop["mailbox"], "state": stop["state"]} for stop in life["stops"]]
    return message(life["letter"]) | {"recipients": stops, "replies": [message(one) for one in life["replies"]]}


async def follow(caller: Caller, place: Place) -> Watch:
    """What tells of new mail there, from this moment on."""
    said = await _wanted(caller, place)
    since = await _now(caller, said["agent_id"])
    await caller.call("wait", {**said, "since": since, "timeout": 0})  # may it be watched at all?

    async def run(changed: Changed) -> None:
        at = since
        while True:
            at = await _next(caller, said, at, changed)

    return run


async def _next(caller: Caller, said: dict[str, Any], at: str, changed: Changed) -> str:
    """One bounded wait. A cursor taken before telling covers all that came until then: a burst is told once."""
    try:
        found = await caller.call("wait", {**said, "since": at, "timeout": PAUSE})
    except Resync:  # the room was restored meanwhile
        found = {"letter": True}
    except Busy:  # a daemon that is away comes back
        await asyncio.sleep(TROUBLE)
        return at
    if not found["letter"]:
        return str(found["cursor"])
    now = await _now(caller, said["agent_id"])
    await changed()
    return now


async def _wanted(caller: Caller, place: Place) -> dict[str, Any]:
    if place.kind == "inbox":
        return {"agent_id": place.id, "peek": True}
    me, thread = caller.who(None), place.id
    if place.kind == "message":
        thread = (await caller.call("trace", {"agent_id": me, "message_id": place.id}))["letter"]["thread"]
    return {"agent_id": me, "peek": True, "thread": thread}


async def _now(caller: Caller, agent: str) -> str:
    return str((await caller.call("cursor", {"agent_id": agent}))["cursor"])
