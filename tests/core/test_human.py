"""The human is a mailbox: by any of its names, under the name that the settings give it."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Invalid, NotAllowed, UnknownAgent
from postroom.core import webhooks
from postroom.core.authorize import OWNER
from postroom.core.verb import perform
from postroom.settings import load_settings
from tests.people import person
from tests.rooms import RoomFactory, addresses, texts

NAMES = ("human", "user", "ceo", "Human")


@pytest.mark.parametrize("name", NAMES)
def test_mail_to_the_human_reaches_the_mailbox_in_the_settings(factory: RoomFactory, name: str) -> None:
    room = factory.room(human="team/dana")
    sent = room.mailbox("bob").send([name, "team/dana"], "x", cc=["human", "carol"])
    assert addresses(sent.message) == ["team/dana", "carol"]
    assert room.mailbox("bob").send(name, "y").unknown == ("team/dana",)
    assert room.mailbox(name).name == "team/dana"
    assert texts(room.mailbox(name).check()) == ["x", "y"]
    room.mailbox(name).send("bob", "z")
    assert texts(room.mailbox("bob").check(sender=name)) == ["z"]
    later = room.wait([name], 0, since=room.cursor())
    assert later is None
    person(room, name).register(program="person")
    assert room.agent(name).card.id == "team/dana"
    assert "human" not in room.mailboxes()


def test_human_means_the_same_person_wherever_it_is_written(factory: RoomFactory) -> None:
    room = factory.room(human="dana")
    bob, dana = room.mailbox("bob"), room.mailbox("dana")
    bob.send("human", "question")
    dana.send("bob", "answer")
    assert [found.text for found in bob.search("to:ceo")] == ["question"]
    assert [found.text for found in bob.search("from:human")] == ["answer"]
    assert [found.text for found in bob.search("-from:user")] == ["question"]
    assert bob.block("human") == ["dana"]
    with pytest.raises(NotAllowed):
        dana.send("bob", "x")
    assert bob.unblock("ceo") == []
    bob.register(allow_from=["human"], scopes=["team"])
    person(room, "dana").register(scopes=["team"])
    room.mailbox("eve").register(scopes=["team"])
    dana.send("bob", "y")
    bob.broadcast("team", "z", exclude=["human"])
    assert texts(room.mailbox("eve").check()) == ["z"] and texts(dana.check()) == ["question"]
    webhook = perform(room.core, OWNER, webhooks.AddWebhook(url="https://hooks.example.com/", mailbox="human"))
    assert webhook.mailbox == "dana"


def test_the_last_rung_of_the_ladder_is_the_human_by_whatever_name(factory: RoomFactory) -> None:
    room = factory.room(human="dana")
    request = room.mailbox("bob").escalate("May I?", reason="permission")
    assert addresses(request.message) == ["dana"]
    (one,) = room.mailbox("human").escalations()
    assert (one.rungs, one.waits_for) == (("dana",), "dana")
    person(room).reply(request.id, "Yes.")
    assert room.mailbox("bob").escalations() == []
    own = factory.room(human="dana", ladder="lead,ceo")
    assert addresses(own.mailbox("eve").escalate("x", reason="risk").message) == ["dana"]


def test_mail_is_refused_until_the_human_is_known(factory: RoomFactory) -> None:
    room = factory.room(human="dana", unknown="refuse")
    with pytest.raises(UnknownAgent):
        room.mailbox("bob").send("human", "x")
    person(room).register(program="person")
    room.mailbox("bob").send("human", "x")
    assert texts(room.mailbox("dana").check()) == ["x"]


def test_the_name_comes_from_the_settings_like_any_other(tmp_path: Path) -> None:
    config = tmp_path / "postroom" / "config.toml"
    config.parent.mkdir()
    config.write_text('human = "dana"\n', encoding="utf-8")
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert load_settings({}, environment).human == "dana"
    assert load_settings({}, environment | {"POSTROOM_HUMAN": "erin"}).human == "erin"
    assert load_settings({}, {}).human == "human"


@pytest.mark.parametrize("name", ["", "two words", "postmaster", "Postmaster", "a@b", "../x", "x" * 200])
def test_a_name_that_nobody_can_have_is_refused(name: str) -> None:
    with pytest.raises(Invalid) as refused:
        load_settings({"human": name}, {})
    assert (refused.value.field, refused.value.hint) == ("human", "an agent's name")
