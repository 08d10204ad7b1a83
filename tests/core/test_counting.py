"""A room in numbers, and its flow: what an operator looks at every second."""

from __future__ import annotations

import pytest

from postroom import Flow, LookAlike, Priority, Room, State
from postroom.store.protocol import RenewEpoch
from tests.rooms import FakeClock, RoomFactory


def fill(room: Room, clock: FakeClock) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.register()
    for text in ("done", "dead", "held", "new"):
        ann.send(["bob", "carol"], text, priority="high")
        clock.advance(10)
    ann.send("bob", "later", at=3600)
    for text in ("done", "dead", "held"):
        work = bob.claim(lease=600)
        assert work and work.text == text
        if text == "done":
            work.ack()
        elif text == "dead":
            work.fail("never", retry=False)


def test_a_room_is_reported_in_numbers(room: Room, clock: FakeClock) -> None:
    began = clock.wall
    fill(room, clock)
    stats = room.stats()
    assert (stats.letters, stats.deliveries) == (6, 10)  # the bounce is a letter too
    assert stats.states == {State.QUEUED: 1, State.UNREAD: 6, State.CLAIMED: 1, State.DONE: 1, State.DEAD: 1}
    assert stats.unread == {Priority.LOW: 0, Priority.NORMAL: 1, Priority.HIGH: 5, Priority.URGENT: 0}
    assert (stats.agents, stats.quarantined) == (1, 0)
    assert stats.oldest_unread_at == began
    assert [tally.mailbox for tally in stats.mailboxes] == ["ann", "bob", "carol"]


def test_an_empty_room_has_nothing_to_tell(room: Room) -> None:
    stats = room.stats()
    assert (stats.letters, stats.deliveries, stats.mailboxes, stats.oldest_unread_at) == (0, 0, (), None)
    assert set(stats.states.values()) == {0}


def test_a_mailbox_is_reported_in_numbers(room: Room, clock: FakeClock) -> None:
    fill(room, clock)
    bob = room.mailbox("bob").stats()
    assert (bob.total_unread, bob.claimed, bob.queued, bob.dead, bob.backlog) == (1, 1, 1, 1, 2)
    clock.advance(3600)
    assert room.mailbox("bob").stats().queued == 0  # it has come
    empty = room.mailbox("nobody").stats()
    assert (empty.mailbox, empty.total_unread, empty.backlog, empty.oldest_unread_at) == ("nobody", 0, 0, None)
    assert "nobody" not in room.mailboxes()


def test_a_look_alike_has_no_numbers(room: Room) -> None:
    room.mailbox("ann").send("bob", "x")
    with pytest.raises(LookAlike):
        room.mailbox("Bob").stats()


def test_flow_tells_what_happened_between_two_looks(room: Room, clock: FakeClock) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ann.send("bob", "before")
    first = room.flow()
    assert (first.seconds, first.sent, first.sent_per_second, first.settled_per_second) == (0, 0, 0, 0)
    assert (first.backlog, first.median_to_done) == (1, None)
    for number in range(6):
        ann.send("bob", str(number))
    clock.advance(3)
    for _ in range(4):
        work = bob.claim()
        assert work
        work.ack()
    second = room.flow(first)
    assert (second.seconds, second.sent, second.settled, second.died) == (3, 6, 4, 0)
    assert (second.sent_per_second, second.settled_per_second) == (2.0, 4 / 3)
    assert (second.backlog, second.median_to_done) == (3, 3.0)
    (agent,) = second.agents
    assert (agent.mailbox, agent.unread, agent.settled, agent.oldest_unread) == ("bob", 3, 4, 3.0)
    clock.advance(1)
    third = room.flow(second)
    assert (third.seconds, third.sent, third.settled) == (1, 0, 0)


def test_the_largest_backlog_comes_first_and_who_only_worked_is_there_too(room: Room, clock: FakeClock) -> None:
    ann = room.mailbox("ann")
    ann.send(["bob", "carol"], "x")
    last = room.flow()
    clock.advance(1)
    ann.send("dave", "y")
    ann.send("dave", "z")
    for letter in room.mailbox("bob").check():
        letter.ack()
    held = room.mailbox("dave").claim()
    assert held
    flow = room.flow(last)
    assert [agent.mailbox for agent in flow.agents] == ["dave", "carol", "bob"]
    assert (flow.agents[0].claimed, flow.agents[0].oldest_claimed) == (1, 0.0)
    assert (flow.agents[2].backlog, flow.agents[2].settled) == (0, 1)


def test_what_was_read_and_not_done_grows_old_too(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "x")
    room.mailbox("bob").check()
    clock.advance(90)
    (bob,) = room.flow().agents
    assert (bob.backlog, bob.unread, bob.oldest_unread, bob.oldest_seen) == (1, 0, None, 90.0)


def test_after_a_reboot_or_another_life_flow_starts_over(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room()
    room.mailbox("ann").send("bob", "x")
    last = room.flow()
    clock.advance(1)
    factory.store.commit([RenewEpoch()])
    again = room.flow(last)
    assert (again.seconds, again.sent, again.backlog) == (0, 0, 1)
    clock.reboot()
    assert room.flow(again).seconds == 0


def test_a_wall_clock_set_back_makes_no_age_negative(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send("bob", "x")
    clock.jump(-3600)
    flow: Flow = room.flow()
    assert flow.agents[0].oldest_unread == 0.0
