"""Any number of letters settled in one commit, however they were found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from postroom import Invalid, LeaseLost, Letter, Mailbox, Room, State, draft
from tests.rooms import FakeClock, texts

Verb = Callable[[Mailbox, Any], object]
VERBS: dict[str, Verb] = {
    "ack": lambda box, letters: box.ack(letters),
    "ack_and_send": lambda box, letters: box.ack_and_send(letters, []),
    "fail": lambda box, letters: box.fail(letters, "no"),
    "reject": lambda box, letters: box.reject(letters, "no"),
    "release": lambda box, letters: box.release(letters),
    "renew": lambda box, letters: box.renew(letters, 60),
}


def fill(room: Room, count: int = 3) -> None:
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(count)])


def test_letters_that_were_only_read_are_done_together(room: Room) -> None:
    fill(room)
    bob = room.mailbox("bob")
    found = bob.check()
    before = room.cursor()
    bob.ack(found, archive=False)
    assert [letter.state for letter in found] == [State.DONE] * 3
    assert room.cursor().number == before.number + 3
    assert bob.check(unread_only=False) == []


def test_letters_of_several_claims_are_settled_together(room: Room, clock: FakeClock) -> None:
    fill(room)
    bob = room.mailbox("bob")
    works = [*bob.claim(2), *bob.claim(1)]
    bob.renew(works, 600)
    clock.advance(300)
    bob.fail(works[:2], "not now")
    bob.release(works[2:])
    assert [(work.state, work.delivery.attempts) for work in works] == [
        (State.UNREAD, 1), (State.UNREAD, 1), (State.UNREAD, 0),
    ]  # fmt: skip


def test_what_is_refused_goes_to_the_dead_letters_and_each_sender_is_notified(room: Room) -> None:
    room.mailbox("ann").send("bob", "1")
    room.mailbox("cleo").send("bob", "2")
    bob = room.mailbox("bob")
    bob.reject(bob.check(), "cannot be read")
    assert [letter.delivery.reason for letter in bob.dead()] == ["cannot be read"] * 2
    assert [room.mailbox(name).counts()["total"] for name in ("ann", "cleo")] == [1, 1]


def test_done_and_further_letters_sent_is_one_commit(room: Room) -> None:
    fill(room, 2)
    bob = room.mailbox("bob")
    receipts = bob.ack_and_send(bob.claim(2), [draft("ann", "both"), draft("cleo", "both")])
    assert [receipt.message.sender for receipt in receipts] == ["bob", "bob"]
    assert texts(room.mailbox("ann").check()) == texts(room.mailbox("cleo").check()) == ["both"]
    assert bob.claim() is None


def test_when_one_cannot_be_settled_none_is(room: Room) -> None:
    fill(room, 2)
    bob = room.mailbox("bob")
    first, second = bob.check()
    assert bob.claim() is not None
    with pytest.raises(LeaseLost):
        bob.ack([second, first])
    assert [letter.state for letter in bob.check(unread_only=False)] == [State.UNREAD]
    with pytest.raises(LeaseLost):
        bob.ack_and_send([first, second], [draft("ann", "never sent")])
    assert room.mailbox("ann").check() == []


def test_a_letter_that_was_read_is_answered_and_done_in_one_commit(room: Room) -> None:
    fill(room, 1)
    letter = room.mailbox("bob").check()[0]
    receipt = letter.ack_and_reply("yes")
    assert (letter.state, receipt.thread) == (State.DONE, letter.id)
    assert texts(room.mailbox("ann").check()) == ["yes"]


def test_a_letter_named_twice_is_settled_once(room: Room) -> None:
    fill(room, 1)
    bob = room.mailbox("bob")
    letter, again = bob.read(bob.check()[0].id), bob.check(unread_only=False)[0]
    bob.ack([letter, again, letter])
    assert letter.state is again.state is State.DONE


def test_a_batch_can_fail_as_one(room: Room) -> None:
    fill(room, 2)
    batch = room.mailbox("bob").claim(2)
    batch[0].ack()
    batch.fail("broken", retry=False)
    assert [work.state for work in batch] == [State.DONE, State.DEAD]


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_nothing_at_all_is_settled_without_a_word(room: Room, verb: Verb) -> None:
    before = room.cursor()
    verb(room.mailbox("bob"), [])
    assert room.cursor() == before


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("letters", [None, "m-1", ["m-1"], {}, 3])
def test_what_is_no_list_of_letters_is_refused(room: Room, verb: Verb, letters: Any) -> None:
    with pytest.raises(Invalid) as refused:
        verb(room.mailbox("bob"), letters)
    assert refused.value.field == "letters"


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_another_mailbox_s_letters_are_refused(room: Room, verb: Verb) -> None:
    fill(room, 1)
    letters: list[Letter] = room.mailbox("bob").check()
    with pytest.raises(Invalid, match="lies in the mailbox of 'bob'"):
        verb(room.mailbox("cleo"), letters)
