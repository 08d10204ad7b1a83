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

from msgspec import Struct

from ..core import peers
from ..core.core import change_record, find_value
from ..errors import PostroomError
from ..federation.connection import CUT, MapRefusal, RpcConnection, dial, pause, read, sender
from ..model.codec import blake2b, encode
from ..model.record import MAP_LINK
from ..watcher import room_watch
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


class LinkMemory(Struct, kw_only=True):
    """The room's record of one server."""

    name: str  # our own there: the room may take the server's name later
    system: str = ""  # the server's name here
    seen: int = 0  # when its last stored message was sent: milliseconds, by its clock
    sent: dict[str, str] = {}  # our letters, by the server's ids and by `_correlation_key`
    writers: list[str] = []  # the most recent one last
    addresses: dict[str, str] = {}  # names of ours, by ids there
    heard: str = ""  # the last of its events that was read

    @classmethod
    def load(cls, core: Core, server: str, name: str) -> LinkMemory:
        return find_value(core, MAP_LINK, _record_key(server), cls) or cls(name=name)

    def save(self, core: Core, server: str) -> None:
        change_record(core, MAP_LINK, _record_key(server), LinkMemory, lambda _: self, durable=False)

    def note_sent(self, theirs: Any, ours: str) -> None:
        """Record the server's id of a letter of ours: answers name that one."""
        if isinstance(theirs, str):
            _note(self.sent, theirs, ours, MOST_SENT)

    def note_writer(self, name: str) -> None:
        """Record that an agent of ours wrote to the server."""
        self.writers = [*(one for one in self.writers if one != name), name][-MOST_WRITERS:]

    def note_address(self, id: str, name: str) -> None:
        """Record the id of an agent of ours there. Messages may go to it even when the agent has another."""
        if id != name:
            _note(self.addresses, id, name, MOST_ADDRESSES)

    def note_correlation(self, sender: str, mailbox: str, correlation: str, ours: str) -> None:
        """Record the correlation id by which a sender of ours knows the answer to a letter."""
        self.note_sent(_correlation_key(sender, mailbox, correlation), ours)

    def letter_for(self, sender: str, mailbox: str, correlation: str) -> str | None:
        """Return the letter that an answer with this correlation id, from that mailbox, belongs to."""
        return self.sent.get(_correlation_key(sender, mailbox, correlation))


def _record_key(server: str) -> str:
    return blake2b(server.encode(), digest_size=16).hexdigest()


def _note(known: dict[str, str], id: str, value: str, most: int) -> None:
    """Add an entry, unless its id is out of all bounds, and forget the oldest."""
    if 0 < len(id) <= LONGEST_ID:
        known[id] = value
    while len(known) > most:
        del known[next(iter(known))]


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
        self._memory = LinkMemory.load(core, options.server, name)
        self._resume = ""  # the resume token of the last session; it is not kept over a restart
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
        with room_watch(self._core, self._woken.set):
            while True:
                began = monotonic()
                try:
                    why = await self._run_session()
                except Exception:  # the link must be dialled again, whatever went wrong
                    log.exception("the link to the MAP server broke because of an internal error")
                    why = ""
                # A server that accepts and drops at once must not be dialled in a tight loop.
                tries = 1 if monotonic() - began >= STEADY else tries + 1
                wait = pause(tries)
                self._report_problem(why, wait)
                await asyncio.sleep(wait)

    async def _run_session(self) -> str:
        """Run one session until the connection is lost; return why."""
        session = LinkSession(
            self._executor,
            self._options,
            self._memory,
            self._sender,
            self._woken,
            self._on_connected,
            self._resume,
        )
        self._session = session
        try:
            async with dial(self._options.server, LARGEST) as socket:
                return await self._run_connection(session, socket)
        except _CUT as cut:
            return str(cut) or type(cut).__name__
        finally:
            self.is_up = False
            # Kept for the next dial: with it the server gives our agents their names back.
            self._resume = session.resume
            with suppress(PostroomError):
                await self._executor.run_slow(lambda: link_directory.leave(self._core, list(session.remote)))
                await self._executor.run_slow(lambda: self._memory.save(self._core, self._options.server))

    async def _run_connection(self, session: LinkSession, socket: ClientConnection) -> str:
        rpc = RpcConnection(sender(socket), session.on_notification, ANSWER)
        reading = asyncio.ensure_future(read(rpc, socket))
        running = asyncio.ensure_future(session.run(rpc))

        def cut(_: object = None) -> None:
            rpc.abort()
            self._woken.set()

        reading.add_done_callback(cut)
        for one in (reading, running):
            one.add_done_callback(_retrieve_exception)  # also if this task is cancelled just then
        try:
            # After a cut the session stores what came, and fails the letter that it was sending.
            await asyncio.wait((running,))
        finally:
            cut()
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
