"""Who may see what (L5, M11): bcc is known to the sender alone, a thread to those who wrote or got it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from postroom import Message, Room, UnknownMessage
from postroom.model.codec import encode
from tests.rooms import RoomFactory, addresses, spoken, texts


@pytest.fixture
def secret(room: Room) -> str:
    """From ann to bob, cc carol, bcc dave and eve."""
    return room.mailbox("ann").send("bob", "psst", cc="carol", bcc=["dave", "eve"], thread_tag="plan").id


def seen(messages: Iterable[Message]) -> set[str]:
    return {address for message in messages for address in addresses(message)}


@pytest.mark.parametrize(
    ("reader", "known"),
    [
        ("ann", {"bob", "carol", "dave", "eve"}),
        ("bob", {"bob", "carol"}),
        ("carol", {"bob", "carol"}),
        ("dave", {"bob", "carol", "dave"}),
        ("eve", {"bob", "carol", "eve"}),
    ],
)
def test_a_bcc_recipient_is_shown_to_the_sender_and_to_itself_alone(
    room: Room, secret: str, reader: str, known: set[str]
) -> None:
    box = room.mailbox(reader)
    assert seen(box.thread(secret)) == known
    assert seen(box.tagged("plan")) == known
    assert seen(box.reply_chain(secret)) == known
    hidden = {"dave", "eve"} - known
    assert not hidden & set(box.conversations()[0].participants)
    assert not hidden & set(box.conversation(box.conversations()[0].id).participants)
    assert all(name.encode() not in encode(box.turns(box.conversations()[0].id)) for name in hidden)
    if reader != "ann":
        assert seen(letter.message for letter in box.check(peek=True)) == known
        assert seen([box.read(secret).message]) == known
        assert all(name not in box.digest() + box.read(secret).to_markdown() for name in hidden)
        work = box.claim()
        assert work
        assert seen([work.message]) == known
        work.fail("no", retry=False)
        assert seen(letter.message for letter in box.dead()) == known


def test_the_room_itself_shows_no_bcc(room: Room, secret: str) -> None:
    assert seen(room.thread(secret)) == {"bob", "carol"}
    assert set(room.conversations()[0].participants) == {"ann", "bob", "carol"}


def test_an_answer_to_all_reaches_no_bcc_recipient(room: Room, secret: str) -> None:
    room.mailbox("bob").reply(secret, "to all", to_all=True)
    assert texts(room.mailbox("dave").check(unread_only=False)) == ["psst"]
    assert texts(room.mailbox("carol").check(unread_only=False)) == ["psst", "to all"]


def test_a_bcc_recipient_may_answer_and_is_shown_to_no_other_agent(room: Room, secret: str) -> None:
    room.mailbox("dave").reply(secret, "for you alone")
    assert spoken(room.mailbox("ann").thread(secret)) == ["psst", "for you alone"]
    assert spoken(room.mailbox("bob").thread(secret)) == ["psst"]
    assert room.mailbox("bob").threads() == []


def test_passing_a_letter_on_tells_of_no_bcc_recipient(room: Room, secret: str) -> None:
    forwarded = room.mailbox("dave").forward(secret, "frank").message
    assert b"eve" not in encode(forwarded)
    assert b"eve" not in encode(room.mailbox("frank").check()[0].message)


def test_a_bounce_shows_a_bcc_recipient_to_the_sender_alone(room: Room, secret: str) -> None:
    room.mailbox("dave").read(secret).reject("not mine")
    assert "dave" in room.mailbox("ann").check()[0].text
    assert spoken(room.mailbox("bob").thread(secret)) == ["psst"]


def test_nobody_sees_the_parts_of_a_thread_that_went_past_them(room: Room) -> None:
    root = room.mailbox("ann").send(["bob", "carol"], "root").id
    room.mailbox("bob").reply(root, "only for ann")
    assert spoken(room.mailbox("carol").thread(root)) == ["root"]
    assert spoken(room.mailbox("ann").thread(root)) == ["root", "only for ann"]
    assert room.mailbox("mallory").thread(root) == []
    assert room.mailbox("mallory").conversations() == []


def test_a_letter_of_others_is_as_unknown_as_one_that_is_not_there(factory: RoomFactory, room: Room) -> None:
    theirs = room.mailbox("ann").send("bob", "theirs").id
    mallory = room.mailbox("mallory")
    for act in (mallory.read, mallory.reply, mallory.reply_chain, mallory.revive):
        errors = []
        for id in (theirs, "0" * len(theirs)):
            with pytest.raises(UnknownMessage) as refused:
                act(id)
            errors.append(str(refused.value).replace(id, "ID"))
        assert errors[0] == errors[1]
    with pytest.raises(UnknownMessage) as refused:
        mallory.send("bob", "x", in_reply_to=theirs)
    assert refused.value.field == "in_reply_to"


def test_a_letter_that_is_not_due_is_unknown_to_its_recipient(room: Room) -> None:
    later = room.mailbox("ann").send("bob", "surprise", at=60, thread_tag="t").id
    bob = room.mailbox("bob")
    with pytest.raises(UnknownMessage):
        bob.read(later)
    assert not (bob.check() or bob.thread(later) or bob.tagged("t") or bob.conversations())
    assert spoken(room.mailbox("ann").thread(later)) == ["surprise"]
