"""The room in a mounted folder: opened, told who mounted it, and watched for being there. On a desk's threads."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import service
from ..clock import SystemClock
from ..errors import Conflict, LookAlike, Missing, NameTaken, PostroomError, StoreFailing
from ..model.message import same_name
from ..model.peer import EVERYWHERE, Peer
from ..policy.trust import route_to, strategy_of
from ..room import chosen_settings, open_with
from ..room import open as open_room
from ..service.authorize import OWNER
from ..store.base import Introduce
from ..store.files.store import FileStore
from ..store.opening import place_of
from . import guests

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..room import Room
    from ..settings import Settings

_ITS_OWN = frozenset({"store", "system", "file_root"})  # settings that each room has for itself


class Folder:
    """One that is open, as a system."""

    def __init__(self, room: Room, system: str, host: str, place: str) -> None:
        self.room = room
        self.system = system
        self._host = host
        self._place = place
        self._was = _identity(place)

    def check(self) -> None:
        """Refuse to go on where it was taken away, or another stands in its place."""
        if _identity(self._place) != self._was:
            raise StoreFailing(f"{self._place} is gone, or was replaced", field="place")

    def host(self) -> Peer:
        """Who mounted it, as its own programs know it."""
        return service.peers.known_peer(self.room._office, self._host)

    def is_host(self, peer: Peer) -> bool:
        return same_name(peer.system, self._host) and _mounts_us(peer)

    def leads_by_host(self, peers: Mapping[str, Peer], system: str) -> bool:
        """Is it ours to carry? A room may have peers of its own, or be mounted by two: one of them carries it."""
        first = route_to(peers, system, strategy_of(self.room._office.limits))
        return first is not None and self.is_host(first)

    def acquaint(self, names: Sequence[str]) -> None:
        """Whoever has a folder there is somebody, though nobody ever saw it do anything."""
        store = self.room._office.store
        if not isinstance(store, FileStore):
            return
        new = [name for name in names if name and store.has_folder(name) and not store.is_known(name)]
        with suppress(NameTaken, LookAlike):  # it reads like another's: that is told when the letter comes
            if new:
                store.commit([Introduce(name, known=True) for name in new])


def opened(peer: Peer, here: str, settings: Settings) -> Folder:
    """The room of a mount, which must be there: mounting makes no folder."""
    place = os.path.realpath(place_of(peer.place) or "")
    if _identity(place) is None:
        raise Missing(f"{place} is not there", field="place", hint="it is used as soon as it is back")
    same = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in _ITS_OWN}
    room = open_with(chosen_settings(peer.place, {**same, "system": peer.system}), SystemClock(), makes=False)
    try:
        introduce(room, peer.system, here)
        return Folder(room, peer.system, here, place)
    except BaseException:
        room.close()
        raise


def introduce(room: Room, system: str, here: str) -> None:
    """Tell the programs that use this room what it is called, and by whom all others are reached."""
    office = room._office
    held = service.peers.peer(office, here)
    if held is not None and not _mounts_us(held):
        told = f"the room has a peer {here!r} of its own"
        raise Conflict(told, field="place", hint=f"there: postroom peers remove {here}")
    service.identity.adopt(office, OWNER, system)
    host = Peer(system=here, is_mount=True, exposure="all", relays_for=(EVERYWHERE,))
    if held != host:
        service.peers.put(office, OWNER, host, ours=system)


def forget(peer: Peer, here: str) -> bool:
    """Nobody mounts it any more. Could it be told?"""
    try:
        if _identity(place_of(peer.place) or "") is None:
            return False
        with open_room(peer.place) as room:
            held = service.peers.peer(room._office, here)
            if held is not None and _mounts_us(held):
                service.peers.remove(room._office, OWNER, here)  # first: a daemon may be showing some just now
            guests.show(room, here, [])
    except (PostroomError, OSError):
        return False
    return True


def _mounts_us(peer: Peer) -> bool:
    return peer.is_mount and not peer.place


def _identity(place: str) -> tuple[int, int] | None:
    try:
        found = os.stat(place)
    except OSError:
        return None
    return found.st_dev, found.st_ino
