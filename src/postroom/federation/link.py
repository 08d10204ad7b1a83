"""The link to one peer: its connections, whichever side opened them, and its problem while there is none.

`remedy` and `ping` explain a link that is down in words for people; they decide nothing.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from enum import StrEnum
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from ..formats.map import PING
from ..model.message import same_name
from .connection import ConnectionLost, MapRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model.peer import Peer
    from ..model.query import Found
    from ..server.executor import Executor
    from .connection import RpcConnection


log = logging.getLogger("postroom")
_BRING = "shows a token for us; bring it here: postroom peers add"
_RENEWED = f"over there postroom peers trust {{here}} --rotate {_BRING} {{system}} --token-file -"
_SHOW_OURS = (
    "here: postroom serve with --tls-cert and --tls-key; over there: postroom peers trust {here} --certificate"
    " FILE, with that certificate"
)
_CUT = "the line was cut; it is called again by itself, within a minute. postroom peers ping {system} calls it now"
_NOT_UP = "is postroom serve running there, and is {url} its address?"
_SILENT = "nothing answers at {url}: is that machine on, its network up and its port open?"


class Remedy(Struct, frozen=True):
    """Advice for a problem whose text contains `word`; `auth`: only for peers that prove themselves so."""

    word: str
    what: str
    auth: str = ""


# The first match counts.
REMEDIES = (
    Remedy(
        "has changed",
        "if its operator changed it: postroom peers trust {system}; else this is another machine",
    ),
    Remedy(
        "CERTIFICATE_VERIFY_FAILED",
        "no certificate of it is pinned, and no trusted authority has signed it: postroom peers trust"
        " {system} reads the certificate that it presents and pins it",
    ),
    Remedy(
        "WRONG_VERSION_NUMBER",
        "there is no TLS at {url}; over there: postroom serve with --tls-cert and --tls-key",
    ),
    Remedy(
        "it is called",
        "add it by that name, and remove {system} here: over there postroom peers trust {here} --rotate"
        f" {_BRING} ITS-NAME --url {{url}} --token-file -",
    ),
    Remedy(
        "this connection is",
        "our token was made for another name than ours, {here}: over there postroom peers add {here}"
        f" {_BRING} {{system}} --token-file -",
    ),
    Remedy("does not know us", _SHOW_OURS, auth="mtls"),
    Remedy("valid HTTP response", _SHOW_OURS, auth="mtls"),
    Remedy("alert", _SHOW_OURS, auth="mtls"),
    Remedy("valid HTTP response", "does it speak TLS? Then its url begins with wss://, not with ws://"),
    Remedy("(invalid_credentials)", "our token is not good there, or not any more: " + _RENEWED),
    Remedy("(5002)", "it does not trust us: " + _RENEWED),
    Remedy("(1006)", "it does not trust us: " + _RENEWED),
    Remedy(
        "HTTP 403",
        "it does not know the name by which {url} calls it (the Host header); over there: postroom serve"
        " --http-name {host}, or {host}:PORT for a port that is forwarded to another number",
    ),
    Remedy("HTTP", "is {url} a post room, with --map on?"),
    Remedy("close frame", _CUT),
    Remedy("closed the connection", _CUT),
    Remedy("received 1", _CUT),
    Remedy("refused", _NOT_UP),
    Remedy("Connect call failed", _NOT_UP),
    Remedy("Name or service", "is {url} its address? No machine of that name is known"),
    Remedy("timed out", _SILENT),
    Remedy("no answer", _SILENT),
    Remedy("unreachable", _SILENT),
    Remedy("No route", _SILENT),
    Remedy("", "postroom peers show {system}; and the log of postroom serve, on both sides"),
)


def remedy(peer: Peer, here: str, problem: str) -> str:
    """Return what to do about a problem. `here`: our own system name."""
    if peer.is_dialled:
        what = next(one.what for one in REMEDIES if one.word in problem and one.auth in {"", peer.auth})
    elif peer.place:
        what = "is the folder there, and is it ours to use? postroom peers show {system}"
    elif "no answer" in problem:
        what = "is that machine on, and its network up? It calls again by itself"
    else:
        what = "over there: postroom peers ping {here}, which calls us; does it know our address, and its token?"
    host = urlsplit(peer.url).hostname
    return what.format(system=peer.system, url=peer.url, host=host, here=here)


# -- the link

MOST_EXCLUDED = 10_000  # deliveries that one link remembers


class LinkState(StrEnum):
    CONNECTED = "connected"
    AUTHENTICATING = "authenticating"
    DISCONNECTED = "disconnected"


class PeerConnection:
    """One connection on which the peer has proven who it is. `close` ends it."""

    def __init__(
        self,
        rpc: RpcConnection,
        close: Callable[[], object],
        *,
        in_order: bool,
        largest: int | None = None,
        together: int = 1,
        is_dialled: bool = False,
    ) -> None:
        self.rpc = rpc
        self.close = close
        self.is_dialled = is_dialled  # did we open it?
        self.largest = largest  # bytes of a frame that it reads; None: nobody knows
        self.together = together  # letters that it takes in one call
        self.in_order = in_order  # does it know `after`, as a Postroom does? Else letters go one by one


class Link:
    """The link to one peer, made inside an event loop. `changed` is called when a connection comes or goes."""

    def __init__(self, executor: Executor, peer: Peer, here: str, changed: Callable[[], object]) -> None:
        self.executor = executor
        self.core = executor.core
        self.here = here  # our own system name
        self.peer = peer
        self._changed = changed
        self._connections: list[PeerConnection] = []
        self.is_in_handshake = False
        self.problem = ""  # why there is no connection; empty while there is one
        self.is_down = asyncio.Event()
        self.is_down.set()
        self._retry = asyncio.Event()
        self._change = asyncio.Event()  # the next one: a connection, or a failed try
        self.waiting: dict[str, str] = {}  # mailboxes with mail that goes by this link, and the system of each
        self.has_mail = asyncio.Event()  # set where the courier shall look again
        self.has_news = False  # has it announced other agents than before, which other peers were not told yet?
        self.tries = 0  # failed ones
        self.was_up = False  # was there ever a connection?
        self.sent = self.taken = 0  # letters, since the server started
        self._excluded: dict[tuple[str, str], None] = {}  # deliveries that it refused, and another peer may take

    @property
    def system(self) -> str:
        return self.peer.system

    @property
    def state(self) -> LinkState:
        if self._connections:
            return LinkState.CONNECTED
        return LinkState.AUTHENTICATING if self.is_in_handshake else LinkState.DISCONNECTED

    @property
    def why_down(self) -> str:
        """Why there is no connection, if there is none, in any case in some words."""
        if self.problem:
            return self.problem
        if self.peer.is_dialled or self.peer.place:
            return "no answer"
        return "the line was cut, and it has not called again" if self.was_up else "it has not called us"

    @property
    def connection(self) -> PeerConnection | None:
        """The connection to send on: the one that was opened last."""
        return self._connections[-1] if self._connections else None

    def exclude(self, found: Found) -> None:
        """Record that the peer refused a letter whose recipient may be elsewhere, too.

        The oldest entries are forgotten; then the peer is asked once more.
        """
        self._excluded[found.message.id, found.delivery.mailbox] = None
        while len(self._excluded) > MOST_EXCLUDED:
            del self._excluded[next(iter(self._excluded))]

    def excludes(self, found: Found) -> bool:
        return (found.message.id, found.delivery.mailbox) in self._excluded

    def takes(self, found: Found) -> bool:
        """Return whether a letter may go here: not if another system may have it, or if this one refused it."""
        holder = found.delivery.given_to
        return (not holder or same_name(holder, self.system)) and not self.excludes(found)

    def join(self, connection: PeerConnection) -> None:
        """Add a connection. An older one that the same side opened is lost, though we may not have noticed yet."""
        # Both sides may dial at once. Each keeps one connection of either direction, so neither ends the one
        # that the other has chosen.
        for other in [one for one in self._connections if one.is_dialled == connection.is_dialled]:
            self._connections.remove(other)
            # First the calls, which are repeated on the new connection; closing may take its time.
            other.rpc.abort()
            other.close()
        self._connections.append(connection)
        self.has_news = True
        self.problem = ""
        self.was_up = True
        self.is_down.clear()
        log.info("linked to the system %s", self.system)
        self._notify_change()
        self._changed()

    def leave(self, connection: PeerConnection) -> None:
        """Remove a connection that was cut. Calls without an answer are repeated on the next."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        connection.rpc.abort()
        if not self._connections:
            self.is_down.set()
            log.info("the link to the system %s is cut", self.system)
        self._changed()

    def give_up(self, connection: PeerConnection) -> None:
        """End a connection whose peer does not answer or does not trust us."""
        if connection in self._connections:
            self.leave(connection)
            connection.close()

    def drop(self) -> None:
        """End all connections."""
        for connection in list(self._connections):
            self.give_up(connection)

    async def sleep(self, seconds: float) -> None:
        """Wait before the next try; `retry_now` ends the wait."""
        self._retry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._retry.wait()

    def retry_now(self) -> None:
        self._retry.set()

    async def next_change(self) -> None:
        """Wait until it is connected, or a try has failed."""
        await self._change.wait()

    def _notify_change(self) -> None:
        # Everybody who waits is woken once, and the next ones wait for an event of their own.
        self._change.set()
        self._change = asyncio.Event()

    def report_problem(self, why: str) -> None:
        """Record why there is no connection, and log it once."""
        if why != self.problem:
            log.warning("there is no link to the system %s: %s", self.system, why)
            self._changed()
        self.problem = why
        self.tries += 1
        self._notify_change()

    def describe(self) -> dict[str, Any]:
        """Return the state of the link, for people."""
        return {
            "state": str(self.state),
            "problem": self.problem or None,
            "sent": self.sent,
            "taken": self.taken,
        }


# -- ping

PATIENCE = 5.0  # seconds for a connection, and for an answer


async def ping(link: Link, here: str) -> dict[str, Any]:
    """Call a peer and return the round-trip time, or what is wrong; dial it at once if there is no connection.

    `here`: our own system name.
    """
    if link.connection is None and (link.peer.is_dialled or link.peer.place):
        # A try counts as soon as it fails, so that a peer that is down is reported at once and not after
        # PATIENCE.
        before = link.tries
        link.retry_now()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while link.connection is None and link.tries == before:
                    await link.next_change()
    connection, began, problem = link.connection, perf_counter(), ""
    if connection is None:
        problem = link.why_down
    else:
        try:
            async with asyncio.timeout(PATIENCE):
                await connection.rpc.call(PING)
        except MapRefusal as refused:  # a peer that does not know the method has answered, too
            if link.peer.place:
                link.give_up(connection)
                problem = str(refused)
        except ConnectionLost:
            problem = link.problem or "the line was cut while it was asked, without a close frame"
        except TimeoutError:
            problem = f"no answer in {PATIENCE:g} s"
    if problem:
        return report(link.peer, link.state, problem, remedy(link.peer, here, problem))
    return report(link.peer, link.state, seconds=perf_counter() - began)


def report(
    peer: Peer, state: LinkState, problem: str | None = None, hint: str | None = None, seconds: float | None = None
) -> dict[str, Any]:
    """Return the result of a ping."""
    return {
        "system": peer.system,
        "state": str(state),
        "url": peer.url,
        "answers": problem is None,
        "seconds": seconds,
        "problem": problem,
        "hint": hint,
    }
