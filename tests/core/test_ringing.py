"""Telling somebody of mail (B2): once, together, not too often, urgent mail until it is acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from postroom import Invalid, LookAlike, Mailbox, Room, UnknownAgent
from postroom.core.alerts import audit_of
from postroom.model.alert import Audit, Later, Rung
from postroom.model.record import ALERT_LOG, AUDIT
from postroom.store.protocol import record_keys
from tests.letters import on_barrier
from tests.renaming import rename
from tests.rooms import FakeClock, RoomFactory

HOUR = 3600.0


@pytest.fixture
def bob(room: Room) -> Mailbox:
    """A mailbox at which somebody rings."""
    box = room.mailbox("bob")
    box.begin_alerts("exec")
    return box


def post(room: Room, text: str = "x", **fields: Any) -> str:
    return room.mailbox("ann").send("bob", text, **fields).id


def rung(box: Mailbox, way: str = "exec") -> tuple[str, ...]:
    outcome = box.next_alert(way)
    return outcome.ids if isinstance(outcome, Rung) else ()


def seconds(box: Mailbox, way: str = "exec") -> float | None:
    outcome = box.next_alert(way)
    assert isinstance(outcome, Later)
    return outcome.seconds


def audit(box: Mailbox, id: str) -> Audit:
    return audit_of(box.core, box.name, id)


# -- when it rings


def test_a_new_letter_rings_once(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room, subject="hello")
    clock.advance(1)
    outcome = bob.next_alert("exec")
    assert isinstance(outcome, Rung)
    (letter,) = outcome.letters
    assert (id, "ann", "hello", 1) == (letter.id, letter.sender, letter.subject, outcome.unread)
    clock.advance(HOUR)
    assert bob.next_alert("exec") == Later(None)


def test_a_ring_moves_no_letter(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    post(room)
    before = [letter.delivery for letter in bob.check(peek=True)]
    clock.advance(1)
    assert rung(bob)
    assert before == [letter.delivery for letter in bob.check(peek=True)]


def test_letters_that_come_together_make_one_ring(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    first = post(room)
    assert seconds(bob) == pytest.approx(0.3)
    clock.advance(0.2)
    second = post(room)
    assert seconds(bob) == pytest.approx(0.3)
    clock.advance(0.3)
    assert (first, second) == rung(bob)


def test_the_first_of_many_waits_two_seconds_at_most(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    sent: list[str] = []
    results: tuple[str, ...] = ()
    while not results:
        sent.append(post(room))
        clock.advance(0.2)
        results = rung(bob)
    assert tuple(sent) == results
    assert 10 == len(sent)


def test_an_urgent_letter_waits_for_nobody_and_takes_the_others_along(room: Room, bob: Mailbox) -> None:
    plain, urgent = post(room), post(room, priority="urgent")
    assert (urgent, plain) == rung(bob)


def test_after_a_ring_there_is_a_pause_which_urgent_mail_passes(
    room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    post(room)
    clock.advance(1)
    assert rung(bob)
    later = post(room)
    clock.advance(1)
    assert seconds(bob) == pytest.approx(19)
    urgent = post(room, priority="urgent")
    assert (urgent, later) == rung(bob)


def test_no_more_than_so_many_rings_in_an_hour(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_hourly=3, ring_again=0)
    bob = room.mailbox("bob")
    bob.begin_alerts("exec")
    for _ in range(3):
        post(room, priority="urgent")
        assert rung(bob)
        clock.advance(60)
    waiting = post(room, priority="urgent")
    assert seconds(bob) == pytest.approx(HOUR - 180)
    clock.advance(HOUR - 180)
    assert (waiting,) == rung(bob)


def test_what_waits_already_counts_as_alerted_when_an_agent_begins_to_ring(room: Room, clock: FakeClock) -> None:
    for _ in range(3):
        post(room)
    bob = room.mailbox("bob")
    assert 3 == bob.begin_alerts("exec")
    assert 0 == bob.begin_alerts("exec")
    clock.advance(60)
    assert () == rung(bob)
    new = post(room)
    clock.advance(1)
    assert (new,) == rung(bob)


def test_who_asks_for_the_backlog_is_notified_of_it_once(room: Room, clock: FakeClock) -> None:
    first = post(room)
    bob = room.mailbox("bob")
    assert 0 == bob.begin_alerts("exec", backlog=True)
    clock.advance(1)
    assert (first,) == rung(bob)
    bob.begin_alerts("exec", backlog=True)
    clock.advance(60)
    assert () == rung(bob)


def test_a_ringer_that_never_began_begins(room: Room, clock: FakeClock) -> None:
    post(room)
    clock.advance(1)
    assert Later(None) == room.mailbox("bob").next_alert("exec")
    new = post(room)
    clock.advance(1)
    assert (new,) == rung(room.mailbox("bob"))


@pytest.mark.parametrize(
    "gone",
    [
        lambda room, letter: room.mailbox("bob").read(letter),
        lambda room, _: room.mailbox("bob").claim().ack(),
        lambda room, letter: room.mailbox("ann").unsend(letter),
        lambda room, _: room.mailbox("bob").claim(lease=100),
    ],
    ids=["read", "acknowledged", "unsent", "claimed"],
)
def test_nobody_is_notified_of_what_is_dealt_with(
    room: Room, bob: Mailbox, clock: FakeClock, gone: Callable[[Room, str], object]
) -> None:
    id = post(room)
    clock.advance(1)
    gone(room, id)
    assert bob.next_alert("exec") == Later(None)


def test_expired_and_low_priority_mail_alerts_nobody(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    post(room, expires=timedelta(seconds=0.5))
    post(room, priority="low")
    clock.advance(1)
    assert bob.next_alert("exec") == Later(None)


def test_mail_that_comes_due_rings_then(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room, at=timedelta(seconds=50))
    early = post(room)
    clock.advance(1)
    assert (early,) == rung(bob)
    clock.advance(60)
    assert seconds(bob) == pytest.approx(0.3)
    clock.advance(0.3)
    assert (id,) == rung(bob)


def test_urgent_mail_rings_again_until_it_is_acknowledged(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room, priority="urgent")
    assert (id,) == rung(bob)
    bob.read(id)
    assert seconds(bob) == pytest.approx(300)
    clock.advance(300)
    assert (id,) == rung(bob)
    work = bob.claim()
    assert work
    work.ack()
    clock.advance(300)
    assert bob.next_alert("exec") == Later(None)


def test_urgent_mail_rings_so_often_and_no_more(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    post(room, priority="urgent")
    count = 0
    for _ in range(20):
        count += len(rung(bob))
        clock.advance(300)
    assert 3 == count


def test_each_way_rings_by_its_own_book(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    bob.begin_alerts("webhook:1")
    id = post(room)
    clock.advance(1)
    assert (id,) == rung(bob)
    assert (id,) == rung(bob, "webhook:1")
    assert ["exec", "webhook:1"] == [ring.way for ring in audit(bob, id).rings]


def test_of_very_many_letters_a_ring_names_the_first_and_the_urgent_ones_and_counts_all(
    room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    plain = [post(room) for _ in range(130)]
    urgent = post(room, priority="urgent")
    outcome = bob.next_alert("exec")
    assert isinstance(outcome, Rung)
    assert ((urgent, *plain[:100]), 131) == (outcome.ids, outcome.unread)
    clock.advance(20)
    assert () == rung(bob)


def test_an_alert_that_may_not_go_now_is_decided_again(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    assert bob.next_alert("exec", may_alert=lambda: pytest.fail("asked before its time")) != Later(None)
    clock.advance(1)
    assert bob.next_alert("exec", may_alert=lambda: False) == Later(1.0)
    outcome = bob.next_alert("exec", may_alert=lambda: True)
    assert isinstance(outcome, Rung)
    assert (id,) == outcome.ids


def test_no_clock_that_is_set_silences_a_channel(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    post(room)
    clock.advance(1)
    assert rung(bob)
    clock.jump(-100_000)
    clock.advance(20)
    back = post(room)
    clock.jump(-100_000)
    assert (back,) == rung(bob)
    clock.jump(300_000)
    clock.tick(5)
    post(room)
    clock.advance(1)
    assert seconds(bob) == pytest.approx(14)


def test_after_a_reboot_the_pause_is_over_and_nothing_rings_twice(factory: RoomFactory, clock: FakeClock) -> None:
    bob = factory.room().mailbox("bob")
    bob.begin_alerts("exec")
    post(factory.room())
    clock.advance(1)
    assert rung(bob)
    clock.reboot()
    assert () == rung(bob)
    new = post(factory.room())
    clock.advance(1)
    assert (new,) == rung(bob)


def test_a_letter_that_came_after_the_sync_is_not_rung_for(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    safe = post(room)
    clock.advance(1)
    store = room.core.store
    late: list[str] = []

    def slow_sync(sync: Callable[[], object]) -> None:
        sync()
        late.append(post(room, priority="urgent"))

    on_barrier(store, slow_sync)
    assert (safe,) == rung(bob)
    on_barrier(store, lambda sync: sync())
    assert tuple(late) == rung(bob)


def test_who_lost_the_race_rings_for_nothing(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    clock.advance(1)
    store = room.core.store
    other: list[str] = []

    def slow_sync(_sync: Callable[[], object]) -> None:
        on_barrier(store, lambda sync: sync())
        other.extend(rung(bob))

    on_barrier(store, slow_sync)
    assert Later(0.0) == bob.next_alert("exec")
    assert [id] == other


def test_a_ringer_at_a_name_that_is_spelt_otherwise_is_reported(room: Room, bob: Mailbox) -> None:
    post(room)
    with pytest.raises(LookAlike):
        room.mailbox("Bob").begin_alerts("exec")
    rename(room, "bob", "rob")
    with pytest.raises(UnknownAgent, match="is now 'rob'"):
        bob.next_alert("exec")


@pytest.mark.parametrize("way", ["", "two words", "x" * 65, 7, None, "a\nb"])
def test_a_way_is_a_word(bob: Mailbox, way: Any) -> None:
    for call in (bob.begin_alerts, bob.next_alert, lambda way: bob.alert_failed(way, "x", "y")):
        with pytest.raises(Invalid, match="way"):
            call(way)


def test_nobody_hears_of_rings_in_the_numbered_past(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    """A watcher of the room is not woken by the records of a ringer."""
    post(room)
    clock.advance(1)
    before = room.cursor()
    assert rung(bob)
    assert ([], before) == room.changes(before)
    assert bob.core.store.records(ALERT_LOG)
    assert record_keys(bob.core.store, AUDIT + "bob")


def test_what_a_ringer_writes_down_wakes_nobody_who_waits_for_mail(
    room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    id = post(room)
    clock.advance(1)
    ear = room.core.store.watch(["bob"])
    assert (id,) == rung(bob)
    bob.alert_failed("exec", id, "exit 1")
    bob.mark_shown(id, "claude")
    assert set() == ear.notified()
    post(room)
    assert {"bob"} == ear.notified()
    ear.close()


def test_of_many_ringers_one_rings_for_each_letter(factory: RoomFactory) -> None:
    room = factory.room(ring_gather=0, ring_cooldown=0, ring_hourly=0)
    room.mailbox("bob").begin_alerts("exec")
    sent: list[str] = []
    results: list[str] = []
    done = threading.Event()

    def ring() -> None:
        box = factory.room(ring_gather=0, ring_cooldown=0, ring_hourly=0).mailbox("bob")
        while not done.is_set() or len(results) < len(sent):
            results.extend(rung(box))

    ringers = [threading.Thread(target=ring, daemon=True) for _ in range(4)]
    for ringer in ringers:
        ringer.start()
    sent.extend(post(room) for _ in range(50))
    done.set()
    for ringer in ringers:
        ringer.join(60)
    assert sorted(sent) == sorted(results)


# -- rings that fail


def test_a_ring_that_failed_is_tried_again_after_a_pause(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    clock.advance(1)
    assert (id,) == rung(bob)
    assert 0 == bob.alert_failed("exec", id, "exit 1")
    assert ("failed", "exit 1") == (audit(bob, id).rings[0].outcome, audit(bob, id).rings[0].why)
    assert seconds(bob) == pytest.approx(20)  # the pause after any ring is longer than that of a first failure
    clock.advance(20)
    assert (id,) == rung(bob)
    clock.advance(HOUR)
    assert () == rung(bob)


def test_a_ring_that_failed_is_not_tried_again_once_the_letter_is_read(
    room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    id = post(room)
    clock.advance(1)
    rung(bob)
    bob.alert_failed("exec", id, "exit 1")
    bob.read(id)
    clock.advance(HOUR)
    assert bob.next_alert("exec") == Later(None)


def test_a_ring_that_fails_too_often_is_dead_and_can_be_tried_again(
    room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    id = post(room)
    given_up = []
    for _ in range(5):
        clock.advance(1800)
        assert (id,) == rung(bob)
        given_up += [bob.alert_failed("exec", [id], "exit 1"), bob.alert_failed("exec", [id], "said twice")]
    assert [0] * 8 + [1, 0] == given_up
    clock.advance(1800)
    assert () == rung(bob)
    (lost,) = bob.dead_alerts()
    assert ("bob", "exec", id, 5, "exit 1") == (lost.mailbox, lost.way, lost.letter.id, lost.tries, lost.why)
    assert "dead" == audit(bob, id).rings[-1].outcome
    assert [lost] == room.dead_alerts() == room.dead_alerts(1)
    assert 0 == bob.retry_alerts(way="other")
    assert 0 == bob.retry_alerts(ids=["other"])
    assert 1 == bob.retry_alerts()
    assert [] == bob.dead_alerts()
    assert (id,) == rung(bob)


def test_a_dead_ring_is_not_listed_once_its_letter_is_read(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_tries=1)
    bob = room.mailbox("bob")
    bob.begin_alerts("exec")
    id = post(room)
    clock.advance(1)
    rung(bob)
    assert 1 == bob.alert_failed("exec", id, "gone")
    bob.read(id)
    assert [] == bob.dead_alerts()


def test_a_failure_of_a_ring_that_never_was_changes_nothing(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    bob.alert_failed("exec", [id, "unknown"], "x")
    bob.alert_failed("other", [id], "x")
    clock.advance(1)
    assert (id,) == rung(bob)
    assert ["rung"] == [ring.outcome for ring in audit(bob, id).rings]


# -- what was shown


def test_what_was_shown_is_read_and_remembered(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    assert 1 == bob.mark_shown([id, id, "unknown"], "claude", "SessionStart")
    (sight,) = audit(bob, id).sights
    assert (clock.wall, "claude", "SessionStart") == (sight.at, sight.host, sight.where)
    (letter,) = bob.check(unread_only=False, peek=True)
    assert clock.wall == letter.delivery.read_at
    clock.advance(1)
    assert () == rung(bob)


def test_a_heading_that_was_shown_leaves_the_letter_unread(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    assert 1 == bob.mark_shown(id, "claude", read=False)
    assert 1 == bob.counts()["total"]
    clock.advance(1)
    assert (id,) == rung(bob)


def test_nothing_is_shown_of_anothers_mail(room: Room, bob: Mailbox) -> None:
    id = room.mailbox("ann").send("zoe", "x").id
    unsent = post(room)
    room.mailbox("ann").unsend(unsent)
    later = post(room, at=timedelta(seconds=50))
    assert 0 == bob.mark_shown([id, unsent, later], "claude")
    assert [] == record_keys(bob.core.store, AUDIT + "bob")


def test_an_audit_keeps_the_newest(room: Room, bob: Mailbox) -> None:
    id = post(room)
    for number in range(25):
        bob.mark_shown(id, "claude", f"{number}")
    assert [f"{number}" for number in range(5, 25)] == [sight.where for sight in audit(bob, id).sights]


def test_the_deprecated_names_do_what_the_new_ones_do(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    assert 0 == bob.begin_rings("exec")
    id = post(room)
    clock.advance(1)
    assert Later(1.0) == bob.try_ring("exec", may_ring=lambda: False)
    found = bob.wait_to_ring("exec", 0, may_ring=lambda: True, within=10)
    assert found and (id,) == found.ids
    bob.ring_done("exec", id)
    assert 0 == bob.ring_failed("exec", id, "exit 1")
    assert [] == bob.dead_rings() == room.dead_rings()
    assert 0 == bob.retry_rings(way="exec", ids=id) == room.retry_rings(way="exec")
