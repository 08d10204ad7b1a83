"""What is remembered of a server between two visits, and after a restart: what it is called here, what we are
called there, up to when its messages were put down, what it calls the last letters that it took from us, and who
of ours wrote them.
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
from ..federation.connection import CUT, Line, MapRefusal, dial, pause, read, sender
from ..model.codec import blake2b, encode
from ..model.record import MAP_LINK
from ..store.notification import ROOM
from . import directory
from .carrier import Carrier
from .visit import Visit

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from ..core.core import Core
    from ..server.events import Event
    from ..server.executor import Executor
    from ..store.protocol import Watch
    from .visit import Wants


MOST_ADDRESSES = 1000  # ids that ours had there
MOST_WRITERS = 200  # the last of ours that wrote there, and are shown there for an answer
MOST_SENT = 1000  # letters that can be answered by the server's ids; older ones by ours
LONGEST_ID = 200


class Memory:
    """Of one server, by its address."""

    def __init__(self, core: Core, server: str, name: str) -> None:
        self._core = core
        self._key = blake2b(server.encode(), digest_size=16).hexdigest()
        kept = find_record(core, MAP_LINK, self._key)
        self._kept: dict[str, Any] = kept.value if kept is not None and isinstance(kept.value, dict) else {}
        self.name: str = self._kept.get("name", name)  # ours: the room may take the server's name as its own
        self.system: str = self._kept.get("system", "")
        self.seen: int = self._kept.get("seen", 0)  # milliseconds, by the server's clock
        self._ours: dict[str, str] = dict(self._kept.get("sent", {}))  # by the server's id
        self.writers: dict[str, None] = dict.fromkeys(self._kept.get("writers", ()))  # in order
        self.addresses: dict[str, str] = dict(self._kept.get("addresses", {}))  # names of ours, by their ids there
        self.last_event: str = self._kept.get("heard", "")  # the last of its events that was looked at
        self.resume = ""  # a token of the last session; worth nothing after a restart

    def called(self, name: str) -> None:
        """What it calls itself. The first name stays: mail waits under it."""
        self.system = self.system or name
        self.keep()

    def saw(self, at: int) -> None:
        self.seen = max(self.seen, at)

    def sent(self, theirs: Any, ours: str) -> None:
        """The server gave a letter of ours an id of its own. Who answers it names that one."""
        if isinstance(theirs, str) and 0 < len(theirs) <= LONGEST_ID:
            self._ours[theirs] = ours
        while len(self._ours) > MOST_SENT:
            del self._ours[next(iter(self._ours))]

    def wrote(self, name: str) -> None:
        """One of ours, to somebody there."""
        self.writers.pop(name, None)
        self.writers[name] = None
        while len(self.writers) > MOST_WRITERS:
            del self.writers[next(iter(self.writers))]

    def is_called(self, id: str, name: str) -> None:
        """One of ours, there and for now. Somebody may still write to that id when it has another."""
        if id != name and len(id) <= LONGEST_ID:
            self.addresses[id] = name
        while len(self.addresses) > MOST_ADDRESSES:
            del self.addresses[next(iter(self.addresses))]

    def remember_question(self, sender: str, mailbox: str, correlation: str, ours: str) -> None:
        """A sender of ours knows the answer to a letter by a word of its own."""
        self.sent(_word(sender, mailbox, correlation), ours)

    def asked_by(self, sender: str, mailbox: str, correlation: str) -> str | None:
        """The letter that is answered by this word, from that mailbox."""
        return self._ours.get(_word(sender, mailbox, correlation))

    def ours(self, id: str) -> str:
        """A letter's own id, by whichever id it is called."""
        return self._ours.get(id, id)

    def keep(self) -> None:
        value = {
            "name": self.name,
            "system": self.system,
            "seen": self.seen,
            "sent": dict(self._ours),
            "writers": list(self.writers),
            "addresses": dict(self.addresses),
            "heard": self.last_event,
        }
        if value == self._kept:
            return
        held = find_record(self._core, MAP_LINK, self._key)
        self._core.store.commit([put_record(MAP_LINK, self._key, value, held, durable=False)])
        self._kept = value


def _word(sender: str, mailbox: str, correlation: str) -> str:
    """Others may use the same word."""
    return blake2b(encode([sender, mailbox, correlation]), digest_size=16).hexdigest()


# The link for ever: dial, visit, and after a cut dial again, later and later, never all guests at once.

log = logging.getLogger("postroom")
A_MOMENT = 0.5  # seconds for the end of a visit
STEADY = 10.0  # seconds of a visit after which the next waiting is a short one again
LARGEST = 8 * 1024 * 1024  # bytes of one frame
ANSWER = 30.0  # seconds for one answer; the SDK's server may never give it
POLL = 1.0  # seconds between two looks where no bell can be heard
_ENDED = "the server closed the connection"
_CUT = (*CUT, MapRefusal, PostroomError)


def _looked_at(task: asyncio.Future[None]) -> None:
    """Its error is no news to the event loop."""
    if not task.cancelled():
        task.exception()


class MapLink:
    """Made inside an event loop."""

    def __init__(self, executor: Executor, wants: Wants) -> None:
        self._executor = executor
        self._wants = wants
        self._room = executor.room.acting_as(directory.LINK)
        core, named = self._room._core, self._room.settings.system
        name = peers.system_id(core, directory.LINK, named, gives_way=True)
        self._memory = Memory(core, wants.server, name)
        self._rang = asyncio.Event()
        self._carrier = Carrier(executor, self._room)
        self._visiting: Visit | None = None
        self._complaint = ""
        self.is_up = False

    def emitted(self, event: Event) -> None:
        """What somebody emits in the link's scope is told there, too, if the link is up; it is kept nowhere."""
        if self.is_up and self._visiting is not None and event.scope == self._wants.scope:
            self._visiting.emit(event)

    async def run(self) -> None:
        """For ever. What goes wrong is logged once, and tried again."""
        store = self._room._core.store
        watch = store.watch((ROOM,))
        poll = asyncio.ensure_future(self._listen(watch))
        tries = 0
        try:
            while True:
                began = monotonic()
                try:
                    why = await self._visit()
                except BaseException as fault:
                    if not isinstance(fault, Exception):
                        raise
                    log.exception("the link to the MAP server broke by a fault of ours")
                    why = ""
                tries = 1 if monotonic() - began >= STEADY else tries + 1
                wait = pause(tries)
                self._complain(why, wait)
                await asyncio.sleep(wait)
        finally:
            poll.cancel()
            if watch.fileno() >= 0:
                asyncio.get_running_loop().remove_reader(watch.fileno())
            watch.close()

    async def _visit(self) -> str:
        """Until the line is cut; gives back why."""
        visit = Visit(self._executor, self._wants, self._memory, self._carrier, self._rang, self._welcomed)
        self._visiting = visit
        try:
            async with dial(self._wants.server, LARGEST) as socket:
                return await self._talk(visit, socket)
        except _CUT as cut:
            return str(cut) or type(cut).__name__
        finally:
            self.is_up = False
            with suppress(PostroomError):
                await self._executor.run_slow(lambda: directory.leave(self._room, list(visit.there)))
                await self._executor.run_slow(self._memory.keep)

    async def _talk(self, visit: Visit, socket: ClientConnection) -> str:
        line = Line(sender(socket), visit.hear, ANSWER)
        reading = asyncio.ensure_future(read(line, socket))
        visiting = asyncio.ensure_future(visit.run(line))
        for one in (reading, visiting):
            one.add_done_callback(_looked_at)  # also where we are stopped just then
        try:
            await asyncio.wait((reading, visiting), return_when=asyncio.FIRST_COMPLETED)
            line.cut()
            await asyncio.wait(
                (visiting,)
            )  # it puts down what came, and says of the letter in hand that it failed
        finally:
            line.cut()
            await asyncio.wait((visiting,), timeout=A_MOMENT)
            visiting.cancel()
            reading.cancel()
            ended = await asyncio.gather(reading, visiting, return_exceptions=True)
        for wrong in ended:
            if isinstance(wrong, BaseException) and not isinstance(wrong, asyncio.CancelledError):
                raise wrong
        return _ENDED

    def _welcomed(self, agents: int) -> None:
        self.is_up = True
        self._complaint = ""
        log.info("linked to a MAP server", extra={"server": self._wants.server, "agents": agents})

    def _complain(self, why: str, wait: float) -> None:
        """Once for each reason, until we were welcome again."""
        if why and why != self._complaint:
            text = "there is no link to the MAP server: %s; the next try is in %.1f s, then later and later"
            log.warning(text, why, wait, extra={"server": self._wants.server})
        self._complaint = why

    async def _listen(self, watch: Watch) -> None:
        if watch.fileno() >= 0:
            asyncio.get_running_loop().add_reader(watch.fileno(), self._hear, watch)
            return
        while True:
            await asyncio.sleep(POLL)
            self._hear(watch)

    def _hear(self, watch: Watch) -> None:
        watch.rung()
        self._rang.set()
