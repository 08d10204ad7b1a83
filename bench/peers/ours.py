"""Postroom itself: one room, one mailbox that all send to and all receive from."""

from __future__ import annotations

from pathlib import Path

import apsw

import postroom

from .peer import KILL, POWER, Embedded, Send, Take

READER = "reader"


class Postroom(Embedded):
    def __init__(self, name: str, durability: str) -> None:
        self.name = name
        synced = durability == "power"
        self.survives = POWER if synced else KILL
        kept = "synced; a claim is not: it may lapse" if synced else "handed to the operating system"
        self.how = f"durability={durability}: send and ack are {kept}"
        self.syncs = "1 / 1" if synced else "0 / 0"
        self._durability = durability

    def version(self) -> str:
        return version()

    def sender(self, address: str) -> Send:
        mailbox = self._room(address).mailbox("writer")
        return lambda body: mailbox.send(READER, body.decode())

    def receiver(self, address: str) -> Take:
        mailbox = self._room(address).mailbox(READER)

        def take() -> bytes | None:
            work = mailbox.claim()
            if work is None:
                return None
            work.ack()
            return work.text.encode()

        return take

    def _room(self, address: str) -> postroom.Room:
        return postroom.open(str(Path(address) / "room.db"), durability=self._durability)


def version() -> str:
    return f"{postroom.__version__}, SQLite {apsw.sqlitelibversion()}"


PEERS = [
    Postroom("Postroom", "power"),
    Postroom("Postroom, durability=process", "process"),
]
