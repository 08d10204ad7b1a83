"""Dead letters and bounces (M13, G6): listed with their reason, revived, deleted; no notice about a notice."""

from __future__ import annotations

import pytest

from postroom import Invalid, NotAllowed, Room, State, TooLarge, UnknownMessage
from postroom.core.authorize import agent_principal
from tests.rooms import FakeClock, RoomFactory, texts


def bury(room: Room, text: str = "x", to: str | list[str] = "bob") -> str:
    id = room.mailbox("ann").send(to, text).id
    room.mailbox("bob").read(id).reject(f"no {text}")
    return id


def test_dead_letters_are_listed_oldest_first_with_the_reason(room: Room) -> None:
    for text in ("1", "2", "3"):
        bury(room, text)
    dead = room.mailbox("bob").dead()
    assert [(x.text, x.delivery.reason) for x in dead] == [("1", "no 1"), ("2", "no 2"), ("3", "no 3")]
    assert texts(room.mailbox("bob").dead(2)) == ["1", "2"]
    assert room.mailbox("ann").dead() == []


def test_the_dead_letters_of_all_mailboxes_are_listed_together(factory: RoomFactory) -> None:
    room = factory.room()
    bury(room, "1")
    room.mailbox("ann").read(room.mailbox("bob").send("ann", "2").id).reject("no 2")
    bury(room, "3")
    dead = room.dead()
    assert [(x.text, x.delivery.mailbox) for x in dead] == [("1", "bob"), ("2", "ann"), ("3", "bob")]
    assert texts(room.dead(2)) == ["1", "2"]
    with pytest.raises(NotAllowed, match="may not act as the operator in the room"):
        factory.room(agent_principal("bob")).dead()


def test_a_lease_that_ran_out_is_found_by_who_looks_at_the_whole_room(factory: RoomFactory) -> None:
    room = factory.room(max_attempts=1)
    room.mailbox("ann").send("bob", "x")
    assert room.mailbox("bob").claim(lease=10)
    factory.clock.advance(11)
    assert texts(room.dead()) == ["x"]


def test_a_revived_letter_has_all_its_tries_again(room: Room, clock: FakeClock) -> None:
    id = room.mailbox("ann").send("bob", "x", expires=60).id
    clock.advance(61)
    bob = room.mailbox("bob")
    assert bob.dead()
    (letter,) = bob.revive(id)
    assert (letter.state, letter.delivery.attempts, letter.delivery.reason) == (State.UNREAD, 0, None)
    clock.advance(3600)  # the expiry that passed no longer counts
    work = bob.claim()
    assert work
    assert bob.dead() == []
    work.fail("again")
    assert work.state is State.UNREAD


def test_all_are_revived_or_none(room: Room) -> None:
    one, two = bury(room, "1"), bury(room, "2")
    bob = room.mailbox("bob")
    for ids in ([one, "not-there"], [one, room.mailbox("ann").send("bob", "alive").id]):
        with pytest.raises(UnknownMessage) as refused:
            bob.revive(*ids)
        assert refused.value.field == "id"
    with pytest.raises(Invalid, match="no letter is named"):
        bob.revive()
    assert len(bob.dead()) == 2
    assert len(bob.revive(one, two, one)) == 2
    with pytest.raises(TooLarge):
        bob.revive(*(str(n) for n in range(10_001)))


def test_a_purged_letter_is_gone_everywhere(room: Room) -> None:
    id = bury(room)
    bob = room.mailbox("bob")
    assert bob.purge(id) == 1
    assert bob.dead() == []
    with pytest.raises(UnknownMessage):
        bob.read(id)
    with pytest.raises(UnknownMessage):
        bob.purge(id)
    assert texts(room.mailbox("ann").check())[0].startswith("Your letter to bob is dead")


def test_a_letter_that_lives_elsewhere_is_not_purged(room: Room) -> None:
    id = bury(room, to=["bob", "carol"])
    bob = room.mailbox("bob")
    assert bob.purge(id) == 0
    assert len(bob.dead()) == 1
    room.mailbox("carol").read(id).ack()
    assert bob.purge(id) == 1


def test_ids_and_keys_that_cross_each_other_wedge_nothing(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "one", key="cross")
    ann.send("bob", "two", id="cross")
    for letter in bob.check():
        letter.reject("no")
    assert bob.purge(*(letter.id for letter in bob.dead())) == 2
    assert ann.send("bob", "one", key="cross").repeated


def test_a_refused_letter_bounces_to_its_sender(room: Room) -> None:
    id = bury(room)
    (bounce,) = room.mailbox("ann").check()
    assert (bounce.sender, bounce.kind, bounce.subject) == ("postmaster", "bounce", f"Undeliverable: {id}")
    assert bounce.message.in_reply_to == bounce.thread == id
    assert "no x" in bounce.text


def test_a_bounce_never_bounces(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(max_attempts=1)
    bury(room)
    ann = room.mailbox("ann")
    ann.check()[0].reject("I do not want to know")
    assert room.mailbox("postmaster").check() == ann.check() == []
    bury(room)
    assert ann.claim(lease=1)
    clock.tick(2)
    room.sweep()
    assert len(ann.dead()) == 2
    assert room.mailbox("postmaster").check() == []


def test_no_agent_can_answer_the_post_room(room: Room) -> None:
    bury(room)
    (bounce,) = room.mailbox("ann").check()
    with pytest.raises(Exception, match="takes no mail") as refused:
        bounce.reply("but why")
    assert getattr(refused.value, "field", "") == "to"


def test_each_recipient_that_refuses_bounces_for_itself(room: Room) -> None:
    id = room.mailbox("ann").send(["bob", "carol"], "x").id
    for name in ("bob", "carol"):
        room.mailbox(name).read(id).reject("no")
    assert {letter.data["mailbox"] for letter in room.mailbox("ann").check()} == {"bob", "carol"}
