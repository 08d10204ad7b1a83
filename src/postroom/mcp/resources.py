"""Inboxes, threads and messages as MCP resources: reading them marks nothing, and clients may watch them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple
from urllib.parse import unquote

from ..core import inbox, threads
from ..core.deliveries import taken_back
from ..core.proof import people_names
from ..core.stats import GetTrace
from ..core.verb import perform, verb
from ..errors import Busy, Resync
from ..formats.mcp import counted, received, record, trace_record
from ..server.protocol import ADDED
from .tools import HostVerb

if TYPE_CHECKING:
    from ..core.authorize import Principal
    from ..core.core import Core
    from .handlers import Caller


Changed = Callable[[], Awaitable[None]]  # notifies the client
Watch = Callable[[Changed], Awaitable[None]]  # runs until it is cancelled
MAX_LETTERS = 100  # in one answer
WAIT_SECONDS = 50.0  # of one wait; the next begins where it ended
RETRY_SECONDS = 5.0  # before another try while the server is away


class Template(NamedTuple):
    """A kind of resource."""

    uri: str
    name: str
    about: str


TEMPLATES = (
    Template("inbox://{agent}", "inbox", "The unread mail of an agent, as messages. Changes when mail comes."),
    Template("thread://{id}", "thread", "All messages of a thread that you sent or got. Changes when one comes."),
    Template("message://{id}", "message", "One message, its recipients and replies. Changes when a reply comes."),
)  # fmt: skip
READ, PLACE = "resources/read", "resources/place"
_URI = re.compile(r"(inbox|thread|message)://([^?#]+)")


def is_known(uri: str) -> bool:
    """Return whether it is a URI of ours."""
    return _URI.fullmatch(uri) is not None


class ResourceVerb(HostVerb, kw_only=True):
    """A request about a resource, as the agent whose inbox it is, or as the one that calls."""

    whose: ClassVar[str | None] = "agent"

    uri: Annotated[str, "inbox://AGENT, thread://ID or message://ID"]
    agent: Annotated[str | None, "whose inbox; from the URI"] = None

    def __post_init__(self) -> None:
        self.agent = self.target[1] if self.target[0] == "inbox" else None

    @property
    def target(self) -> tuple[str, str]:
        """The kind of resource, and its id."""
        found = _URI.fullmatch(self.uri)
        return ("", "") if found is None else (found[1], unquote(found[2]).removesuffix("/"))

    def trace(self, core: Core, principal: Principal) -> Any:
        return perform(core, principal, GetTrace(agent_id=self.mine(), id=self.target[1]))


@verb(READ, "messages, or a message with its recipients and replies", registry=ADDED, action="check", many=True)
class ReadResource(ResourceVerb, kw_only=True):
    """Return the content of a resource, without marking anything as read."""

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        (kind, id), me = self.target, self.mine()
        if kind == "inbox":
            check = inbox.Check(agent_id=me, peek=True, limit=MAX_LETTERS)
            return counted(
                map(partial(received, people=people_names(core)), perform(core, principal, check).letters),
                agentId=id,
            )
        if kind == "thread":
            found = perform(core, principal, threads.GetThread(agent_id=me, thread=id)).letters
            gone = taken_back(core, [letter.id for letter in found])
            return counted(map(partial(record, people=people_names(core), taken_back=gone), found), thread=id)
        return trace_record(self.trace(core, principal), people=people_names(core))


@verb(PLACE, "agent_id, thread, since", registry=ADDED, action="check", writes=False)
class FindPlace(ResourceVerb, kw_only=True):
    """Return where a change of a resource shows: in which mailbox and thread, and from which cursor on."""

    def run(self, core: Core, principal: Principal) -> dict[str, Any]:
        (kind, id), me = self.target, self.mine()
        thread = {"inbox": None, "thread": id}.get(kind)
        if kind == "message":
            thread = self.trace(core, principal).message.thread
        # Raises if the caller may not watch it.
        perform(core, principal, inbox.Wait(agent_id=me, peek=True, thread=thread, timeout=0))
        since = perform(core, principal, inbox.GetCursor(agent_id=me))
        return {"agent_id": me, "since": since} | ({"thread": thread} if thread else {})


async def watch_resource(caller: Caller, uri: str) -> Watch:
    """Return a function that reports new mail there, from this moment on."""
    place = await caller.ask(PLACE, {"uri": uri})

    async def run(changed: Changed) -> None:
        while True:
            place["since"] = await _next(caller, place, changed)

    return run


async def _next(caller: Caller, place: dict[str, Any], changed: Changed) -> str:
    """Wait once for mail, report it, and return the cursor to go on from. The cursor is taken before reporting, so
    that a burst is reported once.
    """
    try:
        found = await caller.call("wait", {**place, "peek": True, "timeout": WAIT_SECONDS})
    except Resync:  # the room was restored meanwhile
        found = {"letter": True}
    except Busy:  # the server behind the socket restarts
        await asyncio.sleep(RETRY_SECONDS)
        return str(place["since"])
    if not found["letter"]:
        return str(found["cursor"])
    now = await caller.call("cursor", {"agent_id": place["agent_id"]})
    await changed()
    return str(now["cursor"])
