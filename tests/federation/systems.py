"""Systems to test with: each is a room in a folder and `postroom serve` on it, in a process of its own."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import postroom
from postroom import Room
from postroom.core import peers
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.model.delivery import OPEN, Delivery
from postroom.model.peer import Peer
from postroom.model.query import Query
from tests.daemons import Daemon, free_port, until


class System:
    """Its room can be used whether it is served or not."""

    def __init__(self, folder: Path, name: str, *agents: str, **settings: str) -> None:
        self.folder = folder / name
        self.folder.mkdir()
        self.name = name
        self.port = free_port()
        self.settings = {"system": name, **settings}
        self.daemon: Daemon | None = None
        self.room: Room = postroom.open(f"sqlite:{self.folder / 'room.db'}", durability="process", **self.settings)
        for agent in agents:
            self.room.mailbox(agent).register()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/map"

    def trusts(self, other: str, **message: Any) -> str:
        """Adds a peer, or changes one; the token that it is to show here, if one was made."""
        values = {"exposure": "all", **message}
        return perform(self.room.core, OWNER, peers.AddPeer(system=other, fields=values, ours=self.name)).token

    def peer(self, other: str) -> Peer:
        return peers.known_peer(self.room.core, other)

    def serve(self, *options: str, faults: str = "") -> Self:
        """With faults, if there are to be any: see `faulty`."""
        message = [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        http = () if "--http" in options else ("--http", f"127.0.0.1:{self.port}")
        program = ("tests.federation.faulty", faults) if faults else ("postroom",)
        self.daemon = Daemon(self.folder, *http, *message, *options, program=program)
        return self

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.daemon is not None
        daemon, self.daemon = self.daemon, None
        return daemon.stop(number)

    def close(self) -> None:
        if self.daemon is not None:
            self.stop(signal.SIGKILL)
        self.room.close()

    # -- what happens

    def states(self) -> dict[str, str]:
        assert self.daemon is not None
        result = self.daemon.ask(action="links")
        return {link["system"]: link["state"] for link in result["links"]}

    def is_linked(self, *others: str) -> None:
        """Until there is a connection with each of them."""
        until(lambda: all(self.states().get(other) == "connected" for other in others))

    def texts(self, agent: str) -> list[str]:
        """Of all letters there, as they came."""
        found = self.room.core.store.find(Query(mailbox=agent, states=OPEN, order="age", limit=10_000))
        return [one.message.text for one in found]

    def delivery(self, id: str, mailbox: str) -> Delivery:
        (found,) = self.room.core.store.find(Query(mailbox=mailbox, message_ids=(id,)))
        return found.delivery

    def left(self, id: str, mailbox: str) -> bool:
        return self.delivery(id, mailbox).has_left


def join(caller: System, called: System, **agreed: Any) -> None:
    """The one dials the other; each sees all of the other's agents, unless it was agreed otherwise."""
    token = called.trusts(caller.name, **agreed)
    caller.trusts(called.name, url=called.url, token=token, **agreed)


@contextmanager
def systems(*made: System) -> Iterator[tuple[System, ...]]:
    try:
        yield made
    finally:
        for system in made:
            system.close()
