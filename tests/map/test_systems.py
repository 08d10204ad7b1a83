"""What a linked room is called, and whom `somebody@system` means there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import postroom
from postroom import Missing, Room, UnknownAgent
from postroom.store.protocol import all_names
from tests.daemons import Daemon
from tests.formats.map_asking import ask
from tests.map.host import Host, hosted, linked, run, until
from tests.map.test_link import hasty
from tests.map.test_link_session import welcome

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
            assert "nobody" not in all_names(room.core.store)

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


@asynccontextmanager
async def serving(folder: Path, *options: str) -> AsyncIterator[Daemon]:
    """A daemon of its own, beside the server in this process."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    daemon = await asyncio.to_thread(Daemon, folder, "--http", "off", *options)
    try:
        yield daemon
    finally:
        await asyncio.to_thread(daemon.stop)


def called(folder: Path) -> str:
    with postroom.open(folder / "room.db") as room:
        return room.system


@pytest.mark.daemon
def test_a_daemon_is_called_as_was_set_else_as_its_server_else_as_was_made_once(tmp_path: Path) -> None:
    async def story() -> None:
        made, linked_once = tmp_path / "made", tmp_path / "linked"
        async with serving(made) as daemon:
            name = daemon.where["system"]
            assert name.startswith("postroom-")
        async with hosted(Host("bob")) as host:
            link = ("--map-server", host.url)
            async with serving(made, *link, "--set", "system=berlin") as daemon:
                assert "berlin" == daemon.where["system"]
                await until(lambda: host.of("mail/recent"))
            async with serving(linked_once, *link):
                await until(lambda: called(linked_once) == "hive")
        async with serving(linked_once) as daemon:
            assert "hive" == daemon.where["system"]
        async with serving(made) as daemon:
            assert name == daemon.where["system"]

    run(story())


@pytest.mark.daemon
def test_what_is_emitted_on_the_socket_reaches_the_map_server(tmp_path: Path) -> None:
    async def story() -> None:
        async with hosted(Host("bob")) as host:
            link = ("--map-server", host.url, "--map-scope", "night")
            async with serving(tmp_path, *link) as daemon:
                await until(lambda: host.of("mail/recent"))
                event = {"type": "lamp.lit", "n": 1}
                while not host.of("map/send"):  # what is emitted before the link is up is heard here alone
                    await asyncio.to_thread(daemon.ask, action="emit", event=event, scope="night")
                    await asyncio.sleep(0.05)
                result = host.of("map/send")[0]
                assert ({"scope": "night"}, event) == (result["to"], result["payload"]["event"])

    run(story())
