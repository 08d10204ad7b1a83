"""Limits (L8): exactly at the limit it goes, one over it is refused, and all of them can be set."""

from __future__ import annotations

from typing import Any

import pytest

import postroom
from postroom import PostroomError, QuotaFull, Room, TooLarge
from postroom.model.codec import encode
from tests.rooms import RoomFactory


def refuse(room: Room, error: type[PostroomError], field: str, *to: Any, **fields: Any) -> None:
    count = len(room.mailboxes())
    with pytest.raises(error) as refused:
        room.mailbox("ann").send(*to, **fields)
    assert refused.value.field == field
    assert len(room.mailboxes()) == count


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"k": value}
    return value


def test_a_letter_may_be_as_large_as_the_limit_and_not_a_byte_larger(factory: RoomFactory) -> None:
    frame = len(encode(factory.room().mailbox("ann").send("bob", "x").message)) - 1
    for limit in (1000, 1024 * 1024):
        room = factory.room(max_message_bytes=limit)
        sent = room.mailbox("ann").send("bob", "x" * (limit - frame))
        assert len(encode(sent.message)) == limit
        refuse(room, TooLarge, "body", "bob", "x" * (limit - frame + 1))


def test_a_reply_that_its_thread_makes_too_large_is_refused(factory: RoomFactory) -> None:
    frame = len(encode(factory.room().mailbox("bob").send("ann", "x").message))
    letter = factory.room().mailbox("ann").send("bob", "x")
    room = factory.room(max_message_bytes=frame + 60)  # room for in_reply_to, not for the thread's id
    with pytest.raises(TooLarge):
        room.mailbox("bob").reply(letter.id, "x")


@pytest.mark.parametrize("limit", [3, 256])
def test_a_letter_has_so_many_parts_and_no_more(factory: RoomFactory, limit: int) -> None:
    room = factory.room(max_parts=limit)
    room.mailbox("ann").send("bob", ["p"] * limit)
    refuse(room, TooLarge, "body", "bob", ["p"] * (limit + 1))
    refuse(room, TooLarge, "body", "bob", ["p"] * limit, data=1)


@pytest.mark.parametrize("limit", [3, 10_000])
def test_a_letter_goes_to_so_many_and_no_more(factory: RoomFactory, limit: int) -> None:
    room = factory.room(max_recipients=limit)
    names = [f"agent-{number}" for number in range(limit)]
    sent = room.mailbox("ann").send(names[:-1], "x", cc=names[-1], bcc=names)
    assert len(sent.message.recipients) == limit
    assert len(room.mailboxes()) == limit + 1
    refuse(room, TooLarge, "bcc", names, "x", bcc="one-more")
    refuse(room, TooLarge, "to", [*names, "one-more"], "x")


@pytest.mark.parametrize("field", ["metadata", "context", "callback", "extra"])
@pytest.mark.parametrize("limit", [3, 64])
def test_json_is_so_deep_and_no_deeper(factory: RoomFactory, field: str, limit: int) -> None:
    room = factory.room(max_depth=limit)
    room.mailbox("ann").send("bob", **{field: deep(limit)})
    with pytest.raises(TooLarge) as refused:
        room.mailbox("ann").send("bob", **{field: deep(limit + 1)})
    assert str(refused.value.field).startswith(field)


def test_a_part_is_one_level_of_its_data(factory: RoomFactory) -> None:
    room = factory.room()
    room.mailbox("ann").send("bob", postroom.data(deep(63)), data=deep(63))
    for body, data in [(postroom.data(deep(64)), None), (None, deep(64)), (deep(100_000), None)]:
        with pytest.raises(TooLarge):
            room.mailbox("ann").send("bob", body, data=data)


def test_a_full_inbox_refuses_for_a_time_and_drops_nothing(factory: RoomFactory) -> None:
    room = factory.room(inbox_quota=3)
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    for number in range(3):
        room.mailbox(f"sender{number}").send("bob", str(number))
    with pytest.raises(QuotaFull) as refused:
        ann.send(["carol", "bob"], "one too many")
    assert refused.value.temporary
    assert refused.value.field == "to"
    assert bob.counts()["total"] == 3
    assert "carol" not in room.mailboxes()
    bob.check(limit=1)  # what was read needs no room any more
    again = ann.send(["carol", "bob"], "one too many", key=refused.value.key or "")
    assert not again.repeated
    assert bob.counts()["total"] == 3


def test_waiting_and_claimed_mail_fill_an_inbox_too(factory: RoomFactory) -> None:
    room = factory.room(inbox_quota=2)
    ann = room.mailbox("ann")
    ann.send("bob", "later", at=60)
    room.mailbox("eve").send("bob", "claimed")
    assert room.mailbox("bob").claim()
    with pytest.raises(QuotaFull, match="full"):
        room.mailbox("max").send("bob", "more")


def test_a_notice_of_the_post_room_fits_in_a_full_inbox(factory: RoomFactory) -> None:
    room = factory.room(inbox_quota=1)
    room.mailbox("ann").send("bob", "x")
    room.mailbox("carol").send("ann", "fills it")
    room.mailbox("bob").check()[0].reject("no")
    assert room.mailbox("ann").counts()["total"] == 2
