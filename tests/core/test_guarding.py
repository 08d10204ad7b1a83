"""Whose mail is refused (D1, D5): blocked names, beside and before allow lists, decided in the commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import postroom
from postroom import Invalid, NotAllowed, Room, TooLarge
from postroom.core import agents
from postroom.model.record import GUARD, Record
from postroom.store.protocol import Put
from tests.rooms import RoomFactory, texts


def test_mail_from_a_blocked_name_is_refused_and_nothing_is_written(factory: RoomFactory, room: Room) -> None:
    bob = room.mailbox("bob")
    assert bob.block("ann") == ["ann"]
    before = factory.store.cursor()
    with pytest.raises(NotAllowed, match="takes no mail from 'ann'") as refused:
        room.mailbox("ann").send(["bob", "carol"], "x")
    assert refused.value.field == "to"
    assert factory.store.cursor() == before
    assert room.mailbox("carol").check() == []
    room.mailbox("dave").send("bob", "hello")
    assert texts(bob.check()) == ["hello"]


def test_who_asks_takes_the_answer_and_nothing_else(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    bob.register(allow_from=["carol"])
    request = bob.send("ann", "Which sort is stable?").id
    other = bob.send("carol", "not for ann").id
    ann.reply(request, "merge sort")
    assert texts(bob.check()) == ["merge sort"]
    with pytest.raises(NotAllowed):
        ann.send("bob", "by the way")
    with pytest.raises(postroom.PostroomError):
        ann.send("bob", "x", in_reply_to=other)
    mine = ann.send("carol", "x").id
    with pytest.raises(NotAllowed):
        ann.send("bob", "x", in_reply_to=mine)
    bob.block("ann")
    with pytest.raises(NotAllowed):
        ann.reply(request, "once more")


def test_every_way_of_writing_is_closed(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    bob.register(scopes=["team"])
    mine = bob.send("ann", "hi").id
    other = room.mailbox("carol").send("ann", "for bob").id
    bob.block("ann")
    ways: list[Callable[[], object]] = [
        lambda: ann.reply(mine, "x"),
        lambda: ann.forward(other, "bob"),
        lambda: ann.broadcast("team", "x"),
        lambda: ann.send("carol", "x", bcc="bob"),
        lambda: ann.send("bob", "x", at=60),
        lambda: ann.send([*(f"n{n}" for n in range(20)), "bob"], "x"),
    ]
    for act in ways:
        with pytest.raises(NotAllowed):
            act()
    assert bob.check() == []


def test_unblocking_takes_mail_again(room: Room) -> None:
    bob = room.mailbox("bob")
    bob.block("ann")
    assert bob.block("Carol") == ["Carol", "ann"]
    assert bob.block("carol") == ["Carol", "ann"]  # the same name
    assert bob.unblock("ANN") == ["Carol"]
    assert bob.unblock("never") == bob.blocked() == ["Carol"]
    room.mailbox("ann").send("bob", "x")
    assert texts(bob.check()) == ["x"]


def test_a_block_beats_the_allow_list_and_outlives_registering(factory: RoomFactory, room: Room) -> None:
    bob, ann = room.mailbox("bob"), room.mailbox("ann")
    bob.block("ann")
    bob.register(allow_from=["ann", "carol"])
    with pytest.raises(NotAllowed, match="has blocked the sender"):
        ann.send("bob", "x")
    with pytest.raises(NotAllowed, match="ask the owner of that agent"):
        room.mailbox("dave").send("bob", "x")
    room.mailbox("carol").send("bob", "x")
    bob.register()
    factory.reopen()
    later = factory.room()
    assert later.mailbox("bob").blocked() == ["ann"]
    with pytest.raises(NotAllowed):
        later.mailbox("ann").send("bob", "x")
    later.mailbox("bob").unblock("ann")
    assert factory.store.records(GUARD) == []  # nothing to say, nothing kept


def test_a_guard_of_an_older_room_is_a_plain_list(factory: RoomFactory, room: Room) -> None:
    factory.store.commit([Put(record=Record(kind=GUARD, key="bob", value=["ann"]))])
    with pytest.raises(NotAllowed):
        room.mailbox("carol").send("bob", "x")
    room.mailbox("bob").block("ann")
    with pytest.raises(NotAllowed):
        room.mailbox("ann").send("bob", "x")
    room.mailbox("bob").unblock("ann")
    assert factory.store.records(GUARD, "bob")[0].value == ["ann"]


def test_guards_go_with_an_export(factory: RoomFactory, room: Room, tmp_path: Any) -> None:
    room.mailbox("bob").block("ann")
    room.mailbox("carol").register(allow_from=["dave"])
    lines = list(room.export())
    (tmp_path / "other").mkdir()
    other = RoomFactory(factory.kind, tmp_path / "other", factory.clock)
    copy = other.room()
    copy.load(lines)
    assert copy.mailbox("bob").blocked() == ["ann"]
    with pytest.raises(NotAllowed):
        copy.mailbox("zoe").send("carol", "x")
    other.store.close()


@pytest.mark.parametrize("name", ["postmaster", "Bob", "", "a b", "../x", None, 7])
def test_a_name_that_cannot_be_blocked_is_refused(room: Room, name: Any) -> None:
    with pytest.raises(Invalid) as refused:
        room.mailbox("bob").block(name)
    assert refused.value.field == "name"
    assert room.mailbox("bob").blocked() == []


def test_there_is_an_end_to_blocking(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "MAX_BLOCKED", 2)
    bob = room.mailbox("bob")
    bob.block("a")
    bob.block("b")
    with pytest.raises(TooLarge):
        bob.block("c")


def test_many_at_once_lose_no_name(factory: RoomFactory) -> None:
    start = threading.Barrier(4)

    def work(number: int) -> None:
        bob = factory.room().mailbox("bob")
        start.wait(10)
        for n in range(5):
            bob.block(f"x{number}-{n}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(factory.room().mailbox("bob").blocked()) == 20
