"""The link to a MAP server, for ever: dial, run a session, and after a cut dial again with growing pauses.

`LinkMemory` is what the room keeps of the server between two sessions and after a restart: its name here, our name
there, up to when its messages were stored, its ids of the last letters that we sent, and which of our agents wrote
them.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..core import peers
from ..core.core import find_record, put_record
from ..errors import PostroomError
from ..federation.connection import CUT, MapRefusal, RpcConnection, dial, pause, read, sender
from ..model.codec import blake2b, encode
from ..model.record import MAP_LINK
from ..store.notification import ROOM
from . import link_directory
from .link_messages import LinkSender
from .link_session import LinkSession

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from ..core.core import Core
    from ..formats.events import Event
    from ..server.executor import Executor
    from .link_session import LinkOptions


log = logging.getLogger("postroom")
MOST_ADDRESSES = 1000  # ids that our agents had there
MOST_WRITERS = 200  # agents of ours that wrote there last, and are registered there for an answer
MOST_SENT = 1000  # letters that can be answered by the server's ids; older ones only by ours
LONGEST_ID = 200


class LinkMemory:
    """The room's record of one server, by its address."""

    def __init__(self, core: Core, server: str, name: str) -> None:
        self.core = core
        self._key = blake2b(server.encode(), digest_size=16).hexdigest()
        kept = find_record(core, MAP_LINK, self._key)
        self._saved: dict[str, Any] = kept.value if kept is not None and isinstance(kept.value, dict) else {}
        self.name: str = self._saved.get("name", name)  # our own: the room may take the server's name later
        self.system: str = self._saved.get("system", "")
        self.seen: int = self._saved.get("seen", 0)  # milliseconds, by the server's clock
        self._ours: dict[str, str] = dict(self._saved.get("sent", {}))  # our letter ids, by the server's
        self.writers: dict[str, None] = dict.fromkeys(self._saved.get("writers", ()))  # in order
        self.addresses: dict[str, str] = dict(self._saved.get("addresses", {}))  # names of ours, by ids there
        self.last_event: str = self._saved.get("heard", "")  # the last of its events that was read
        self.resume = ""  # the resume token of the last session; not kept over a restart

    def set_system(self, name: str) -> None:
        """Record the server's name. The first one stays: mail waits under it."""
        self.system = self.system or name
        self.save()

    def note_time(self, at: int) -> None:
        self.seen = max(self.seen, at)

    def note_sent(self, theirs: Any, ours: str) -> None:
        """Record the server's id of a letter of ours: answers name that one."""
        if isinstance(theirs, str) and 0 < len(theirs) <= LONGEST_ID:
            self._ours[theirs] = ours
        while len(self._ours) > MOST_SENT:
            del self._ours[next(iter(self._ours))]

    def note_writer(self, name: str) -> None:
        """Record that an agent of ours wrote to the server."""
        self.writers.pop(name, None)
        self.writers[name] = None
        while len(self.writers) > MOST_WRITERS:
            del self.writers[next(iter(self.writers))]

    def note_address(self, id: str, name: str) -> None:
        """Record the id of an agent of ours there. Messages may go to it even when the agent has another."""
        if id != name and len(id) <= LONGEST_ID:
            self.addresses[id] = name
        while len(self.addresses) > MOST_ADDRESSES:
            del self.addresses[next(iter(self.addresses))]

    def note_correlation(self, sender: str, mailbox: str, correlation: str, ours: str) -> None:
        """Record the correlation id by which a sender of ours knows the answer to a letter."""
        self.note_sent(_correlation_key(sender, mailbox, correlation), ours)

    def letter_for(self, sender: str, mailbox: str, correlation: str) -> str | None:
        """Return the letter that an answer with this correlation id, from that mailbox, belongs to."""
        return self._ours.get(_correlation_key(sender, mailbox, correlation))

    def own_id(self, id: str) -> str:
        """Return the id of a letter here, by its id here or at the server."""
        return self._ours.get(id, id)

    def save(self) -> None:
        value = {
            "name": self.name,
            "system": self.system,
            "seen": self.seen,
            "sent": dict(self._ours),
            "writers": list(self.writers),
            "addresses": dict(self.addresses),
            "heard": self.last_event,
        }
        if value == self._saved:
            return
        held = find_record(self.core, MAP_LINK, self._key)
        self.core.store.commit([put_record(MAP_LINK, self._key, value, held, durable=False)])
        self._saved = value


def _correlation_key(sender: str, mailbox: str, correlation: str) -> str:
    """Return a key that is unique to a pair of sender and mailbox: others may use the same correlation id."""
    return blake2b(encode([sender, mailbox, correlation]), digest_size=16).hexdigest()


# -- the link

A_MOMENT = 0.5  # seconds for the end of a session
STEADY = 10.0  # seconds of a session after which the next pause is a short one again
LARGEST = 8 * 1024 * 1024  # bytes of one frame
ANSWER = 30.0  # seconds for one answer; the SDK's server may never give it
_ENDED = "the server closed the connection"
_CUT = (*CUT, MapRefusal, PostroomError)


def _retrieve_exception(task: asyncio.Future[None]) -> None:
    """Retrieve the error of a task, so that the event loop does not log it."""
    if not task.cancelled():
        task.exception()


class MapLink:
    """The link to one MAP server, made inside an event loop."""

    def __init__(self, executor: Executor, options: LinkOptions) -> None:
        self._executor = executor
        self._options = options
        core = self._core = executor.core
        name = peers.system_id(core, gives_way=True)
        self._memory = LinkMemory(core, options.server, name)
        self._woken = asyncio.Event()
        self._sender = LinkSender(executor)
        self._session: LinkSession | None = None
        self._problem = ""
        self.is_up = False

    def emitted(self, event: Event) -> None:
        """Pass an event on to the server, if it is of the link's scope and the link is up; it is kept nowhere."""
        if self.is_up and self._session is not None and event.scope == self._options.scope:
            self._session.emit(event)

    async def run(self) -> None:
        """Run sessions for ever; each kind of problem is logged once."""
        tries = 0
        with self._executor.listen((ROOM,)) as self._woken:
            while True:
                began = monotonic()
                try:
                    why = await self._run_session()
                except Exception:  # the link must be dialled again, whatever went wrong
                    log.exception("the link to the MAP server broke because of an internal error")
                    why = ""
                tries = 1 if monotonic() - began >= STEADY else tries + 1
                wait = pause(tries)
                self._report_problem(why, wait)
                await asyncio.sleep(wait)

    async def _run_session(self) -> str:
        """Run one session until the connection is lost; return why."""
        session = LinkSession(
            self._executor, self._options, self._memory, self._sender, self._woken, self._on_connected
        )
        self._session = session
        try:
            async with dial(self._options.server, LARGEST) as socket:
                return await self._run_connection(session, socket)
        except _CUT as cut:
            return str(cut) or type(cut).__name__
        finally:
            self.is_up = False
            with suppress(PostroomError):
                await self._executor.run_slow(lambda: link_directory.leave(self._core, list(session.remote)))
                await self._executor.run_slow(self._memory.save)

    async def _run_connection(self, session: LinkSession, socket: ClientConnection) -> str:
        rpc = RpcConnection(sender(socket), session.on_notification, ANSWER)
        reading = asyncio.ensure_future(read(rpc, socket))
        running = asyncio.ensure_future(session.run(rpc))
        for one in (reading, running):
            one.add_done_callback(_retrieve_exception)  # also if this task is cancelled just then
        try:
            await asyncio.wait((reading, running), return_when=asyncio.FIRST_COMPLETED)
            rpc.abort()
            self._woken.set()
            # The session stores what came, and fails the letter that it was sending.
            await asyncio.wait((running,))
        finally:
            rpc.abort()
            self._woken.set()
            await asyncio.wait((running,), timeout=A_MOMENT)
            running.cancel()
            reading.cancel()
            ended = await asyncio.gather(reading, running, return_exceptions=True)
        for wrong in ended:
            if isinstance(wrong, BaseException) and not isinstance(wrong, asyncio.CancelledError):
                raise wrong
        return _ENDED

    def _on_connected(self, agents: int) -> None:
        self.is_up = True
        self._problem = ""
        log.info("linked to a MAP server", extra={"server": self._options.server, "agents": agents})

    def _report_problem(self, why: str, wait: float) -> None:
        """Log a problem, once for each reason until the link is up again."""
        if why and why != self._problem:
            text = "there is no link to the MAP server: %s; the next try is in %.1f s, then later and later"
            log.warning(text, why, wait, extra={"server": self._options.server})
        self._problem = why
