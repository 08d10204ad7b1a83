"""The link to the SDK's real MAP server, with agents on the SDK's own connections. `make interop` installs both.

What the SDK's server does, whoever is linked to it: it hands a message on with the session of its sender in place
of the sender, without `meta`, and to a plain id; it takes messages for nobody and gives every agent a new id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

import postroom
from postroom import Room
from tests.daemons import PATIENCE, Daemon, free_port, until
from tests.interop.map_programs import MapServer, Peer, require_sdk
from tests.interop.packages import long

pytestmark = [pytest.mark.interop, pytest.mark.daemon]


@pytest.fixture(scope="module")
def server() -> Iterator[MapServer]:
    require_sdk()
    with MapServer("hive") as server:
        yield server


@pytest.fixture
def daemon(server: MapServer, tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path, "--http", "off", "--map-server", server.url) as daemon:
        yield daemon


def warmth(room: Room, name: str) -> str:
    found = {agent.card.id: str(agent.presence.warmth) for agent in room.agents(gone=True)}
    return found.get(name, "unknown")


def names(room: Room) -> set[str]:
    return {agent.card.id for agent in room.agents()}


def test_letters_go_both_ways_and_an_answer_finds_its_thread(server: MapServer, daemon: Daemon) -> None:
    with Peer(server.url, "bob") as bob, postroom.open(daemon.room) as room:
        ann = room.mailbox("ann")
        ann.register()
        receipt = ann.send("hive/bob", "Hello", subject="Hi", priority="high")
        got = bob.message()
        assert (bob.id, "Hello") == (got["to"], got["payload"]["text"])
        meta = got["payload"]["_meta"]
        assert ("ann", receipt.id, "Hi", "high") == (
            meta["senderId"], meta["messageId"], meta["subject"], meta["priority"]
        )  # fmt: skip
        until(lambda: not room.mailbox("hive/bob").check())  # it is acknowledged once the server has it

        payload = {"type": "text", "text": "Grüße 📬", "_meta": {"inReplyTo": receipt.id}}
        bob.say(to={"agent": until(lambda: shown(server, "ann"))}, payload=payload)
        letter = ann.wait(timeout=PATIENCE)
        assert letter is not None
        assert ("hive/bob", "Grüße 📬", receipt.thread) == (letter.sender, letter.text, letter.message.thread)
        assert not letter.message.proven


def test_an_answer_by_the_sdks_reply_finds_who_asked(server: MapServer, daemon: Daemon) -> None:
    """It goes to the connection of the link, where the SDK's server puts it aside for nobody."""
    with Peer(server.url, "dora") as dora, postroom.open(daemon.room) as room:
        ann, carl = room.mailbox("ann"), room.mailbox("carl")
        first = ann.send("hive/dora", "1")
        dora.reply(dora.message(), "one")
        answer = ann.wait(timeout=PATIENCE)
        assert answer is not None
        assert ("hive/dora", "one", first.thread) == (answer.sender, answer.text, answer.message.thread)
        carl.send("hive/dora", "2")
        dora.reply(dora.message(), "to whom?")  # of two who asked it could be either
        (letter,) = until(lambda: room.mailbox(daemon.where["system"]).check(peek=True))
        assert ("hive/dora", "to whom?") == (letter.sender, letter.text)
        assert [] == ann.check(peek=True) == carl.check(peek=True)


def test_mail_for_who_has_just_left_waits_and_for_who_restarts_follows_it(
    server: MapServer, daemon: Daemon
) -> None:
    """The SDK's server takes it all the same, and gives who is back another id."""
    with postroom.open(daemon.room) as room:
        ann = room.mailbox("ann")
        with Peer(server.url, "bob") as bob, Peer(server.url, "carl") as carl:
            for name, peer in (("bob", bob), ("carl", carl)):
                ann.send(f"hive/{name}", "1")
                assert "1" == peer.message()["payload"]["text"]
                box = room.mailbox(f"hive/{name}")
                until(lambda box=box: not box.check(peek=True))  # type: ignore[misc]
        until(lambda: shown(server, "carl") is None and shown(server, "bob") is None)
        with Peer(server.url, "bob") as bob:
            ann.send("hive/bob", "2")
            ann.send("hive/carl", "2")
            assert "2" == bob.message()["payload"]["text"]
            until(lambda: not room.mailbox("hive/bob").check(peek=True))
            assert ["2"] == [letter.text for letter in room.mailbox("hive/carl").check(peek=True)]
            bob.say(to={"agent": shown(server, "ann")}, payload="3")  # who never registered is answered, too
            answer = ann.wait(timeout=PATIENCE)
            assert answer is not None and ("hive/bob", "3") == (answer.sender, answer.text)


def shown(server: MapServer, name: str) -> str | None:
    """The id that one of ours has there, as an agent there finds it."""
    return asyncio.run(_shown(server.url, name))


async def _shown(url: str, name: str) -> str | None:
    async with connect(url) as line:
        await _ask(line, 1, "map/connect", protocolVersion=1, participantType="client", name="eye")
        result = await _ask(line, 2, "map/agents/list")
    return next((row["id"] for row in result["agents"] if row["name"] == name), None)


async def _ask(line: ClientConnection, id: int, method: str, **params: Any) -> Any:
    await line.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
    return json.loads(await line.recv())["result"]


def test_what_is_sent_to_the_scope_of_the_link_reaches_ours(server: MapServer, tmp_path: Path) -> None:
    options = ("--http", "off", "--map-server", server.url, "--map-scope", "crew")
    with Daemon(tmp_path, *options) as daemon, postroom.open(daemon.room) as room, Peer(server.url, "sam") as sam:
        for name in ("ann", "carl"):
            room.mailbox(name).register()
        until(lambda: asyncio.run(_members(server.url, "crew"))[1] == 3)  # the link is in it, too
        scope, _ = asyncio.run(_members(server.url, "crew"))
        sam.say(to={"scope": scope}, payload={"text": "to all of you"})
        for name in ("ann", "carl"):
            letter = room.mailbox(name).wait(timeout=PATIENCE)
            assert letter is not None and "hive/sam" == letter.sender
        assert not room.mailbox("ann").check()


async def _members(url: str, name: str) -> tuple[str, int]:
    """Of a scope at the SDK's server: its id, and how many are in it."""
    async with connect(url) as line:
        await _ask(line, 1, "map/connect", protocolVersion=1, participantType="client", name="eye")
        rows = (await _ask(line, 2, "map/scopes/list"))["scopes"]
        id = next((row["id"] for row in rows if row["name"] == name), "")
        return id, len((await _ask(line, 3, "map/scopes/members", scopeId=id))["members"]) if id else 0


@long
def test_agents_that_come_and_go_there_come_and_go_here(server: MapServer, daemon: Daemon) -> None:
    with postroom.open(daemon.room) as room:
        with Peer(server.url, "carl/v 2"):
            room.mailbox("ann").send("hive/carl.v-2", "are you there?")  # so it is looked for soon
            until(lambda: warmth(room, "hive/carl.v-2") == "active")
            assert "carl/v 2" == room.agent("hive/carl.v-2").card.display_name
            assert "hive" in room.agent("hive/carl.v-2").card.scopes
        room.mailbox("ann").send("hive/nobody", "?")
        until(lambda: warmth(room, "hive/carl.v-2") == "away")


@long
def test_mail_waits_while_the_server_is_away_and_goes_when_it_is_back(tmp_path: Path) -> None:
    require_sdk()
    port = free_port()
    options = ("--http", "off", "--map-server", f"ws://127.0.0.1:{port}")
    with Daemon(tmp_path, *options) as daemon, postroom.open(daemon.room) as room:
        ann = room.mailbox("ann")
        ann.register()
        with MapServer("hive", port) as server, Peer(server.url, "bob") as bob:
            ann.send("hive/bob", "1")
            assert "1" == bob.message()["payload"]["text"]
        until(lambda: warmth(room, "hive/bob") == "away")
        ann.send("hive/bob", "2")
        ann.send("hive/bob", "3")
        assert 2 == len(room.mailbox("hive/bob").check())
        with MapServer("hive", port) as server, Peer(server.url, "bob") as bob:
            assert ["2", "3"] == [bob.message()["payload"]["text"] for _ in range(2)]
            assert bob.is_silent(1)
            until(lambda: not room.mailbox("hive/bob").check())
            until(lambda: warmth(room, "hive/bob") == "active")
        assert daemon.log().count("there is no link to the MAP server: [Errno") <= 2  # once each time it was away


@long
def test_a_server_that_wants_a_key_gets_it(tmp_path: Path) -> None:
    require_sdk()
    with MapServer("vault", key="secret-key") as server:
        options = ("--http", "off", "--map-server", server.url)
        with Daemon(tmp_path, *options, POSTROOM_MAP_TOKEN=server.key) as daemon:
            until(lambda: "linked to a MAP server" in daemon.log())
        (tmp_path / "log").unlink()
        with Daemon(tmp_path, *options) as daemon:
            until(lambda: "POSTROOM_MAP_TOKEN" in daemon.log())
            assert "linked to a MAP server" not in daemon.log() and "secret-key" not in daemon.log()


@long
def test_two_rooms_meet_at_one_server(server: MapServer, daemon: Daemon, tmp_path: Path) -> None:
    """Through a server that keeps neither senders nor `meta`, everything arrives as it was sent."""
    other = tmp_path / "other"
    other.mkdir()
    with (
        Daemon(other, "--http", "off", "--map-server", server.url) as far,
        postroom.open(daemon.room) as here,
        postroom.open(far.room) as there,
    ):
        here.mailbox("ann").register()
        there.mailbox("dora").register()
        sent = here.mailbox("ann").send(
            "hive/dora",
            [{"type": "data", "data": {"n": [1, 2]}}],
            subject="S",
            priority="urgent",
            thread_tag="t1",
        )
        letter = there.mailbox("dora").wait(timeout=PATIENCE)
        assert letter is not None
        assert ("hive/ann", "S", "t1") == (letter.sender, letter.subject, letter.message.thread_tag)
        assert "urgent" == letter.message.priority.name.lower()
        assert {"n": [1, 2]} == letter.message.parts[0]["data"]
        letter.reply("yes")
        answer = here.mailbox("ann").wait(timeout=PATIENCE)
        assert answer is not None
        assert ("hive/dora", "yes", sent.id) == (answer.sender, answer.text, answer.message.in_reply_to)


@long
def test_the_room_is_called_as_its_server_unless_it_has_a_name(server: MapServer, tmp_path: Path) -> None:
    options = ("--http", "off", "--map-server", server.url)
    with Daemon(tmp_path, *options) as daemon, postroom.open(daemon.room) as room:
        until(lambda: room.system == "hive")
    with postroom.open(tmp_path / "room.db") as room:
        assert "hive" == room.system
