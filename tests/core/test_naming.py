"""Rooms with renamed agents: mail to the old name arrives, nobody else can have it, letters never change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom import Invalid, LookAlike, LoopDetected, Mailbox, NotAllowed, Room, State, UnknownAgent
from postroom.model.record import BEAT, CARD, GUARD, MEMBER, Record
from postroom.store.protocol import Put, record_keys
from tests.renaming import rename
from tests.rooms import RoomFactory, addresses, spoken, texts


@pytest.fixture
def bob(room: Room) -> Room:
    """A room where bob has a card, a guard, a team and mail, and is called bert now."""
    room.mailbox("bob").register(scopes=["team"], capabilities=["python"], allow_from=["ann", "carol"])
    room.mailbox("bob").block("carol")
    room.mailbox("ann").send("bob", "before", key="k")
    room.mailbox("bob").send("ann", "from bob", bcc="dave")
    rename(room, "bob", "bert")
    return room


def test_card_guard_team_and_mail_are_those_of_the_new_name(bob: Room, factory: RoomFactory) -> None:
    factory.reopen()
    room = factory.room()
    agent = room.agent("bert")
    assert (agent.card.id, agent.card.scopes, agent.presence.status) == ("bert", ("team",), "idle")
    assert [a.card.id for a in room.agents() if a.registered] == ["bert"]
    assert room.mailbox("bert").blocked() == ["carol"]
    assert texts(room.mailbox("bert").check()) == ["before"]
    room.mailbox("ann").broadcast("team", "to all")
    assert texts(room.mailbox("bert").check()) == ["to all"]
    with pytest.raises(NotAllowed):
        room.mailbox("dave").send("bert", "x")
    assert (
        record_keys(factory.store, CARD)
        == record_keys(factory.store, BEAT)
        == record_keys(factory.store, MEMBER + "team")
        == ["bert"]
    )
    assert set(room.mailboxes()) >= {"ann", "bert"}
    assert "bob" not in room.mailboxes()


def test_mail_to_the_old_name_arrives_past_the_same_guard(bob: Room) -> None:
    sent = bob.mailbox("ann").send(["bob", "bert"], "x", cc="bob")
    assert sent.unknown == ()
    assert addresses(sent.message) == ["bob", "bert"]  # as its sender wrote it
    assert texts(bob.mailbox("bert").check()) == ["before", "x"]
    for name in ("bob", "bert"):
        for sender in ("carol", "dave"):
            with pytest.raises(NotAllowed):
                bob.mailbox(sender).send(name, "x")
            with pytest.raises(NotAllowed):
                bob.mailbox(sender).send([*(f"n{n}" for n in range(12)), name], "x")


def test_old_letters_keep_saying_the_old_name_and_are_still_ones_own(bob: Room) -> None:
    bert = bob.mailbox("bert")
    (mine,) = bert.thread(bob.mailbox("ann").check()[0].id)
    assert (mine.sender, mine.text) == ("bob", "from bob")
    assert addresses(mine) == ["ann", "dave"]  # its sender sees bcc
    more = bert.reply(mine.id, "one more thing")
    assert addresses(more.message) == ["ann"]
    assert texts(bob.mailbox("ann").check(sender="bob")) == ["one more thing"]
    assert texts(bob.mailbox("ann").check(sender="bert", unread_only=False)) == ["from bob", "one more thing"]


def test_answers_to_old_letters_find_their_way(bob: Room) -> None:
    ann, bert = bob.mailbox("ann"), bob.mailbox("bert")
    (letter,) = ann.check()
    answer = letter.reply("answer")
    assert answer.message.hops == 3  # no relay
    assert "answer" in texts(bert.check())
    both = ann.send(["bob", "eve"], "to both")
    reply = bert.reply(both.id, "from me", to_all=True)
    assert addresses(reply.message) == ["ann", "eve"]  # not to oneself
    thread = spoken(bert.thread(both.id))
    assert thread == ["to both", "from me"]


def test_a_letter_of_old_can_be_unsent_revived_and_settled(room: Room) -> None:
    bob, ann = room.mailbox("bob"), room.mailbox("ann")
    sent = bob.send("ann", "x")
    ann.send("bob", "claimed")
    ann.send("bob", "dead")
    work = bob.claim()
    assert work
    bob.check()[0].reject("no")
    rename(room, "bob", "bert")
    bert = room.mailbox("bert")
    bert.unsend(sent.id)
    assert ann.check(unread_only=True, sender="bert") == []
    assert texts(bert.dead()) == ["dead"]
    assert bert.revive(bert.dead()[0].id)[0].state is State.UNREAD
    work.ack()  # whoever held it may settle it
    assert bert.read(work.id).state is State.DONE


def acts(room: Room) -> dict[str, Callable[[], object]]:
    bob = room.mailbox("bob")
    return {
        "send": lambda: bob.send("ann", "x"),
        "many": lambda: bob.send([f"n{n}" for n in range(20)], "x"),
        "check": bob.check,
        "claim": bob.claim,
        "wait": lambda: bob.wait(0),
        "counts": bob.counts,
        "read": lambda: bob.read("m"),
        "dead": bob.dead,
        "register": bob.register,
        "heartbeat": bob.heartbeat,
        "agent": lambda: room.agent("bob"),
        "block": lambda: bob.block("eve"),
        "unblock": lambda: bob.unblock("eve"),
        "blocked": bob.blocked,
        "escalate": lambda: bob.escalate("x", reason="blocked"),
    }


VERBS = (
    "send many check claim wait counts read dead register heartbeat agent block unblock blocked escalate"
).split()


@pytest.mark.parametrize("verb", VERBS)
def test_a_caller_under_the_old_name_gets_the_new_one(factory: RoomFactory, bob: Room, verb: str) -> None:
    before = factory.store.cursor()
    with pytest.raises(UnknownAgent, match="'bert'"):
        acts(bob)[verb]()
    assert factory.store.cursor() == before
    factory.reopen()  # a process that never saw the name before
    with pytest.raises(UnknownAgent, match="'bert'"):
        acts(factory.room())[verb]()


def test_a_guard_knows_people_by_the_names_they_had(room: Room) -> None:
    room.mailbox("bob").block("eve")
    room.mailbox("dave").register(allow_from=["eve"])
    room.mailbox("eve").register()
    rename(room, "eve", "eva")
    with pytest.raises(NotAllowed):
        room.mailbox("eva").send("bob", "x")
    room.mailbox("eva").send("dave", "x")
    room.mailbox("dave").register(allow_from=["eva"])
    room.mailbox("eva").send("dave", "y")
    assert texts(room.mailbox("dave").check()) == ["x", "y"]


def test_a_letter_is_not_passed_back_to_who_was_renamed(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", "x")
    rename(room, "ann", "anna")
    for name in ("ann", "anna"):
        with pytest.raises(LoopDetected):
            room.mailbox("bob").forward(sent.id, name)


def test_bounces_find_the_sender_under_its_new_name(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", "x")
    rename(room, "ann", "anna")
    room.mailbox("bob").read(sent.id).reject("no")
    assert room.mailbox("anna").check()[0].kind == "bounce"


def test_an_agent_that_was_renamed_again_and_back_is_found_by_all_its_names(bob: Room) -> None:
    rename(bob, "bert", "bart")
    bob.mailbox("ann").send(["bob", "bert", "bart"], "one")
    assert texts(bob.mailbox("bart").check()) == ["before", "one"]
    rename(bob, "bart", "bob")
    bob.mailbox("ann").send(["bob", "bert", "bart"], "two")
    assert texts(bob.mailbox("bob").check()) == ["two"]
    with pytest.raises(UnknownAgent, match="'bart' is now 'bob'"):
        bob.mailbox("bart").check()
    assert bob.mailbox("bob").blocked() == ["carol"]
    bob.mailbox("bob").send("ann", "it is me")


@pytest.mark.parametrize("name", ["bob", "BOB"])
def test_nobody_else_can_have_the_old_name(bob: Room, factory: RoomFactory, name: str) -> None:
    takers: tuple[Callable[[Mailbox], object], ...] = (
        Mailbox.register,
        lambda box: box.send("ann", "it is me"),
        Mailbox.claim,
    )
    for take in takers:
        with pytest.raises((UnknownAgent, LookAlike)):
            take(bob.mailbox(name))
    factory.reopen()
    room = factory.room()
    for take in takers:
        with pytest.raises((UnknownAgent, LookAlike)):
            take(room.mailbox(name))
    assert [agent.card.id for agent in room.agents() if agent.registered] == ["bert"]
    assert not {"bob", "BOB"} & set(room.mailboxes())


def test_names_go_with_an_export(factory: RoomFactory, bob: Room, tmp_path: Path) -> None:
    bob.mailbox("ann").send("bob", "after")
    lines = list(bob.export())
    (tmp_path / "other").mkdir()
    other = RoomFactory(factory.kind, tmp_path / "other", factory.clock)
    copy = other.room()
    copy.load(lines)
    assert texts(copy.mailbox("bert").check()) == ["before", "after"]
    assert texts(copy.mailbox("ann").check(sender="bert")) == ["from bob"]
    copy.mailbox("ann").send("bob", "there too")
    assert texts(copy.mailbox("bert").check()) == ["there too"]
    with pytest.raises(UnknownAgent):
        copy.mailbox("bob").check()
    other.store.close()


@pytest.mark.parametrize(
    "value", [["../x"], {"moved_to": "a b"}, {"block": [""]}, {"allow": ["*", "/"]}, {"moved_to": 7}]
)
def test_a_guard_that_names_nobody_does_not_come_in(factory: RoomFactory, value: Any) -> None:
    head = b'{"postroom": 1, "room": "x"}'
    line = json.dumps({"record": {"kind": GUARD, "key": "bob", "value": value}})
    with pytest.raises(Invalid):
        factory.room().load([head, line])


def test_notes_that_point_at_each_other_hang_nobody(factory: RoomFactory) -> None:
    room = factory.room()
    room.mailbox("a").send("b", "x")
    factory.store.commit(
        [
            Put(record=Record(kind=GUARD, key="a", value={"moved_to": "b"})),
            Put(record=Record(kind=GUARD, key="b", value={"moved_to": "a"})),
        ]
    )
    room.mailbox("c").send("b", "y")
    assert texts(room.mailbox("a").check()) == ["y"]
