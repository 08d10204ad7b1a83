"""Foreign mail folders as systems: which are mounted, and under which names. A running post room links them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from .. import service
from ..errors import BadStore, Conflict, Missing, NameTaken
from ..model.peer import Peer
from ..store.opening import check_usable, is_there, place_of

if TYPE_CHECKING:
    from ..model.peer import Exposure
    from .authorize import Principal
    from .office import Office


def mount(
    office: Office, caller: Principal, system: str, place: str, exposure: Exposure = "all", *, ours: str, room: str
) -> Peer:
    """The room at `place` is a system from now on. `ours` is what this one is called, `room` its own address."""
    _check_place(place, room)
    for other in service.peers.all_peers(office).values():
        if other.place and _same(other.place, place) and other.system.lower() != system.lower():
            hint = f"postroom unmount {other.system}"
            raise NameTaken(f"{place} is mounted as {other.system!r}", field="place", hint=hint)

    def step(before: Peer | None) -> Peer:
        if before is not None and not before.place:
            hint = f"another name, or postroom peers remove {system}"
            raise Conflict(f"{system!r} is a peer that is no folder", field="as", hint=hint)
        kept = before or Peer(system=system, auth="none", is_mount=True, relays_to=True)
        return replace(kept, place=place, exposure=exposure, tags=())

    return service.peers.change(office, caller, system, step, ours=ours)


def mounted(office: Office, system: str) -> Peer:
    """The mount of this name, or Missing."""
    found = service.peers.known_peer(office, system)
    if not found.place:
        raise Missing(f"{system!r} is no mounted folder", field="system", hint=f"postroom peers remove {system}")
    return found


def _check_place(place: str, room: str) -> None:
    if place_of(place) is None:
        raise BadStore("a room in memory is this process's alone", field="place", hint="files:… or sqlite:…")
    if not is_there(place):
        raise Missing(f"{place_of(place)} is not there", field="place", hint="mounting makes no folder")
    if _same(place, room):
        raise Conflict("it is the room itself", field="place", hint="name the folder of another system")
    check_usable(place)


def _same(first: str, second: str) -> bool:
    places = [os.path.realpath(place) for one in (first, second) if (place := place_of(one))]
    return len(places) == 2 and places[0] == places[1]
