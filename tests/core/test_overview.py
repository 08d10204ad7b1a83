"""What waits for an agent, and for anybody: `waiting`."""

from __future__ import annotations

from postroom import Priority, Room
from tests.rooms import FakeClock


def let_things_wait(room: Room, clock: FakeClock) -> None:
    """One thing of each kind waits for the person, each a minute after the one before; one for dan."""
    human, bob = room.mailbox("human"), room.mailbox("bob")
    bob.send("human", "a plain letter\nof two lines")
    clock.advance(60)
    asked = bob.task(human.give_task("bob", "Do it.", subject="Do it").id)
    asked.accept()
    asked.start()
    asked.ask("Which one?")
    clock.advance(60)
    bob.escalate("No access.", reason="approval", ladder=["human"])
    clock.advance(60)
    room.mailbox("carol").give_task("human", "Sign this.", deadline=3600)
    clock.advance(60)
    room.mailbox("carol").send("human", "Fire!", priority="urgent")
    room.mailbox("carol").send("dan", "for dan")


def test_each_thing_waits_once_urgent_first_then_the_oldest(room: Room, clock: FakeClock) -> None:
    let_things_wait(room, clock)
    found = room.mailbox("human").waiting()
    assert [(one.what, one.sender, one.text) for one in found] == [
        ("letter", "carol", "Fire!"),
        ("escalation", "bob", "No access."),
        ("letter", "bob", "a plain letter"),
        ("question", "bob", "Which one?"),
        ("task", "carol", "Sign this."),
    ]
    assert {"human"} == {one.mailbox for one in found}
    assert [one.priority for one in found[:2]] == [Priority.URGENT, Priority.HIGH]
    assert found[-1].due_at is not None and found[2].read is False
    assert 7 == room.mailbox("human").counts()["total"], "nothing is read"


def test_without_mail_only_steps_are_listed_and_opened_letters_can_be_added(room: Room, clock: FakeClock) -> None:
    let_things_wait(room, clock)
    human = room.mailbox("human")
    assert ["escalation", "question", "task"] == [one.what for one in human.waiting(mail=False)]
    human.check()
    assert ["escalation", "question", "task"] == [one.what for one in human.waiting()]
    opened = human.waiting(opened=True)
    assert {(one.what, one.read) for one in opened if one.what == "letter"} == {("letter", True)}
    assert [one.id for one in human.waiting(limit=2)] == [one.id for one in human.waiting()][:2]


def test_of_the_whole_room_each_entry_says_for_whom_it_waits(room: Room, clock: FakeClock) -> None:
    let_things_wait(room, clock)
    whole = room.waiting()
    assert [one for one in whole if one.mailbox == "human"] == room.mailbox("human").waiting()
    assert ["for dan"] == [one.text for one in whole if one.mailbox == "dan"]


def test_an_answer_ends_the_waiting(room: Room, clock: FakeClock) -> None:
    let_things_wait(room, clock)
    human = room.mailbox("human")
    for one in human.waiting():
        letter = human.read(one.letter)
        if one.what in {"escalation", "letter"}:
            letter.ack_and_reply("Yes.")
    assert ["question", "task"] == [one.what for one in human.waiting()]
    assert [] == [one for one in room.waiting() if one.what == "escalation"]


def test_a_letter_that_was_taken_back_shows_nothing_of_its_text(room: Room) -> None:
    sent = room.mailbox("ann").escalate("a secret", reason="approval", ladder=["human"])
    room.mailbox("ann").unsend(sent.id)
    assert [] == room.mailbox("human").waiting() == room.waiting()
