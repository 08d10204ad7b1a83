"""Another name for an agent: all that is its own follows, mail to the old name arrives, letters never change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from postroom import Invalid, LoopDetected, NameTaken, NotAllowed, Room, State, UnknownAgent
from postroom.model.record import BEAT, CARD, FORMER, GUARD, MEMBER, Record
from postroom.store.protocol import Put
from tests.rooms import FakeClock, RoomFactory, addresses, spoken, texts


@pytest.fixture
def bob(room: Room) -> Room:
    """A room where bob has a card, a guard, a team and mail, and is called bert now."""
    room.mailbox("bob").register(scopes=["team"], capabilities=["python"], allow_from=["ann", "carol"])
    room.mailbox("bob").block("carol")
    room.mailbox("ann").send("bob", "before", key="k")
    room.mailbox("bob").send("ann", "from bob", bcc="dave")
    room.rename("bob", "bert")
    return room


def test_card_guard_team_and_mail_follow(bob: Room, factory: RoomFactory) -> None:
    factory.reopen()
    room = factory.room()
    agent = room.agent("bert")
    assert (agent.card.id, agent.card.scopes, agent.presence.status) == ("bert", ("team",), "idle")
    assert [a.card.id for a in room.agents()] == ["bert"]
    assert room.mailbox("bert").blocked() == ["carol"]
    assert texts(room.mailbox("bert").check()) == ["before"]
    room.mailbox("ann").broadcast("team", "to all")
    assert texts(room.mailbox("bert").check()) == ["to all"]
    with pytest.raises(NotAllowed):
        room.mailbox("dave").send("bert", "x")
    assert factory.store.keys(CARD) == factory.store.keys(BEAT) == factory.store.keys(MEMBER + "team") == ["bert"]
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
    room.rename("bob", "bert")
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
        "rename": lambda: room.rename("bob", "other"),
    }


VERBS = (
    "send many check claim wait counts read dead register heartbeat agent block unblock blocked escalate rename"
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
    room.rename("eve", "eva")
    with pytest.raises(NotAllowed):
        room.mailbox("eva").send("bob", "x")
    room.mailbox("eva").send("dave", "x")
    room.mailbox("dave").register(allow_from=["eva"])
    room.mailbox("eva").send("dave", "y")
    assert texts(room.mailbox("dave").check()) == ["x", "y"]


def test_a_letter_is_not_passed_back_to_who_was_renamed(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", "x")
    room.rename("ann", "anna")
    for name in ("ann", "anna"):
        with pytest.raises(LoopDetected):
            room.mailbox("bob").forward(sent.id, name)


def test_bounces_find_the_sender_under_its_new_name(room: Room) -> None:
    sent = room.mailbox("ann").send("bob", "x")
    room.rename("ann", "anna")
    room.mailbox("bob").read(sent.id).reject("no")
    assert room.mailbox("anna").check()[0].kind == "bounce"


def test_escalations_follow(room: Room, clock: FakeClock) -> None:
    sent = room.mailbox("ann").escalate("x", reason="blocked", ladder=["lead", "coo", "boss"])
    room.rename("lead", "chief")
    room.rename("ann", "anna")
    room.mailbox("boss").register()
    room.rename("boss", "owner")
    assert [one.waits_for for one in room.mailbox("chief").escalations()] == ["chief"]
    clock.advance(4 * 3600)
    assert room.sweep().climbed == 1
    clock.advance(4 * 3600)
    assert room.sweep().climbed == 1
    (letter,) = room.mailbox("owner").check()
    letter.reply("yes")
    assert "yes" in texts(room.mailbox("anna").check())
    assert "yes" in texts(room.mailbox("chief").check())
    assert room.mailbox("anna").escalations() == []
    assert room.mailbox("anna").thread(sent.thread)


def test_a_swarm_goes_with_the_name(factory: RoomFactory, room: Room) -> None:
    room.mailbox("red/one").register(scopes=["night"])
    room.rename("red/one", "blue/one")
    assert room.agent("blue/one").card.scopes == ("blue", "night")
    room.mailbox("ann").broadcast("blue", "x")
    assert texts(room.mailbox("blue/one").check()) == ["x"]
    with pytest.raises(UnknownAgent):
        room.mailbox("ann").broadcast("red", "x")


@pytest.mark.mechanism
def test_names_change_again_and_back(factory: RoomFactory, bob: Room) -> None:
    bob.rename("bert", "bart")
    bob.mailbox("ann").send(["bob", "bert", "bart"], "one")
    assert texts(bob.mailbox("bart").check()) == ["before", "one"]
    bob.rename("bart", "bob")
    bob.mailbox("ann").send(["bob", "bert", "bart"], "two")
    assert texts(bob.mailbox("bob").check()) == ["two"]
    with pytest.raises(UnknownAgent, match="'bart' is now 'bob'"):
        bob.mailbox("bart").check()
    assert bob.mailbox("bob").blocked() == ["carol"]
    assert factory.store.records(FORMER, "bob")[0].value == ["bert", "bart"]
    assert factory.store.keys(FORMER) == ["bob"]
    assert set(factory.store.keys(GUARD)) == {"bob", "bert", "bart"}
    bob.mailbox("bob").send("ann", "it is me")


@pytest.mark.mechanism
def test_only_the_spelling_may_change(room: Room) -> None:
    room.mailbox("ann").send("bob", "x")
    room.rename("bob", "Bob")
    room.mailbox("ann").send("bob", "y")
    assert texts(room.mailbox("Bob").check()) == ["x", "y"]


@pytest.mark.mechanism
@pytest.mark.parametrize(
    ("old", "new", "error", "field"),
    [
        ("nobody", "x", UnknownAgent, "old"),
        ("Bob", "x", UnknownAgent, "old"),
        ("bob", "bob", Invalid, "new"),
        ("bob", "ann", NameTaken, "new"),
        ("bob", "ANN", NameTaken, "new"),
        ("bob", "was", NameTaken, "new"),
        ("bob", "postmaster", Invalid, "new"),
        ("postmaster", "x", Invalid, "old"),
        ("bob", "a b", Invalid, "new"),
        ("bob", None, Invalid, "new"),
        ("../x", "y", Invalid, "old"),
    ],
)
def test_a_name_that_will_not_do_is_refused(
    factory: RoomFactory, room: Room, old: Any, new: Any, error: type[Exception], field: str
) -> None:
    room.mailbox("ann").send(["bob", "was"], "x")
    room.rename("was", "is")
    before = factory.store.cursor()
    with pytest.raises(error) as refused:
        room.rename(old, new)
    assert refused.value.field == field  # type: ignore[attr-defined]
    assert factory.store.cursor() == before


@pytest.mark.mechanism
def test_two_mailboxes_do_not_become_one(room: Room) -> None:
    room.mailbox("bob").send("ann", "x")
    with pytest.raises(NameTaken, match="'ann' has a mailbox here already"):
        room.rename("bob", "ann")


def test_no_other_agent_can_have_the_old_name(bob: Room) -> None:
    bob.mailbox("zoe").register()
    with pytest.raises(NameTaken):
        bob.rename("zoe", "bob")
    with pytest.raises(UnknownAgent):
        bob.mailbox("bob").register()


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


@pytest.mark.mechanism
def test_nothing_is_lost_while_a_name_changes(factory: RoomFactory) -> None:
    room = factory.room()
    room.mailbox("bob").register()
    start = threading.Barrier(4)

    def send(number: int) -> None:
        box = factory.room().mailbox(f"s{number}")
        start.wait(10)
        for n in range(20):
            box.send("bob", f"{number}-{n}")

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    start.wait(10)
    for old, new in (("bob", "b1"), ("b1", "b2"), ("b2", "b3")):
        room.rename(old, new)
    for thread in threads:
        thread.join(30)
    assert len(room.mailbox("b3").check(limit=None)) == 60
    assert room.mailboxes() == ["b3", "s0", "s1", "s2"]
