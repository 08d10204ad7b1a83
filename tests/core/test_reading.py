"""Looking at mail (L5, L6, M3, M4): filters, counts, and that reading never consumes."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from postroom import IllegalMove, LeaseLost, Room, State, UnknownMessage, draft
from tests.rooms import FakeClock, RoomFactory, texts


def test_check_stamps_what_it_returns_and_consumes_nothing(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "x")
    bob = room.mailbox("bob")
    (letter,) = bob.check()
    assert letter.delivery.read_at == clock.wall
    assert letter.state is State.UNREAD
    clock.advance(60)
    assert bob.check() == []
    (again,) = bob.check(unread_only=False)
    assert again.delivery.read_at == letter.delivery.read_at
    assert bob.claim()


def test_a_peek_leaves_no_mark(room: Room) -> None:
    room.mailbox("ann").send("bob", "x")
    bob = room.mailbox("bob")
    before = room.cursor()
    assert texts(bob.check(peek=True)) == texts(bob.check(peek=True, unread_only=False)) == ["x"]
    assert bob.wait(0, peek=True)
    assert room.cursor() == before


def test_unread_mail_comes_before_read_mail(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "old urgent", priority="urgent")
    bob.check()
    ann.send("bob", "new low", priority="low")
    ann.send("bob", "new high", priority="high")
    assert texts(bob.check(unread_only=False)) == ["new high", "new low", "old urgent"]
    assert all(letter.delivery.read_at for letter in bob.check(unread_only=False))


def test_read_stamps_one_letter_once(room: Room, clock: FakeClock) -> None:
    id = room.mailbox("ann").send("bob", "x").id
    bob = room.mailbox("bob")
    first = bob.read(id).delivery.read_at
    clock.advance(5)
    assert bob.read(id).delivery.read_at == first == clock.wall - timedelta(seconds=5)
    with pytest.raises(UnknownMessage):
        room.mailbox("carol").read(id)


def test_settled_mail_can_still_be_read(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    done, dead = ann.send("bob", "done").id, ann.send("bob", "dead").id
    bob.read(done).ack()
    bob.read(dead).reject("no")
    assert (bob.read(done).state, bob.read(dead).state) == (State.DONE, State.DEAD)
    assert bob.check(unread_only=False) == []


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"kinds": "task"}, ["b"]),
    ({"kinds": ["task", "message"]}, ["b", "a"]),
    ({"min_priority": "high"}, ["b"]),
    ({"min_priority": 1}, ["b", "a", "c"]),
    ({"sender": "carl"}, ["c"]),
    ({"tag": "t2"}, ["c"]),
    ({"thread_tag": "talk"}, ["c"]),
    ({"scope": "research"}, ["a"]),
    ({"scope": "default"}, ["b", "c"]),
    ({"thread": "id-b"}, ["b"]),
    ({"sender": "carl", "tag": "t1"}, ["c"]),
    ({"sender": "carl", "kinds": "task"}, []),
    ({"sender": "nobody"}, []),
]


@pytest.mark.parametrize(("filters", "expected"), FILTERS, ids=str)
def test_a_filter_narrows_what_is_checked_and_what_is_claimed(
    room: Room, filters: Any, expected: list[str]
) -> None:
    room.mailbox("ann").send("bob", "a", scope="research")
    room.mailbox("ann").send("bob", "b", kind="task", priority="urgent", id="id-b")
    room.mailbox("carl").send("bob", "c", tags=["t1", "t2"], thread_tag="talk", kind="note")
    bob = room.mailbox("bob")
    assert texts(bob.check(peek=True, **filters)) == expected
    assert texts(bob.check(peek=True, limit=1, **filters)) == expected[:1]
    assert [work.text for work in bob.claim(10, **filters)] == expected


def test_since_is_when_a_letter_was_written(room: Room, clock: FakeClock) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "old")
    clock.advance(60)
    ann.send("bob", "new")
    assert texts(bob.check(since=clock.wall, peek=True)) == ["new"]
    assert texts(bob.check(since=clock.wall - timedelta(seconds=60), peek=True)) == ["old", "new"]


def test_a_limit_is_kept_and_none_means_all(room: Room) -> None:
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(25)])
    bob = room.mailbox("bob")
    assert len(bob.check(peek=True)) == 20
    assert len(bob.check(3)) == 3
    assert len(bob.check(None)) == 22


def test_a_whole_large_inbox_can_be_read_at_once(room: Room) -> None:
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(450)])
    assert all(letter.delivery.read_at for letter in room.mailbox("bob").check(None, unread_only=False))
    assert room.mailbox("bob").counts()["total"] == 0


def test_counts_are_by_priority_the_highest_first(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    for priority in ("low", "urgent", "urgent", "normal"):
        ann.send("bob", "x", priority=priority)
    ann.send("bob", "later", at=60)
    assert list(bob.counts().items()) == [("urgent", 2), ("high", 0), ("normal", 1), ("low", 1), ("total", 4)]
    bob.check(2)
    assert bob.counts()["total"] == 2
    assert room.mailbox("nobody").counts()["total"] == 0


def test_expired_mail_is_dead_with_the_reason_and_kept(room: Room, clock: FakeClock) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    id = ann.send("bob", "x", expires=60).id
    clock.advance(59)
    assert texts(bob.check(peek=True)) == ["x"]
    clock.advance(1)
    assert bob.counts()["total"] == 0
    assert not (bob.check() or bob.claim() or bob.wait(0))
    (dead,) = bob.dead()
    assert (dead.id, dead.delivery.reason, dead.delivery.dead_at) == (id, "expired", clock.wall)
    assert bob.read(id).text == "x"


def test_dead_letters_are_listed_though_nobody_looked_before(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "x", expires=60)
    clock.advance(61)
    assert [letter.delivery.reason for letter in room.mailbox("bob").dead()] == ["expired"]


def test_mail_that_came_due_and_expired_unseen_is_not_offered(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "x", at=60, expires=120)
    clock.advance(121)
    bob = room.mailbox("bob")
    assert bob.check() == []
    assert [letter.delivery.reason for letter in bob.dead()] == ["expired"]


def test_claimed_mail_does_not_expire_under_its_holder(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "x", expires=60)
    work = room.mailbox("bob").claim(lease=600)
    assert work
    clock.advance(120)
    room.sweep()
    work.ack()
    assert work.state is State.DONE


@pytest.mark.parametrize("seconds", [60, timedelta(minutes=1)])
def test_mail_for_later_comes_when_it_is_due(room: Room, clock: FakeClock, seconds: Any) -> None:
    room.mailbox("ann").send("bob", "x", at=seconds)
    room.mailbox("ann").send("bob", "at once", at=clock.wall - timedelta(seconds=1))
    bob = room.mailbox("bob")
    assert texts(bob.check()) == ["at once"]
    clock.advance(60)
    (letter,) = bob.check()
    assert (letter.text, letter.delivery.delivered_at, letter.delivery.due_at) == ("x", clock.wall, None)


def test_a_reader_of_claimed_mail_does_not_hold_it(room: Room) -> None:
    cursor = room.cursor()
    id = room.mailbox("ann").send("bob", "x").id
    bob = room.mailbox("bob")
    work = bob.claim(holder="worker-1")
    assert work
    waited = bob.wait(0, since=cursor)
    assert waited
    for onlooker in (bob.read(id), waited):
        with pytest.raises(LeaseLost, match="worker-1"):
            onlooker.ack()
        with pytest.raises(LeaseLost):
            onlooker.reject("mine")
    work.ack()
    assert bob.read(id).state is State.DONE


def test_mail_that_was_looked_at_can_be_acknowledged_or_refused(room: Room) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    for text in ("one", "two"):
        ann.send("bob", text)
    one, two = bob.check()
    one.ack(archive=False)
    one.ack()
    two.reject("not for me")
    assert (one.delivery.archived_at, one.state, two.state) == (None, State.DONE, State.DEAD)
    with pytest.raises(IllegalMove):
        bob.read(one.id).reject("too late")
    assert ann.check()[0].message.in_reply_to == two.id


def test_many_readers_at_once_stamp_each_letter_once(factory: RoomFactory) -> None:
    room = factory.room()
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(30)])
    seen: list[str] = []

    def read() -> None:
        seen.extend(texts(room.mailbox("bob").check(None)))

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(30)
    assert sorted(set(seen), key=int) == [str(n) for n in range(30)]
    assert room.mailbox("bob").check() == []
