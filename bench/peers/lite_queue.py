"""litequeue, as it comes, and with one more pragma: as it comes, it does not sync its commits."""

from __future__ import annotations

import sqlite3
from importlib import metadata
from pathlib import Path

import litequeue

from .peer import KILL, POWER, Embedded, Send, Take


class LiteQueue(Embedded):
    def __init__(self, name: str, synchronous: str) -> None:
        self.name = name
        self.survives = POWER if synchronous == "FULL" else KILL
        self.how = f"WAL, synchronous={synchronous}; claim and ack are a commit each"
        self.syncs = "1 / 2" if synchronous == "FULL" else "0 / 0"
        self._synchronous = synchronous

    def version(self) -> str:
        return f"{metadata.version('litequeue')}, SQLite {sqlite3.sqlite_version}"

    def sender(self, address: str) -> Send:
        queue = self._queue(address)
        return lambda body: queue.put(body.decode())

    def receiver(self, address: str) -> Take:
        queue = self._queue(address)

        def take() -> bytes | None:
            found = queue.pop()
            if found is None:
                return None
            queue.done(found.message_id)
            return bytes(found.data, "utf-8")

        return take

    def _queue(self, address: str) -> litequeue.LiteQueue:
        queue = litequeue.LiteQueue(Path(address) / "queue.db", timeout=60)
        queue.conn.execute(f"PRAGMA synchronous = {self._synchronous}")
        return queue


PEERS = [
    LiteQueue("litequeue, synchronous=FULL", "FULL"),
    LiteQueue("litequeue as it comes", "NORMAL"),
]
