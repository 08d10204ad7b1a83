"""The connection of agent-inbox, as a line to a peer: letters go as messages to an agent do.

It knows no receipt. So behind a letter goes a question, and its answer, also that there is no such method, comes
after the letter was handled. One goes before the first letter, too: agent-inbox hangs up its handler behind the
answer to its registration, and would lose what it reads before that.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from ..core import peers
from ..errors import Invalid, NotAllowed, PostroomError
from ..formats.federation import federation_error, messages_of
from ..formats.map import FIND, MESSAGE, PING, ROUTE
from . import exposure
from .connection import CUT, Line, LineLost, MapRefusal, WrongCertificate, dial, pause, read, sender, why
from .incoming import Serving, greet, knows_order, largest_of, reads, takes
from .link import End

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from websockets.asyncio.client import ClientConnection

    from ..server.executor import Executor
    from .link import Link


READY = 0.25  # seconds, after which the answer to its registration is on its way


class InboxLine(Line):
    def __init__(
        self,
        send: Callable[[dict[str, Any]], Awaitable[None]],
        received: Callable[[str, Mapping[str, Any]], None],
        patience: float,
    ) -> None:
        super().__init__(send, received, patience)
        self._ready_at = asyncio.get_running_loop().time() + READY
        self._is_ready = False
        self._beginning = asyncio.Lock()

    async def ask(self, method: str, /, **params: Any) -> dict[str, Any]:
        await self._begin()
        if method == FIND:  # it cannot be asked
            return {"has": False}
        if method != ROUTE:
            return await super().ask(method, **params)
        try:
            messages = messages_of(msgspec.json.decode(params["envelope"]))
        except Invalid as wrong:
            raise MapRefusal(federation_error(wrong)) from None
        for message in messages:
            await self.tell(MESSAGE, message=message)
        await self._has_read()
        return {"routed": True}

    async def _begin(self) -> None:
        async with self._beginning:
            if not self._is_ready:
                await asyncio.sleep(self._ready_at - asyncio.get_running_loop().time())
                await self._has_read()
                self._is_ready = True

    async def _has_read(self) -> None:
        """Until it has handled all that it was told so far."""
        with suppress(MapRefusal):
            await super().ask(PING)

    async def tell(self, method: str, /, **params: Any) -> None:
        """Of what systems tell each other it understands letters, and nothing else."""
        if self.lost.is_set():
            raise LineLost("the connection was cut")
        if method == MESSAGE:
            await super().tell(method, **params)


# The connection that we open to a peer: dial, greet, serve; after a cut dial again, later and later.

log = logging.getLogger("postroom")
ANSWER = 30.0  # seconds for one answer
STEADY = 10.0  # seconds of a connection after which the next waiting is a short one again; so it is after a letter


def place_of(url: str) -> str:
    """Where a post room speaks MAP, unless another place is named."""
    return f"{url.rstrip('/')}/map" if not urlsplit(url).path.strip("/") else url


class Own(Struct, frozen=True, kw_only=True):
    """What we are, to others."""

    system: str
    certificate: str = ""  # files that we show where a peer wants to see a certificate
    key: str = ""


class Dialler:
    """Of one link."""

    def __init__(self, executor: Executor, link: Link, own: Own) -> None:
        self._executor = executor
        self._link = link
        self._own = own

    async def run(self) -> None:
        """For ever. While the peer has dialled us, there is no need to."""
        tries = 0
        while True:
            await self._link.is_down.wait()
            began, carried = monotonic(), self._link.carried
            try:
                await self._visit()
            except WrongCertificate as wrong:
                await self._alert(wrong)
            except (*CUT, MapRefusal, PostroomError) as cut:
                self._link.complain(why(cut))
            except BaseException as fault:
                if not isinstance(fault, Exception):
                    raise
                log.exception("the link to the system %s broke by a fault of ours", self._link.system)
            is_of_use = monotonic() - began >= STEADY or self._link.carried > carried
            tries = 1 if is_of_use else tries + 1
            await self._link.sleep(pause(tries))

    async def _visit(self) -> None:
        peer, settings = self._link.peer, self._executor.room.settings
        shown = (self._own.certificate, self._own.key) if peer.auth == "mtls" else ("", "")
        largest = largest_of(settings)
        async with dial(place_of(peer.url), largest, pin=peer.pin, certificate=shown[0], key=shown[1]) as socket:
            await self._talk(socket)

    async def _talk(self, socket: ClientConnection) -> None:
        serving = Serving(self._executor, self._link, self._own.system)
        line = Line(sender(socket), serving.notified, ANSWER, serving.answer)
        reading = asyncio.ensure_future(read(line, socket))
        end = None
        try:
            result = await self._greet(line, reading)
            knows, largest, together = knows_order(result), reads(result), takes(result)
            end = End(line, reading.cancel, in_order=knows, largest=largest, together=together, is_dialled=True)
            serving.leave = reading.cancel
            self._link.join(end)
            await asyncio.wait((reading,))
            if not reading.cancelled():
                reading.result()
        finally:
            if end is not None:
                self._link.leave(end)
            line.cut()
            reading.cancel()
            with suppress(asyncio.CancelledError, *CUT):
                await reading

    async def _greet(self, line: Line, reading: asyncio.Future[None]) -> dict[str, Any]:
        """What it says of itself. A connection that ends meanwhile says why."""
        reading.add_done_callback(lambda _: line.cut())
        self._link.greeting(begins=True)
        try:
            return await self._meet(line)
        except LineLost:
            if reading.done() and not reading.cancelled():
                reading.result()
            raise
        finally:
            self._link.greeting(begins=False)

    async def _meet(self, line: Line) -> dict[str, Any]:
        peer, room = self._link.peer, self._executor.room
        shown = await self._executor.run_slow(partial(exposure.exposure, room, peer))
        result = await greet(line, peer, self._own.system, shown, room.settings)
        await self._executor.submit(partial(exposure.note, room._core, peer.system, result.get("exposure")))
        return result

    async def _alert(self, wrong: WrongCertificate) -> None:
        """Kept, so that people are told of it."""
        core, peer = self._executor.room._core, self._link.peer
        try:
            await self._executor.run_slow(partial(peers.check_certificate, core, peer, wrong.found))
        except NotAllowed as refused:
            self._link.complain(str(refused))
