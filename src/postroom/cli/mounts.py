"""The commands that mount mail folders as systems."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from .. import service
from ..daemon.holding import served_at
from ..daemon.unit import absolute
from ..federation.mounted import forget
from ..model.codec import to_plain
from ..model.peer import shown
from .answers import Answer
from .escape import one_line
from .tables import hint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model.peer import Peer
    from ..room import Room
    from .answers import Screen
    from .context import Context


def run_mount(context: Context) -> Answer:
    place = absolute(context.get("place"))
    peer = context.act_in_room(partial(_mount, context, place))
    data = {
        "peer": to_plain(shown(peer)),
        "system": context.room.system,
        "socket": served_at(context.settings.store),
    }
    return Answer(context.name, data, _mounted)


def _mount(context: Context, place: str, room: Room) -> Peer:
    return service.mounting.mount(
        room._office,
        room.principal,
        context.get("as"),
        place,
        context.get("exposure", "all"),
        ours=room.system,
        room=context.settings.store,
    )


def run_unmount(context: Context) -> Answer:
    office, system = context.room._office, context.get("name")
    service.authorize.authorize(context.room.principal, "peers")
    peer = service.mounting.mounted(office, system)
    service.peers.remove(office, context.room.principal, system)
    told = forget(peer, context.room.system)
    return Answer(context.name, {"removed": peer.system, "told": told}, _unmounted)


def _mounted(screen: Screen, data: Mapping[str, Any]) -> str:
    name, ours = one_line(data["peer"]["system"]), one_line(data["system"])
    told = f"Agents there are AGENT@{name} here, and ours are AGENT@{ours} there.\n"
    if data["socket"]:
        return told
    return f"{told}Mail waits: nobody serves this room.\n" + hint(screen, "serve", "carries it")


def _unmounted(_screen: Screen, data: Mapping[str, Any]) -> str:
    left = "" if data["told"] else "The folder could not be told: it still names us.\n"
    return f"{one_line(data['removed'])} is no system any more.\n{left}"
