"""Peers to test with, as records."""

from __future__ import annotations

from postroom import Room
from postroom.model.codec import to_plain
from postroom.model.names import fold
from postroom.model.peer import Peer
from postroom.model.record import PEER, Record
from postroom.store.protocol import Put


def know_peer(room: Room, peer: Peer) -> Peer:
    """Write down a peer, or what is new about it."""
    store, key = room.core.store, fold(peer.system)
    held = store.records(PEER, key)
    revision = held[0].revision if held else 0
    store.commit([Put(record=Record(kind=PEER, key=key, value=to_plain(peer), revision=revision))])
    return peer
