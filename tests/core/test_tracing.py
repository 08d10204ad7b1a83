"""The life of one letter: everything for the operator, and for everybody else only what is theirs."""

from __future__ import annotations

import pytest

from postroom import Room, State, TaskState, UnknownMessage
from postroom.model.codec import encode
from tests.rooms import FakeClock, addresses, spoken


def test_the_operator_sees_the_whole_life_of_a_letter(room: Room, clock: FakeClock) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    sent = ann.send("bob", "question", cc="carol", bcc="eve", id="m-1")
    clock.advance(5)
    work = bob.claim(lease=60, holder="worker 7")
    assert work
    work.fail("not now")
    clock.advance(60)
    work = bob.claim(lease=60, holder="worker 8")
    assert work
    work.ack_and_reply("answer")
    room.mailbox("carol").forward("m-1", "dave", "look")
    room.mailbox("eve").read("m-1").reject("not mine")
    trace = room.trace("m-1")
    assert (trace.message, trace.number) == (sent.message, 1)
    stops = {stop.mailbox: stop for stop in trace.stops}
    assert list(stops) == ["bob", "carol", "eve"]
    done = stops["bob"]
    assert (done.state, done.kind, done.attempts, done.holder) == (State.DONE, "to", 1, "worker 8")
    assert (done.delivered_at, done.acked_at) == (sent.message.created_at, clock.wall)
    assert [(a.holder, a.reason) for a in done.history] == [("worker 7", "not now")]
    assert (stops["eve"].state, stops["eve"].reason, stops["eve"].kind) == (State.DEAD, "not mine", "bcc")
    assert spoken(list(trace.replies)) == ["answer"]
    assert [addresses(message) for message in trace.relays] == [["dave"]]
    assert [message.sender for message in trace.bounces] == ["postmaster"]


def test_no_trace_shows_the_token_of_a_lease(room: Room) -> None:
    room.mailbox("ann").send("bob", "x", id="m-1")
    work = room.mailbox("bob").claim()
    assert work and work.delivery.lease
    for trace in (room.trace("m-1"), room.mailbox("ann").trace("m-1"), room.mailbox("bob").trace("m-1")):
        assert work.delivery.lease.token.encode() not in encode(trace)


def test_a_sender_sees_where_its_letter_is_but_not_who_holds_it(room: Room) -> None:
    room.mailbox("ann").send(["bob", "carol"], "x", bcc="eve", id="m-1")
    work = room.mailbox("bob").claim(holder="a secret name")
    assert work
    trace = room.mailbox("ann").trace("m-1")
    assert [(stop.mailbox, stop.state) for stop in trace.stops] == [
        ("bob", State.CLAIMED),
        ("carol", State.UNREAD),
        ("eve", State.UNREAD),
    ]
    assert b"a secret name" not in encode(trace)
    assert room.mailbox("bob").trace("m-1").stops[0].holder == "a secret name"


def test_a_recipient_sees_its_own_part_alone(room: Room) -> None:
    room.mailbox("ann").send(["bob", "carol"], "x", bcc="eve", id="m-1")
    room.mailbox("carol").reply("m-1", "only for ann")
    room.mailbox("carol").forward("m-1", "dave")
    trace = room.mailbox("bob").trace("m-1")
    assert [stop.mailbox for stop in trace.stops] == ["bob"]
    assert addresses(trace.message) == ["bob", "carol"]
    assert (trace.replies, trace.relays, trace.bounces) == ((), (), ())
    assert addresses(room.mailbox("eve").trace("m-1").message) == ["bob", "carol", "eve"]


def test_a_reply_shows_no_bcc_to_those_it_is_hidden_from(room: Room) -> None:
    room.mailbox("ann").send("bob", "x", id="m-1")
    room.mailbox("bob").reply("m-1", "y", bcc="eve")
    (answer,) = room.mailbox("ann").trace("m-1").replies
    assert addresses(answer) == ["ann"]


def test_what_is_not_there_and_what_is_anothers_look_the_same(room: Room) -> None:
    room.mailbox("ann").send("bob", "x", id="m-1")
    room.mailbox("ann").send("carol", "x", at=60, id="m-2")
    errors = []
    for name, id in (("eve", "m-1"), ("eve", "m-9"), ("carol", "m-2")):
        with pytest.raises(UnknownMessage) as refused:
            room.mailbox(name).trace(id)
        errors.append(str(refused.value).replace(id, "ID"))
    assert len(set(errors)) == 1


def test_the_operator_is_notified_that_a_letter_was_deleted(room: Room) -> None:
    room.mailbox("ann").send("bob", "x", id="m-1")
    room.mailbox("bob").read("m-1").reject("no")
    room.mailbox("bob").purge("m-1")
    with pytest.raises(UnknownMessage, match="it was deleted at"):
        room.trace("m-1")
    with pytest.raises(UnknownMessage) as refused:
        room.mailbox("bob").trace("m-1")
    assert refused.value.hint is None


def test_a_relay_of_ones_own_letter_is_a_relay(room: Room) -> None:
    room.mailbox("ann").send("bob", "x", id="m-1")
    room.mailbox("ann").forward("m-1", "carol")
    room.mailbox("ann").reply("m-1", "and another thing")
    trace = room.mailbox("ann").trace("m-1")
    assert [addresses(message) for message in trace.relays] == [["carol"]]
    assert [addresses(message) for message in trace.replies] == [["bob"]]


def test_rung_shown_acknowledged_and_done_are_different_facts(room: Room, clock: FakeClock) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    bob.begin_alerts("claude")
    id = ann.give_task("bob", "mend it").id
    clock.advance(1)
    assert bob.next_alert("claude")
    rung_at = clock.wall
    (stop,) = room.trace(id).stops
    assert ([rung_at], (), None, None) == (
        [ring.at for ring in stop.rings],
        stop.sights,
        stop.read_at,
        stop.acked_at,
    )
    clock.advance(1)
    bob.mark_shown(id, "claude", "Stop")
    (stop,) = room.trace(id).stops
    assert (clock.wall, clock.wall, None) == (stop.sights[0].at, stop.read_at, stop.acked_at)
    clock.advance(1)
    acked_at = clock.wall
    work = bob.claim()
    assert work
    bob.task(work).accept()
    (stop,) = room.trace(id).stops
    assert (acked_at, TaskState.ACCEPTED, None) == (stop.acked_at, stop.task, stop.done_at)
    clock.advance(1)
    bob.task(id).complete()
    (stop,) = room.trace(id).stops
    assert (acked_at, TaskState.COMPLETED, clock.wall) == (stop.acked_at, stop.task, stop.done_at)


def test_a_sender_learns_that_its_letter_was_rung_and_shown_and_no_more(room: Room, clock: FakeClock) -> None:
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    bob.begin_alerts("exec")
    id = ann.send("bob", "x", cc="carol").id
    clock.advance(1)
    assert bob.next_alert("exec")
    bob.alert_failed("exec", id, "a secret reason")
    bob.mark_shown(id, "claude", "a secret place")
    seen = {stop.mailbox: stop for stop in ann.trace(id).stops}
    assert ("exec", "failed") == (seen["bob"].rings[0].way, seen["bob"].rings[0].outcome)
    assert "claude" == seen["bob"].sights[0].host
    assert b"secret" not in encode(ann.trace(id))
    assert ((), ()) == (seen["carol"].rings, seen["carol"].sights)
    assert 2 == encode(bob.trace(id)).count(b"secret") == encode(room.trace(id)).count(b"secret")
