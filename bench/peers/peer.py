"""What the comparison knows of each system: how to start it, send to it, receive from it, and stop it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

Send: TypeAlias = Callable[[bytes], object]  # returns once the message is acknowledged
Take: TypeAlias = Callable[[], bytes | None]  # receives and acknowledges one message; None: there is none

POWER = "a power cut"
KILL = "kill -9 only"


class Peer(Protocol):
    """Started by the one who compares; senders and receivers are made in processes of their own."""

    name: str
    survives: str  # what an acknowledged message outlives
    is_server: bool  # a program that clients connect to; else a library
    how: str  # the settings that matter
    syncs: str  # for a send / for a receive + ack, counted with strace

    def version(self) -> str: ...

    def start(self, folder: Path) -> str:
        """Start it, with its data in the folder; where its clients find it."""
        ...

    def sender(self, address: str) -> Send: ...

    def receiver(self, address: str) -> Take: ...

    def stop(self) -> None: ...


class Missing(Exception):
    """A peer that cannot be had on this machine, and why."""


class Embedded:
    """A library: there is nothing to start, and its clients find it by its folder."""

    is_server = False

    def start(self, folder: Path) -> str:
        """Open the queue once, which creates its files: not every peer survives eight processes doing so."""
        self.sender(str(folder))
        return str(folder)

    def sender(self, address: str) -> Send:
        raise NotImplementedError

    def stop(self) -> None:
        pass
