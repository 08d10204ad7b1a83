"""What waits for an agent, and for anybody: `waiting`; who waits for whom, and what is stuck: `board`."""

from __future__ import annotations

import pytest

from postroom import NotAllowed, Priority, Room
from postroom.core.authorize import agent_principal
from postroom.model.peer import Peer
from tests.core.peering import know_peer
from tests.people import person
from tests.rooms import FakeClock, RoomFactory


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


def test_each_thing_waits_once_urgent_first_then_by_kind(room: Room, clock: FakeClock) -> None:
    let_things_wait(room, clock)
    found = room.mailbox("human").waiting()
    assert [(one.what, one.sender, one.text) for one in found] == [
        ("letter", "carol", "Fire!"),
        ("question", "bob", "Which one?"),
        ("escalation", "bob", "No access."),
        ("task", "carol", "Sign this."),
        ("letter", "bob", "a plain letter"),
    ]
    assert {"human"} == {one.mailbox for one in found}
    assert [one.priority for one in found[:2]] == [Priority.URGENT, Priority.NORMAL]
    assert found[3].due_at is not None and found[-1].read is False
    assert 7 == room.mailbox("human").counts()["total"], "nothing is read"


def test_without_mail_only_steps_are_listed_and_opened_letters_can_be_added(room: Room, clock: FakeClock) -> None:
    let_things_wait(room, clock)
    human = person(room)
    assert ["question", "escalation", "task"] == [one.what for one in human.waiting(mail=False)]
    human.check()
    assert ["question", "escalation", "task"] == [one.what for one in human.waiting()]
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
    human = person(room)
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


# -- the board


def parties(room: Room, me: str = "") -> set[tuple[str, str, str]]:
    found = room.mailbox(me).board() if me else room.board()
    return {(one.what, one.asker, one.waits_for) for one in found.waits}


def test_the_board_says_who_waits_for_whom_the_longest_first(room: Room, clock: FakeClock) -> None:
    let_things_wait(room, clock)
    request = room.mailbox("dan").send(["erin", "fay"], "Please review.", kind="request", subject="Review")
    expected = [("question", "bob", "human"), ("escalation", "bob", "human")]
    requests = [("request", "dan", "erin"), ("request", "dan", "fay")]
    found = room.board()
    assert expected + requests == [(one.what, one.asker, one.waits_for) for one in found.waits]
    assert found.waits[-1].since == clock.wall and ("", clock.wall) == (found.mailbox, found.at)
    assert set(requests) == parties(room, "dan") and {requests[0]} == parties(room, "erin")
    assert set(expected) == parties(room, "human") == parties(room, "bob") and set() == parties(room, "carol")
    room.mailbox("erin").reply(request.id, "Looks good.")  # it is answered, and not settled
    room.mailbox("fay").read(request.id).ack()
    assert expected == [(one.what, one.asker, one.waits_for) for one in room.board().waits]


def test_a_request_that_has_not_arrived_is_shown_to_its_sender_alone(room: Room) -> None:
    room.mailbox("ann").send("bob", "later", kind="request", at=3600)
    assert {("request", "ann", "bob")} == parties(room, "ann") == parties(room)
    assert set() == parties(room, "bob")


def test_deadlines_say_who_holds_the_task_and_whether_they_are_over(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    soon = ann.give_task("bob", "x", deadline=60, subject="Soon")
    ann.give_task("carol", "y", deadline=3600, subject="Later")
    ann.give_task("dan", "no deadline")
    over = ann.give_task("erin", "z", deadline=90)
    room.mailbox("erin").task(over.id).reject("no")
    clock.advance(61)
    found = [(one.subject, one.giver, one.receiver, one.is_over) for one in room.board().deadlines]
    assert [("Soon", "ann", "bob", True), ("Later", "ann", "carol", False)] == found
    assert [soon.id] == [one.id for one in room.mailbox("bob").board().deadlines]
    assert [] == room.mailbox("dan").board().deadlines
    hidden = ann.give_task("fay", "x", deadline=7200, at=3600)
    assert [] == room.mailbox("fay").board().deadlines
    assert hidden.id in {one.id for one in ann.board().deadlines}


def test_claims_are_stuck_when_the_lease_is_over_or_tries_failed_or_the_process_is_gone(
    room: Room, clock: FakeClock
) -> None:
    sent = [room.mailbox("ann").send(name, "x").id for name in ("bob", "carol", "dan", "erin")]
    for _ in range(2):
        work = room.mailbox("carol").claim()
        assert work is not None
        work.fail("no luck")
        clock.advance(3600)
    room.mailbox("carol").claim(lease=7200)
    room.mailbox("dan").claim(holder="dan (process 999999999)", lease=7200)
    room.mailbox("erin").claim(lease=7200)
    room.mailbox("bob").claim(lease=10)
    clock.advance(11)
    stuck = {one.id: one for one in room.board().stuck}
    assert ["the lease is over"] == stuck[sent[0]].why and "bob" == stuck[sent[0]].mailbox
    assert (["2 attempts failed"], 2) == (stuck[sent[1]].why, stuck[sent[1]].attempts)
    assert ["the process that holds it is gone"] == stuck[sent[2]].why
    assert sent[3] not in stuck and {sent[0]} == {one.id for one in room.mailbox("bob").board().stuck}


def test_dead_letters_are_counted_as_their_owner_sees_them(room: Room) -> None:
    for _ in range(3):
        room.mailbox("bob").read(room.mailbox("ann").send("bob", "x").id).reject("no")
    room.mailbox("carol").read(room.mailbox("ann").send("carol", "x").id).reject("no")
    first = room.board(limit=1)
    assert ([("bob", 3)], 1) == ([(one.mailbox, one.dead) for one in first.dead], first.more["dead"])
    room.mailbox("ann").unsend(room.mailbox("ann").send("dan", "x").id)
    found = room.board()
    assert [("bob", 3), ("carol", 1)] == [(one.mailbox, one.dead) for one in found.dead]
    assert [("bob", 3)] == [(one.mailbox, one.dead) for one in room.mailbox("bob").board().dead]
    assert [] == room.mailbox("ann").board().dead


def test_links_are_shown_to_the_operator_and_to_whose_mail_waits_for_them(room: Room) -> None:
    for system in ("far", "near"):
        know_peer(room, Peer(system=system, auth="none", exposure="all"))
    room.mailbox("ann").send("zoe@far", "x")
    assert {("far", "unserved"), ("near", "unserved")} == {(one.system, one.state) for one in room.board().links}
    assert ["far"] == [one.system for one in room.mailbox("ann").board().links]
    assert [] == room.mailbox("bob").board().links


def test_every_list_is_bounded_and_says_how_much_is_left_out(room: Room) -> None:
    for number in range(5):
        room.mailbox("ann").send("bob", "x", kind="request", subject=str(number))
    found = room.board(limit=2)
    assert (["0", "1"], 3) == ([one.subject for one in found.waits], found.more["waits"])
    assert 0 == room.board().more["waits"]


def test_an_agent_sees_its_own_board_alone(factory: RoomFactory) -> None:
    as_ann = factory.room(principal=agent_principal("ann"))
    factory.room().mailbox("bob").send("carol", "x", kind="request")
    assert [] == as_ann.mailbox("ann").board().waits
    for look in (as_ann.mailbox("bob").board, as_ann.board, as_ann.mailbox("bob").waiting, as_ann.waiting):
        with pytest.raises(NotAllowed):
            look()
