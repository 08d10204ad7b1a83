"""Is a peer there? How long a question takes, or what is wrong and what to do about it, in words for people."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ..lines.line import LineLost, MapRefusal
from ..wire.map_names import PING
from .remedies import remedy

if TYPE_CHECKING:
    from ..model.peer import Peer
    from .link import Link

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
    told: dict[str, Any] = {"system": peer.system, "state": "disconnected", "url": peer.url}
    return told | {"answers": False, "seconds": None, "problem": "it is not trusted", "hint": hint}


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
