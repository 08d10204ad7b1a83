"""Values that no caller may set: those reserved for the post room, and unknown ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from postroom import Invalid, Mailbox, NotAllowed, Room, TooLarge
from tests.rooms import FakeClock, RoomFactory

UNKNOWN: dict[str, Callable[[Mailbox, str], Any]] = {
    "send": lambda box, _id: box.send("bob", "x", prioritty="high"),  # type: ignore[call-arg]
    "reply": lambda box, letter: box.reply(letter, "x", prioritty="high"),  # type: ignore[call-arg]
    "forward": lambda box, letter: box.forward(letter, "cleo", prioritty="high"),  # type: ignore[call-arg]
    "broadcast": lambda box, _id: box.broadcast("team", "x", prioritty="high"),  # type: ignore[call-arg]
    "sender": lambda box, _id: box.send("bob", "x", relays=True),  # type: ignore[call-arg]
    "check": lambda box, _id: box.check(prioritty="high"),  # type: ignore[call-arg]
    "wait": lambda box, _id: box.wait(0, prioritty="high"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("verb", UNKNOWN)
def test_a_word_nobody_knows_is_refused_with_those_that_are_known(room: Room, verb: str) -> None:
    sent = room.mailbox("ann").send("bob", "hello")
    with pytest.raises(Invalid, match="no such") as refused:
        UNKNOWN[verb](room.mailbox("ann"), sent.id)
    assert refused.value.field in {"prioritty", "relays"}
    assert "priority" in (refused.value.hint or "")


def test_only_the_post_room_writes_a_bounce(room: Room) -> None:
    with pytest.raises(Invalid) as refused:
        room.mailbox("ann").send("bob", "you failed", kind="bounce")
    assert refused.value.field == "kind"
    assert room.mailboxes() == []


def test_a_scopes_catch_all_cannot_be_named(room: Room) -> None:
    with pytest.raises(Invalid) as refused:
        room.mailbox("ann").send("bob", "x", conversation_id="conv-general:default")
    assert refused.value.field == "conversation_id"


def test_only_a_broadcast_excludes_agents(room: Room) -> None:
    from postroom import Draft

    with pytest.raises(Invalid) as refused:
        room.mailbox("ann").send_many([Draft(to="bob", body="x", exclude=["cleo"])])
    assert refused.value.field == "exclude"


def test_a_broadcast_has_the_limit_of_any_letter(factory: RoomFactory) -> None:
    room = factory.room(max_recipients=2)
    for name in ("bob", "cleo", "dan"):
        room.mailbox(name).register(scopes=["team"])
    with pytest.raises(TooLarge):
        room.mailbox("ann").broadcast("team", "x")
    room.mailbox("ann").broadcast("team", "x", exclude=["dan"])


def test_a_key_is_answered_though_the_first_letter_could_no_longer_be_sent(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    first = ann.send("bob", "x", key="k", expires=timedelta(seconds=5))
    room.mailbox("bob").register(allow_from=["cleo"])
    clock.advance(10)
    again = ann.send("bob", "x", key="k", expires=timedelta(seconds=-5))
    assert (again.id, again.repeated) == (first.id, True)
    with pytest.raises(NotAllowed):
        ann.send("bob", "x")


def test_a_reply_is_repeated_though_its_parent_is_gone(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    parent = ann.send("bob", "question")
    first = bob.send("ann", "answer", in_reply_to=parent.id, key="k")
    bob.read(parent.id).reject("read and dropped")
    assert bob.purge(parent.id) == 1
    again = bob.send("ann", "answer", in_reply_to=parent.id, key="k")
    assert (again.id, again.repeated, again.thread) == (first.id, True, parent.id)


def test_a_key_is_answered_though_its_letter_was_deleted_and_is_over(room: Room, clock: FakeClock) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    parent = ann.send("bob", "question")
    first = bob.send("ann", "answer", in_reply_to=parent.id, key="k", expires=5)
    for box, id in ((ann, first.id), (bob, parent.id)):
        box.read(id).reject("done with it")
        assert box.purge(id) == 1
    clock.advance(10)
    again = bob.send("ann", "answer", in_reply_to=parent.id, key="k", expires=-5)
    assert (again.id, again.repeated) == (first.id, True)
