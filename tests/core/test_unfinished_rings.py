"""Rings that are to be said to be done (B2): nobody is told twice, and none is lost with who should have rung."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Mailbox, Room
from postroom.core.alerts import CUT_OFF, audit_of, find_log
from postroom.model.alert import AlertLog, Later, Rung
from postroom.model.query import Moment
from postroom.policy import alerts
from tests.alerts.histories import plant
from tests.rooms import FakeClock, RoomFactory

WITHIN = 70.0


@pytest.fixture
def bob(room: Room) -> Mailbox:
    return watched(room)


def watched(room: Room) -> Mailbox:
    box = room.mailbox("bob")
    box.begin_alerts("exec")
    return box


def post(room: Room, **fields: Any) -> str:
    return room.mailbox("ann").send("bob", "x", **fields).id


def rung(box: Mailbox) -> tuple[str, ...]:
    outcome = box.next_alert("exec", within=WITHIN)
    return outcome.ids if isinstance(outcome, Rung) else ()


def opened(box: Mailbox) -> AlertLog:
    found = find_log(box.core, "bob", "exec")
    assert found is not None
    return found[0]


def check_that_no_ring_is_lost(room: Room, clock: FakeClock) -> None:
    """A ringer is killed after it records an alert and before it makes it: the alert is made later."""
    bob, id = watched(room), post(room)
    clock.advance(1)
    assert (id,) == rung(bob)
    assert bob.next_alert("exec") == Later(WITHIN), "whoever else rings in this way leaves it alone until then"
    clock.advance(WITHIN)
    assert bob.next_alert("exec") == Later(10.0), "as after any that failed"
    last = audit_of(bob.core, "bob", id).rings[-1]
    assert ("failed", CUT_OFF) == (last.outcome, last.why)
    clock.advance(10)
    assert (id,) == rung(bob)
    bob.alert_done("exec", id)
    clock.advance(3600)
    assert bob.next_alert("exec") == Later()


def test_a_ring_that_nobody_hears_of_is_made_again(room: Room, clock: FakeClock) -> None:
    check_that_no_ring_is_lost(room, clock)


def test_who_forgets_what_it_began_is_found_out(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, alerts, "record_alert", "_newest(log.open | promised)", "log.open")
    with pytest.raises(AssertionError, match="leaves it alone"):
        check_that_no_ring_is_lost(room, clock)


def check_that_it_is_told_once(room: Room, clock: FakeClock) -> None:
    bob = watched(room)
    for _ in range(3):
        id = post(room)
        clock.advance(21)
        assert (id,) == rung(bob)
        clock.advance(WITHIN / 2)
        bob.alert_done("exec", id)
        clock.advance(WITHIN)
        assert bob.next_alert("exec") == Later(), "it is told again"
    assert {} == opened(bob).open and {} == opened(bob).notes


def test_what_is_said_to_be_done_is_reported_once(room: Room, clock: FakeClock) -> None:
    check_that_it_is_told_once(room, clock)


def test_who_does_not_hear_that_it_is_done_is_found_out(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, alerts, "done", "if id not in over", "if id")
    with pytest.raises(AssertionError, match="it is told again"):
        check_that_it_is_told_once(room, clock)


def test_who_promises_nothing_is_asked_for_nothing(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    clock.advance(1)
    assert isinstance(bob.next_alert("exec"), Rung)
    assert {} == opened(bob).open
    bob.alert_done("exec", id)
    clock.advance(3600)
    assert bob.next_alert("exec") == Later()


def test_a_ring_that_always_ends_with_who_makes_it_is_given_up(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_tries=3)
    bob, id = watched(room), post(room)
    for _ in range(3):
        clock.advance(3600)
        assert (id,) == rung(bob)
        clock.advance(WITHIN)
        assert () == rung(bob)
    clock.advance(3600)
    assert bob.next_alert("exec") == Later()
    assert [(id, 3, CUT_OFF)] == [(lost.letter.id, lost.tries, lost.why) for lost in bob.dead_alerts()]


def test_an_alert_that_failed_on_every_channel_does_not_count(room: Room, clock: FakeClock) -> None:
    bob = watched(room)
    bob.begin_alerts("claude")
    post(room)
    clock.advance(1)
    assert rung(bob)
    clock.advance(WITHIN)
    assert () == rung(bob)
    new = post(room)
    clock.advance(1)
    outcome = bob.next_alert("claude")
    assert isinstance(outcome, Rung) and new in outcome.ids


def test_after_a_reboot_nobody_is_waited_for(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    clock.advance(1)
    assert (id,) == rung(bob)
    clock.reboot()
    assert bob.next_alert("exec") == Later(10.0)
    clock.advance(10)
    assert (id,) == rung(bob)


def test_what_was_read_meanwhile_is_not_rung_for_again(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    clock.advance(1)
    assert (id,) == rung(bob)
    bob.read(id).ack()
    clock.advance(WITHIN)
    assert bob.next_alert("exec") == Later()
    assert {} == opened(bob).open


def test_a_promise_about_a_letter_that_is_gone_holds_up_nobody() -> None:
    now = Moment(wall=FakeClock().wall, steady=1000.0, boot="b")
    book = AlertLog(up_to=0, boot="b", open={"m-1": 900.0, "m-2": 1100.0})
    assert (["m-1"], -100.0) == alerts.unconfirmed(book, now)
    assert {"m-2": 1100.0} == alerts.forget(book, ["m-1"]).open
