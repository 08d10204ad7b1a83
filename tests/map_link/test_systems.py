"""What a linked room is called, and whom `somebody@system` means there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom import Missing, Room, UnknownAgent
from tests.map_link.host import Host, hosted, linked, run, until
from tests.map_link.test_link import hasty
from tests.map_link.test_visit import welcome
from tests.wire.map_asking import ask

__all__ = ["hasty"]


def delivered(room: Room, to: Any) -> list[str]:
    found: list[str] = ask(room, "send", **{"from": "ann"}, to=to, payload="x")["delivered"]
    return found


def test_the_name_of_a_server_that_is_no_postroom_is_ours_and_means_both(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob", "eve")) as host, linked(host, tmp_path) as room:
            room.mailbox("ann").register()
            room.mailbox("eve").register()
            await until(lambda: "hive/bob" in {agent.card.id for agent in room.agents()})
            assert "hive" == room.system
            assert ["hive/bob"] == delivered(room, {"system": "hive", "agent": "bob"})
            assert ["eve"] == delivered(room, "eve@hive")  # of two that are called so, ours
            with pytest.raises(UnknownAgent):
                delivered(room, "nobody@hive")
            assert "nobody" not in room._office.store.mailboxes()

    run(story())


def test_the_name_of_another_postroom_is_not_ours(tmp_path: Path) -> None:
    async def story() -> None:
        host = Host("bob")
        info = {"name": "hive", "version": "1", "software": "postroom"}
        host.answers["map/connect"] = lambda _: welcome(systemInfo=info)
        async with hosted(host), linked(host, tmp_path) as room:
            made = room.system
            room.mailbox("ann").register()
            room.mailbox("hive/ours").register()
            with pytest.raises(Missing):  # we were never linked to it
                delivered(room, "bob@elsewhere")
            await until(lambda: "hive/bob" in {agent.card.id for agent in room.agents()})
            assert made == room.system
            assert ["hive/bob"] == delivered(room, "bob@hive")
            assert ["hive/later"] == delivered(room, "later@hive")  # it waits, as for hive/later
            assert ["bob"] == delivered(room, f"bob@{made}")
            with pytest.raises(UnknownAgent):
                delivered(room, "ours@hive")

    run(story())
