"""A mail folder of a design, and a post room that mounted it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import postroom
from postroom import Room
from postroom.core import peers
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.model.peer import Peer
from postroom.store.files.layouts.base import Layout
from tests.federation.systems import System


def mount(home: System, place: str, name: str = "folder", **message: Any) -> None:
    perform(
        home.room.core, OWNER, peers.Mount(system=name, place=place, ours=home.name, room="memory:", **message)
    )


class Mounted:
    def __init__(self, home: System, root: Path, layout: Layout, name: str = "folder") -> None:
        self.home, self.root, self.layout = home, root, layout
        self.address = f"files:{root}?layout={layout.name}"
        root.mkdir()
        with self.room() as room:
            room.mailbox("researcher").register()
        mount(home, self.address, name)

    @contextmanager
    def room(self) -> Iterator[Room]:
        """As a program of ours uses it that knows nothing of the mount."""
        with postroom.open(self.address, durability="process") as room:
            yield room

    def texts(self, agent: str = "researcher") -> list[str]:
        with self.room() as room:
            return [one.text for one in room.mailbox(agent).check(unread_only=False, limit=10_000)]

    def host(self) -> Peer | None:
        with self.room() as room:
            return peers.peer(room.core, self.home.name)
