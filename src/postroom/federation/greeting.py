"""The first words on a connection that we open: who we are, by which token, and whom the peer may know of here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import __version__
from ..lines.line import MapRefusal
from ..model.message import same_name
from ..wire.federation_problems import NOT_TRUSTED
from ..wire.map_names import CONNECT, GATEWAY, MEET, SOFTWARE, VERSION
from ..wire.session import ROOM_FOR_MORE

if TYPE_CHECKING:
    from ..lines.line import Line
    from ..model.peer import Peer
    from ..policy.limits import Limits

LARGEST, TOGETHER = "largest", "together"  # in what one post room tells another
MOST_TOGETHER = 32  # letters in one call: as long as it takes to write them, nobody else writes


async def greet(line: Line, peer: Peer, here: str, exposure: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """What it says of itself. MapRefusal: it does not let us in, or is another."""
    shown = {"method": peer.auth, "credential": peer.token} if peer.token else {}
    welcome = await line.ask(
        CONNECT, protocolVersion=VERSION, participantType=GATEWAY, name=here, **({"auth": shown} if shown else {})
    )
    if "authRequired" in welcome and not welcome.get("sessionId"):
        raise MapRefusal(welcome.get("error") or _no("it does not know us by what we show"))
    proof = {"auth": {"method": peer.auth, "credentials": peer.token}} if peer.token else {}
    told = await line.ask(MEET, systemId=here, endpoint="", exposure=exposure, **of_ours(limits), **proof)
    if told.get("connected") is not True:
        raise MapRefusal(told.get("error") or _no("it does not connect"))
    named = told.get("systemId", peer.system)
    if not isinstance(named, str) or not same_name(named, peer.system):
        raise MapRefusal(_no(f"it is called {named!a} and not {peer.system!r}"))
    return told


def largest_of(limits: Limits) -> int:
    """Bytes of a frame that we read."""
    return limits.max_message_bytes + ROOM_FOR_MORE


def of_ours(limits: Limits) -> dict[str, Any]:
    """What one post room tells another of itself."""
    return {SOFTWARE: {"version": __version__, LARGEST: largest_of(limits), TOGETHER: MOST_TOGETHER}}


def knows_order(told: dict[str, Any]) -> bool:
    """Is it one of ours, and heeds `after`?"""
    return isinstance(told.get(SOFTWARE), dict)


def reads(told: dict[str, Any]) -> int | None:
    """How many bytes it reads in one frame; None: it does not say so."""
    return _number(told, LARGEST)


def takes(told: dict[str, Any]) -> int:
    """How many letters it takes in one call."""
    return min(_number(told, TOGETHER) or 1, MOST_TOGETHER)


def _number(told: dict[str, Any], name: str) -> int | None:
    said = told[SOFTWARE].get(name) if knows_order(told) else None
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None


def _no(why: str) -> dict[str, Any]:
    return {"code": NOT_TRUSTED, "message": why}
