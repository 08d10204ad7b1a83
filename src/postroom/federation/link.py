"""What to do about a link that is down: one remedy for each cause, in words for people. Decides nothing."""

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
from .connection import LineLost, MapRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..model.peer import Peer
    from ..model.query import Found
    from .connection import Line


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
    """What helps where the problem holds this word; `auth`: only where each proves itself so."""

    word: str
    what: str
    auth: str = ""


# The first that fits counts.
REMEDIES = (
    Remedy(
        "has changed",
        "if its operator changed it: postroom peers trust {system}; else somebody stands in between",
    ),
    Remedy(
        "CERTIFICATE_VERIFY_FAILED",
        "no certificate of it is pinned, and nobody whom this machine trusts vouches for it: postroom peers trust"
        " {system} looks at the one that it shows, and insists on it",
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
    """`here`: what we are called."""
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


# One peer: its connections, whoever opened them, and what is known of it while there is none.

log = logging.getLogger("postroom")
MOST_BARRED = 10_000


class LinkState(StrEnum):
    CONNECTED = "connected"
    AUTHENTICATING = "authenticating"
    DISCONNECTED = "disconnected"


class End:
    """Our end of one connection, on which the peer has proven who it is. `close` ends the connection."""

    def __init__(
        self,
        line: Line,
        close: Callable[[], object],
        *,
        in_order: bool,
        largest: int | None = None,
        together: int = 1,
        is_dialled: bool = False,
    ) -> None:
        self.line = line
        self.close = close
        self.is_dialled = is_dialled  # did we open it?
        self.largest = largest  # bytes of a frame that it reads; None: nobody knows
        self.together = together  # letters that it takes in one call
        self.in_order = in_order  # does it know `after`? Else letters of one pair go one by one


class Link:
    """Made inside an event loop."""

    def __init__(self, peer: Peer, changed: Callable[[], object]) -> None:
        self.peer = peer
        self._changed = changed
        self._ends: list[End] = []
        self._greeting = 0
        self._complaint = ""
        self.is_down = asyncio.Event()
        self.is_down.set()
        self._hurry = asyncio.Event()
        self._news: asyncio.Future[None] | None = None
        self.waiting: dict[str, str] = {}  # mailboxes with mail for it, and the system where each is
        self.has_news = False  # did it tell of other agents than before, of which nobody else was told yet?
        self.tries = 0  # in vain
        self.was_up = False  # was there ever a connection?
        self.noted = 0.0  # when it was written down, by the loop's time, who is there
        self.sent = self.taken = 0  # letters, since we opened
        self._barred: dict[tuple[str, str], None] = {}  # deliveries that it refused, and another may take

    @property
    def system(self) -> str:
        return self.peer.system

    @property
    def carried(self) -> int:
        """Letters, either way."""
        return self.sent + self.taken

    @property
    def state(self) -> LinkState:
        if self._ends:
            return LinkState.CONNECTED
        return LinkState.AUTHENTICATING if self._greeting else LinkState.DISCONNECTED

    @property
    def problem(self) -> str:
        """Why there is no connection."""
        return self._complaint

    @property
    def end(self) -> End | None:
        """The connection to send on: the one that came last."""
        return self._ends[-1] if self._ends else None

    def bar(self, found: Found) -> None:
        """It refused this letter to somebody who may be elsewhere, too. Forgotten, it is asked once more."""
        self._barred[found.message.id, found.delivery.mailbox] = None
        while len(self._barred) > MOST_BARRED:
            del self._barred[next(iter(self._barred))]

    def bars(self, found: Found) -> bool:
        return (found.message.id, found.delivery.mailbox) in self._barred

    def greeting(self, *, begins: bool) -> None:
        """Somebody says who it is, or is done with that."""
        self._greeting += 1 if begins else -1

    def join(self, end: End) -> None:
        """A peer that dials anew has lost the connection that it dialled before, though we may not know it yet."""
        for other in [one for one in self._ends if one.is_dialled == end.is_dialled]:
            self._ends.remove(other)
            other.line.cut()
            other.close()
        self._ends.append(end)
        self.has_news = True
        self._complaint = ""
        self.was_up = True
        self.is_down.clear()
        log.info("linked to the system %s", self.system)
        self._tell()
        self._changed()

    def leave(self, end: End) -> None:
        """It was cut. What was not answered on it is sent again on the next."""
        if end not in self._ends:
            return
        self._ends.remove(end)
        end.line.cut()
        if not self._ends:
            self.is_down.set()
            log.info("the link to the system %s is cut", self.system)
        self._changed()

    def give_up(self, end: End) -> None:
        """It does not answer, or does not trust us: the connection is ended, unless it only parted from us."""
        if end in self._ends:
            self.leave(end)
            end.close()

    def drop(self) -> None:
        """It is not to be spoken with any more."""
        for end in list(self._ends):
            self.give_up(end)

    async def sleep(self, seconds: float) -> None:
        """Before the next try; less, if somebody wants to know."""
        self._hurry.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()

    def hurry(self) -> None:
        self._hurry.set()

    async def news(self) -> None:
        """Until it is connected, or a try failed."""
        if self._news is None:
            self._news = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._news)

    def _tell(self) -> None:
        news, self._news = self._news, None
        if news is not None:
            news.set_result(None)

    def complain(self, why: str) -> None:
        """Why there is no link; the log says it once."""
        if why != self._complaint:
            log.warning("there is no link to the system %s: %s", self.system, why)
        self._complaint = why
        self.tries += 1
        self._tell()

    def describe(self) -> dict[str, Any]:
        """For people."""
        return {
            "state": str(self.state),
            "problem": self._complaint or None,
            "sent": self.sent,
            "taken": self.taken,
        }


# Is a peer there? How long a question takes, or what is wrong and what to do about it, in words for people.

PATIENCE = 5.0  # seconds for a connection, and for an answer


async def ping(link: Link, here: str) -> dict[str, Any]:
    """One that is not connected is dialled at once. `here`: what we are called."""
    if link.end is None and (link.peer.is_dialled or link.peer.place):
        await _dialled(link)
    end = link.end
    if end is None:
        return _down(link, here, link.problem or _absent(link))
    began = perf_counter()
    try:
        async with asyncio.timeout(PATIENCE):
            await end.line.ask(PING)
    except MapRefusal as refused:  # that it does not know the word is an answer
        if link.peer.place:
            link.give_up(end)
            return _down(link, here, str(refused))
    except LineLost:
        return _down(link, here, link.problem or "the line was cut while it was asked, without a close frame")
    except TimeoutError:
        return _down(link, here, f"no answer in {PATIENCE:g} s")
    return _told(link) | {"answers": True, "seconds": perf_counter() - began, "problem": None, "hint": None}


def not_trusted(peer: Peer) -> dict[str, Any]:
    hint = f"postroom peers trust {peer.system}"
    result: dict[str, Any] = {"system": peer.system, "state": "disconnected", "url": peer.url}
    return result | {"answers": False, "seconds": None, "problem": "it is not trusted", "hint": hint}


async def _dialled(link: Link) -> None:
    before = link.tries
    link.hurry()
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while link.end is None and link.tries == before:
                await link.news()


def _told(link: Link) -> dict[str, Any]:
    return {"system": link.system, "state": str(link.state), "url": link.peer.url}


def _absent(link: Link) -> str:
    if link.peer.is_dialled or link.peer.place:
        return "no answer"
    return "the line was cut, and it has not called again" if link.was_up else "it has not called us"


def _down(link: Link, here: str, problem: str) -> dict[str, Any]:
    hint = remedy(link.peer, here, problem)
    return _told(link) | {"answers": False, "seconds": None, "problem": problem, "hint": hint}
