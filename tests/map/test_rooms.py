"""Two rooms of ours, one linked to the MAP server of the other: real daemons, and nothing between them is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import postroom
from postroom.core import tokens
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.formats.map import role_of
from postroom.model.agent import Warmth
from tests.daemons import PATIENCE, Daemon, free_port, until
from tests.formats.map_asking import ask
from tests.map.people import agent

pytestmark = pytest.mark.daemon


class Rooms:
    """`host` serves MAP, `guest` is linked to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "host").mkdir()
        (folder / "guest").mkdir()
        self.host = self.serve_host("127.0.0.1:0")
        with postroom.open(self.host.room) as room:
            self.token = perform(room.core, OWNER, tokens.CreateToken()).text
        self.place = self.host.where["http"].removeprefix("http://")
        self.guest = Daemon(
            folder / "guest", "--http", "off", "--map-server", f"ws://{self.place}/map",
            POSTROOM_MAP_TOKEN=self.token,
        )  # fmt: skip

    def serve_host(self, place: str) -> Daemon:
        return Daemon(self.folder / "host", "--http", place, "--set", "system=hive")

    def kill_host(self) -> None:
        """It comes back, and remembers agents, but no connections."""
        self.host.stop(signal.SIGKILL)
        self.host = self.serve_host(self.place)

    def close(self) -> None:
        self.guest.__exit__()
        self.host.__exit__()


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    rooms = Rooms(tmp_path)
    yield rooms
    rooms.close()


def test_letters_go_both_ways_through_a_restart_of_the_server(rooms: Rooms) -> None:
    with postroom.open(rooms.guest.room) as guest, postroom.open(rooms.host.room) as host:
        ann, bob = guest.mailbox("ann"), host.mailbox("bob")
        ann.register()
        bob.register()
        sent = ann.send(
            "hive/bob", [{"type": "data", "data": {"n": 1}}], subject="S", priority="high", thread_tag="t"
        )
        letter = bob.wait(timeout=PATIENCE)
        assert letter is not None
        assert ("ann", "S", "t", {"n": 1}) == (
            letter.sender, letter.subject, letter.message.thread_tag, letter.message.parts[0]["data"]
        )  # fmt: skip
        letter.reply("yes")
        answer = ann.wait(timeout=PATIENCE)
        assert answer is not None
        assert ("hive/bob", "yes", sent.id, sent.thread) == (
            answer.sender, answer.text, answer.message.in_reply_to, answer.message.thread
        )  # fmt: skip
        answer.ack()
        until(lambda: not host.mailbox("ann").check(peek=True, unread_only=False))  # we said that we have it

        host.mailbox("carl").register()
        both = ann.send(["hive/bob", "hive/carl"], "to you two")
        for box in (bob, host.mailbox("carl")):
            got = box.wait(timeout=PATIENCE)
            assert got is not None and ("to you two", both.id) == (got.text, got.message.metadata["messageId"])
            got.ack()

        assert 0 == rooms.host.stop()
        for number in range(5):
            ann.send("hive/bob", f"to {number}")
            bob.send("ann", f"fro {number}")
        rooms.host = rooms.serve_host(rooms.place)
        until(lambda: len(ann.check(peek=True)) == 5)
        until(lambda: len(bob.check(peek=True)) == 5)
        assert [f"to {n}" for n in range(5)] == [one.text for one in bob.check(peek=True)]
        assert [f"fro {n}" for n in range(5)] == [one.text for one in ann.check(peek=True)]


def test_who_only_writes_writes_under_its_name_and_is_answered(rooms: Rooms) -> None:
    with postroom.open(rooms.guest.room) as guest, postroom.open(rooms.host.room) as host:
        host.mailbox("bob").register()
        sent = guest.mailbox("zoe").send("hive/bob", "hello")
        letter = host.mailbox("bob").wait(timeout=PATIENCE)
        assert letter is not None and ("zoe", "hello") == (letter.sender, letter.text)
        letter.reply("yes")
        answer = guest.mailbox("zoe").wait(timeout=PATIENCE)
        assert answer is not None
        assert ("hive/bob", "yes", sent.id) == (answer.sender, answer.text, answer.message.in_reply_to)


def test_a_room_keeps_its_name_and_mail_for_the_others_system_goes_there(rooms: Rooms) -> None:
    with postroom.open(rooms.guest.room) as guest, postroom.open(rooms.host.room) as host:
        name = rooms.guest.where["system"]
        guest.mailbox("ann").register()
        guest.mailbox("bob").register()
        host.mailbox("bob").register()
        until(lambda: "hive/bob" in {agent.card.id for agent in guest.agents()})
        assert name == guest.system != host.system
        assert ["hive/bob"] == ask(guest, "send", **{"from": "ann"}, to="bob@hive", payload="there")["delivered"]
        assert ["bob"] == ask(guest, "send", **{"from": "ann"}, to=f"bob@{name}", payload="here")["delivered"]
        letter = host.mailbox("bob").wait(timeout=PATIENCE)
        assert letter is not None and ("ann", "there") == (letter.sender, letter.text)
        assert ["here"] == [one.text for one in guest.mailbox("bob").check()]


def test_our_own_agents_do_not_come_back_as_theirs_after_the_server_crashed(rooms: Rooms) -> None:
    with postroom.open(rooms.guest.room) as guest, postroom.open(rooms.host.room) as host:
        guest.mailbox("ann").register()
        host.mailbox("bob").register()
        until(lambda: "ann" in {agent.card.id for agent in host.agents()})
        rooms.kill_host()
        guest.mailbox("ann").send("hive/bob", "after it")
        letter = host.mailbox("bob").wait(timeout=PATIENCE)
        assert letter is not None and "after it" == letter.text
        ever = {agent.card.id for agent in guest.agents(gone=True)}
        assert "hive/bob" in ever and "hive/ann" not in ever


def test_roles_and_scopes_of_ours_count_there(rooms: Rooms) -> None:
    with postroom.open(rooms.guest.room) as guest, postroom.open(rooms.host.room) as host:
        for name, role in (("ann", {"role": "dev"}), ("carl", {"role": "dev"}), ("dora", {})):
            ask(guest, "agents/register", agent_id=name, name=name, scopes=["team"], **role)
        host.mailbox("bob").register()
        until(lambda: {"ann", "carl", "dora"} <= {agent.card.id for agent in host.agents()})
        cards = {agent.card.id: agent.card for agent in host.agents()}
        assert [("dev", ("team",)), ("agent", ("team",))] == [
            (role_of(cards[name]), cards[name].scopes) for name in ("ann", "dora")
        ]
        ask(host, "send", **{"from": "bob"}, to={"role": "dev", "within": "team"}, payload="for devs")
        ask(host, "send", **{"from": "bob"}, to={"scope": "team"}, payload="for all")
        ask(host, "send", **{"from": "bob"}, to={"broadcast": True}, payload="for everybody")
        got = {"ann": ["for all", "for devs", "for everybody"], "dora": ["for all", "for everybody"]}
        got["carl"] = got["ann"]

        def texts(name: str) -> list[str]:
            return sorted(letter.text for letter in guest.mailbox(name).check(peek=True))

        until(lambda: got == {name: texts(name) for name in got})
        ask(guest, "agents/register", agent_id="ann", name="ann", role="lead", scopes=["team"])
        until(lambda: "lead" == role_of(host.agent("ann").card))


def test_who_is_away_there_is_away_here_and_is_sent_to(rooms: Rooms) -> None:
    with postroom.open(rooms.guest.room) as guest, postroom.open(rooms.host.room) as host:
        guest.mailbox("ann").register()
        host.mailbox("bob").register()
        host.mailbox("bob").leave()
        until(lambda: "hive/bob" in {agent.card.id for agent in guest.agents()})
        until(lambda: Warmth.AWAY is guest.agent("hive/bob").presence.warmth)
        guest.mailbox("ann").send("hive/bob", "when you are back")
        letter = host.mailbox("bob").wait(timeout=PATIENCE)
        assert letter is not None and "when you are back" == letter.text
        host.mailbox("bob").heartbeat()
        guest.mailbox("ann").send("hive/nobody", "so the link looks around soon")
        until(lambda: Warmth.ACTIVE is guest.agent("hive/bob").presence.warmth)


@pytest.mark.parametrize("is_seen_first", [False, True])
def test_whose_name_is_taken_there_goes_on_writing_by_the_link(rooms: Rooms, is_seen_first: bool) -> None:
    """The other room's own agent proves that the name is its own."""
    with postroom.open(rooms.guest.room) as guest, postroom.open(rooms.host.room) as host:
        gil, bob = guest.mailbox("gil"), host.mailbox("bob")
        gil.register()
        bob.register()
        gil.send("hive/bob", "before")
        first = bob.wait(timeout=PATIENCE)
        assert first is not None and "gil" == first.sender
        first.ack()
        token = perform(host.core, OWNER, tokens.CreateToken(agent="gil")).text
        with agent(int(rooms.place.rpartition(":")[2]), token, "gil"):
            if is_seen_first:
                gil.send("hive/nobody", "so the link looks around soon")
                until(lambda: "hive/gil" in {one.card.id for one in guest.agents()})
            for number in range(2):
                gil.send("hive/bob", f"after {number}")
                letter = bob.wait(timeout=PATIENCE)
                assert letter is not None and f"after {number}" == letter.text
                letter.ack()
                assert (rooms.guest.where["system"], "gil") == (letter.sender, letter.message.metadata["senderId"])
            gil.send("hive/gil", "to my namesake")
            gil.send("hive/nobody", "so the link looks around soon")
            until(lambda: "hive/gil" in {one.card.id for one in guest.agents()})
        assert "to my namesake" == until(lambda: host.mailbox("gil").check(peek=True))[0].text
        assert 1 == rooms.guest.log().count("gil is not shown")


def test_rooms_that_are_linked_to_each_other_keep_their_own_agents(tmp_path: Path) -> None:
    """Neither shows the other its own agents, and nobody takes the name and the mail of a live one there."""
    ports, keys = (free_port(), free_port()), []
    for name in ("aa", "bb"):
        (tmp_path / name).mkdir()
        with postroom.open(tmp_path / name / "room.db") as room:
            keys.append(perform(room.core, OWNER, tokens.CreateToken()).text)
            room.mailbox(f"{name}-own").register()
            room.mailbox("same").register()

    def serve(name: str, mine: int, other: int) -> Daemon:
        url = f"ws://127.0.0.1:{ports[other]}/map"
        words = ("--http", f"127.0.0.1:{ports[mine]}", "--set", f"system={name}", "--map-server", url)
        return Daemon(tmp_path / name, *words, POSTROOM_MAP_TOKEN=keys[other])

    with (
        serve("aa", 0, 1) as first,
        serve("bb", 1, 0) as second,
        postroom.open(first.room) as here,
        postroom.open(second.room) as there,
    ):
        here.mailbox("aa-own").send("bb/bb-own", "hello")
        letter = there.mailbox("bb-own").wait(timeout=PATIENCE)
        assert letter is not None and ("aa-own", "hello") == (letter.sender, letter.text)
        letter.reply("yes")
        answer = here.mailbox("aa-own").wait(timeout=PATIENCE)
        assert answer is not None and "yes" == answer.text
        here.mailbox("x").send("same", "for ours")
        until(lambda: "aa/same" in {agent.card.id for agent in there.agents()})
        until(lambda: "same is not shown" in first.log() and "same is not shown" in second.log())
        assert ["for ours"] == [one.text for one in here.mailbox("same").check(peek=True)]
        names = {agent.card.id for agent in here.agents() if agent.registered}
        assert {"aa-own", "bb-own", "same", "bb", "bb/bb-own", "bb/same"} == names


def test_who_is_there_by_the_link_has_left_when_the_room_closes(rooms: Rooms) -> None:
    with postroom.open(rooms.guest.room) as guest, postroom.open(rooms.host.room) as host:
        host.mailbox("bob").register()
        until(lambda: "hive/bob" in {agent.card.id for agent in guest.agents()})
        until(lambda: Warmth.ACTIVE is guest.agent("hive/bob").presence.warmth)
        assert 0 == rooms.guest.stop()
        assert guest.agent("hive/bob").presence.left
