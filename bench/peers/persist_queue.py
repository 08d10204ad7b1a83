"""persist-queue's SQLiteAckQueue, which keeps its promises for the threads of one process.

Two processes may be handed the same message: it looks for the next one, then marks it, in two steps.
"""

from __future__ import annotations

import sqlite3
from importlib import metadata

import persistqueue

from .peer import POWER, Embedded, Send, Take


class PersistQueue(Embedded):
    name = "persist-queue SQLiteAckQueue"
    survives = POWER
    how = "as it comes: WAL, synchronous=FULL; claim and ack are a synced commit each"
    syncs = "1 / 2"

    def version(self) -> str:
        return f"{metadata.version('persist-queue')}, SQLite {sqlite3.sqlite_version}"

    def sender(self, address: str) -> Send:
        put: Send = _queue(address).put
        return put

    def receiver(self, address: str) -> Take:
        queue = _queue(address)

        def take() -> bytes | None:
            try:
                found = queue.get(block=False, raw=True)
            except persistqueue.Empty:
                return None
            queue.ack(id=found["pqid"])
            body: bytes = found["data"]
            return body

        return take


def _queue(address: str) -> persistqueue.SQLiteAckQueue:
    """Without auto_resume: it would hand out again what other processes are at work on."""
    return persistqueue.SQLiteAckQueue(address, auto_resume=False, timeout=60)


PEERS = [PersistQueue()]
