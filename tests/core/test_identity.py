"""What a post room is called among others (I7)."""

from __future__ import annotations

from pathlib import Path

import pytest

import postroom
from postroom import Invalid, Room
from postroom.core import peers
from postroom.core.authorize import agent_principal
from tests.rooms import RoomFactory


def test_a_name_is_made_once_and_kept(tmp_path: Path) -> None:
    with postroom.open(tmp_path / "room.db") as room, postroom.open(tmp_path / "room.db") as other:
        made = room.system
        assert made.startswith("postroom-") and len(made) == 17
        assert made == room.system == other.system
    with postroom.open(tmp_path / "room.db") as again, postroom.open(tmp_path / "another.db") as another:
        assert again.system == made != another.system


def test_a_name_that_is_set_is_used_and_a_bad_one_refused(factory: RoomFactory) -> None:
    made = factory.room().system
    assert factory.room(system="berlin").system == "berlin"
    assert factory.room().system == made
    with pytest.raises(Invalid) as refused:
        factory.room(system="../berlin").system  # noqa: B018 - it is looked up when it is asked for
    assert refused.value.field == "system"


def test_a_name_that_was_kept_or_announced_does_not_give_way_to_a_servers(factory: RoomFactory) -> None:
    made = peers.system_id(factory.room().core, gives_way=True)
    assert made == peers.announced(factory.room().core) == factory.room().system
    assert made == peers.adopt(factory.room().core, "hive") == factory.room().system
    assert "berlin" == peers.announced(factory.room(system="berlin").core)


def test_a_name_that_was_made_before_there_was_a_link_stays(factory: RoomFactory) -> None:
    made = factory.room().system
    assert made == peers.adopt(factory.room().core, "hive") == factory.room().system


def test_a_servers_name_beats_one_that_was_made_for_the_time_being_and_is_kept(factory: RoomFactory) -> None:
    made = peers.system_id(factory.room().core, gives_way=True)
    assert made == factory.room().system
    assert "hive" == peers.adopt(factory.room().core, "hive") == factory.room().system != made
    assert "hive" == peers.adopt(factory.room().core, "another")  # the first server's stays
    factory.reopen()
    assert "hive" == factory.room().system
    assert "berlin" == factory.room(system="berlin").system  # what is set beats both
    with pytest.raises(Invalid):
        peers.adopt(factory.room().core, "MAP Server")


def test_an_agent_may_not_read_the_name_of_the_system(room: Room) -> None:
    with pytest.raises(postroom.NotAllowed):
        room.acting_as(agent_principal("ann")).system  # noqa: B018 - asking is what is refused
