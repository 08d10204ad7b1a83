"""Agents of the room that mounted a folder stand in the folder's directory, and are still not its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom import Room
from postroom.core import peers
from postroom.core.arrivals import accept
from postroom.core.verb import perform
from postroom.errors import Conflict, UnknownAgent
from postroom.federation import exposure, mounts
from postroom.model import message
from postroom.model.delivery import State
from postroom.model.names import Address
from postroom.model.peer import Envelope, Peer
from postroom.model.query import Query
from tests.letters import letter


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Room]:
    with postroom.open(tmp_path / "home.db", system="home", durability="process") as room:
        room.mailbox("ann").register(capabilities=["python"])
        yield room


@pytest.fixture(params=["sqlite:{}/room.db", "files:{}?layout=nanobot"])
def folder(home: Room, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Room]:
    with postroom.open(request.param.format(tmp_path / "there"), durability="process") as room:
        room.mailbox("bob").register()
        mounts.introduce(room.core, "folder", "home")
        exposure.show(room.core, "home", home.agents())
        yield room


def names(room: Room) -> list[str]:
    return [agent.card.id for agent in room.agents()]


def test_they_come_and_go_as_announced(home: Room, folder: Room) -> None:
    assert ["ann@home", "bob"] == names(folder)
    assert ("python",) == folder.agent("ann@home").card.capabilities
    before = folder.core.store.cursor()
    exposure.show(folder.core, "home", home.agents())
    assert before == folder.core.store.cursor()  # nothing is written as long as nothing changes
    exposure.show(folder.core, "other", [])
    assert ["ann@home", "bob"] == names(folder)
    exposure.show(folder.core, "home", [])
    assert ["bob"] == names(folder)


def test_they_are_written_to_and_wait_for_their_system(folder: Room) -> None:
    sent = folder.mailbox("bob").send("ann@home", "hello")
    (found,) = folder.core.store.find(Query(mailbox="ann@home", message_ids=(sent.id,)))
    assert State.QUEUED is found.delivery.state


def test_nobody_chooses_them_for_work_and_mail_to_all_is_not_theirs(folder: Room) -> None:
    with pytest.raises(UnknownAgent, match="python"):
        folder.mailbox("bob").send("any:python", "who?")
    text = letter("m-1", (), sender="amy@home", parts=(message.text("all"),), trace=("amy@home",))
    arrival = Envelope(message=text, targets=(Address(system="folder"),), source="home")
    host = Peer(system="home", exposure="all")
    assert [None] == [verdict.problem for verdict in accept(folder.core, host, arrival)]
    assert ["bob"] == [found.delivery.mailbox for found in folder.core.store.find(Query(message_ids=("m-1",)))]


def test_a_room_with_a_peer_of_that_name_is_not_mounted_over_it(folder: Room) -> None:
    perform(folder.core, folder.principal, peers.AddPeer(system="other", fields={}))
    with pytest.raises(Conflict, match="a peer 'other' of its own"):
        mounts.introduce(folder.core, "folder", "other")
