"""The peers that take part, in the order of the table. A client process loads only its own peer's library."""

from __future__ import annotations

from importlib import import_module

from .peer import Peer

MODULES = {
    "ours": ["Postroom", "Postroom, durability=process"],
    "served": ["postroom serve"],
    "redis_streams": ["Redis Streams"],
    "postgres": ["PostgreSQL, lease in the row", "PostgreSQL, transaction held open"],
    "nats_jetstream": ["NATS JetStream"],
    "maildir": ["Maildir (standard library)"],
    "persist_queue": ["persist-queue SQLiteAckQueue"],
    "lite_queue": ["litequeue, synchronous=FULL", "litequeue as it comes"],
}
EMBEDDED, SERVER = "Postroom", "postroom serve"  # what libraries, and what servers, are compared with
OURS = {"ours", "served"}  # their modules, which always take part


def find(name: str) -> Peer:
    module = next(module for module, names in MODULES.items() if name in names)
    peers: list[Peer] = import_module(f".{module}", __package__).PEERS
    return next(peer for peer in peers if peer.name == name)
