"""How often a recipient is alerted (B2): one pause and one limit for all its channels."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from postroom import Mailbox, Room
from postroom.core import alerts
from postroom.core.authorize import OWNER
from postroom.core.core import find_record, put_record
from postroom.core.verb import perform
from postroom.model.alert import AlertLog, Later, Rung
from postroom.model.codec import to_plain
from postroom.model.message import Priority
from postroom.model.record import ALERT_LOG, RECIPIENT_ALERTS, pair_key
from tests.alerts.histories import plant
from tests.letters import on_barrier
from tests.rooms import FakeClock, RoomFactory

HOUR = 3600.0
WAYS = ("claude", "exec", "webhook:1")
PATIENCE = 60.0  # seconds; a thread that takes longer hangs


@pytest.fixture
def bob(room: Room) -> Mailbox:
    return with_channels(room)


def with_channels(room: Room) -> Mailbox:
    box = room.mailbox("bob")
    for way in WAYS:
        box.begin_alerts(way)
    return box


def post(room: Room, **fields: Any) -> str:
    return room.mailbox("ann").send("bob", "x", **fields).id


def rung(box: Mailbox, way: str) -> tuple[str, ...]:
    outcome = box.next_alert(way)
    return outcome.ids if isinstance(outcome, Rung) else ()


def seconds(box: Mailbox, way: str) -> float | None:
    outcome = box.next_alert(way)
    assert isinstance(outcome, Later)
    return outcome.seconds


def test_alerts_by_all_channels_at_once_count_as_one(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_hourly=2)
    bob = with_channels(room)
    for _ in range(2):
        id = post(room)
        clock.advance(21)
        assert [(id,)] * 3 == [rung(bob, way) for way in WAYS]
    post(room)
    clock.advance(21)
    assert [pytest.approx(HOUR - 42)] * 3 == [seconds(bob, way) for way in WAYS]


def test_the_pause_holds_whichever_channel_alerted_before(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    first = post(room)
    clock.advance(1)
    assert (first,) == rung(bob, "claude")
    second = post(room)
    clock.advance(1)
    assert (first,) == rung(bob, "exec"), "an alert that was counted already needs no pause"
    assert seconds(bob, "claude") == pytest.approx(19)
    assert seconds(bob, "exec") == pytest.approx(20), "and after its own alert each channel pauses"
    clock.advance(20)
    assert [(second,), (second,), (first, second)] == [rung(bob, way) for way in WAYS]


def test_urgent_mail_waits_for_no_pause_but_for_the_limit(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_hourly=2)
    bob = with_channels(room)
    results = []
    for way in WAYS[:2]:
        results.append(post(room, priority="urgent"))
        assert tuple(results) == rung(bob, way)
    post(room, priority="urgent")
    assert tuple(results) == rung(bob, "webhook:1"), "a channel may still join the alert"
    assert seconds(bob, "exec") == seconds(bob, "webhook:1") == pytest.approx(HOUR)


def test_a_repeated_alert_by_all_channels_counts_once_more(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_hourly=2)
    bob = with_channels(room)
    id = post(room, priority="urgent")
    for _ in range(2):
        assert [(id,)] * 3 == [rung(bob, way) for way in WAYS]
        clock.advance(300)
    assert seconds(bob, "exec") == pytest.approx(HOUR - 600)


def test_a_broken_channel_takes_nothing_from_the_others(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_hourly=3, ring_tries=100, backoff_first=1, backoff_most=1)
    bob = with_channels(room)
    id = post(room)
    for _ in range(3):
        clock.advance(20)
        assert (id,) == rung(bob, "webhook:1")
        bob.alert_failed("webhook:1", id, "it answered 500")
    assert (id,) == rung(bob, "claude")
    news = []
    for _ in range(2):
        news.append(post(room))
        clock.advance(20)
        assert (news[-1],) == rung(bob, "claude")
    assert (id, *news) == rung(bob, "exec")


def test_a_channel_that_failed_alerts_again_though_others_did_not(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_hourly=2)
    bob = with_channels(room)
    results = []
    for _ in range(2):
        results.append(post(room))
        clock.advance(21)
        assert (results[-1],) == rung(bob, "claude")
    assert tuple(results) == rung(bob, "exec")
    bob.alert_failed("exec", results, "exit 1")
    clock.advance(20)
    assert tuple(results) == rung(bob, "exec")


def test_of_a_ring_that_got_through_in_part_the_recipient_was_notified(
    room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    ids = [post(room), post(room)]
    clock.advance(1)
    assert tuple(ids) == rung(bob, "claude")
    bob.alert_failed("claude", ids[0], "exit 1")
    post(room)
    clock.advance(1)
    assert tuple(ids) == rung(bob, "exec")
    bob.alert_failed("exec", ids, "exit 1")
    assert tuple(ids) == rung(bob, "webhook:1"), "without what came later"


def test_a_channel_for_important_mail_alone_joins_the_others(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(ring_hourly=1)
    bob = with_channels(room)
    plain, high = post(room), post(room, priority="high")
    clock.advance(1)
    found = perform(room.core, OWNER, alerts.NextAlert(agent_id="bob", way="webhook:1", least=Priority.HIGH)).rung
    assert isinstance(found, Rung) and (high,) == found.ids
    assert (high, plain) == rung(bob, "exec")


# -- two at once


def check_that_two_channels_count_as_one(factory: RoomFactory, clock: FakeClock) -> None:
    """One has looked and is about to ring for the first letter; the other looks after the second came, and is
    about to ring for both. The first is quicker: the second letter needs another alert, and has to wait.
    """
    room = factory.room()
    bob = with_channels(room)
    first = post(room)
    clock.advance(1)
    store = room.core.store
    looked, result = threading.Event(), threading.Event()
    quick: list[str] = []

    def slow_sync(sync: Callable[[], object]) -> None:
        sync()
        looked.set()
        assert result.wait(PATIENCE)

    def ring() -> None:
        quick.extend(rung(factory.room().mailbox("bob"), "claude"))

    def let_the_other_go_first(sync: Callable[[], object]) -> None:
        sync()
        result.set()
        other.join(PATIENCE)

    on_barrier(store, slow_sync)
    other = threading.Thread(target=ring, daemon=True)
    other.start()
    assert looked.wait(PATIENCE)
    on_barrier(store, let_the_other_go_first)
    post(room)
    clock.advance(1)
    assert (first,) == rung(bob, "exec"), "both alert"
    assert [first] == quick


def test_two_channels_at_once_do_not_both_start_an_alert(factory: RoomFactory, clock: FakeClock) -> None:
    check_that_two_channels_count_as_one(factory, clock)


def test_a_channel_that_ignores_alerts_of_the_others_is_found_out(
    factory: RoomFactory, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = "decide(seen.waiting, log, before, "
    plant(monkeypatch, alerts, "_record_alert", right, right.replace("before", "type(before)()"))
    with pytest.raises(AssertionError, match="both alert"):
        check_that_two_channels_count_as_one(factory, clock)


# -- rooms of an older version, and other names


def as_an_older_version_left_it(room: Room, recent: dict[str, tuple[float, ...]]) -> None:
    """Keep only the logs of each channel: the alerts of the recipient were not counted then."""
    core = room.core
    result = find_record(core, RECIPIENT_ALERTS, "bob")
    writes = [] if result is None else [put_record(RECIPIENT_ALERTS, "bob", None, result)]
    for way, times in recent.items():
        key = pair_key("bob", way)
        held = find_record(core, ALERT_LOG, key)
        assert held is not None
        book = AlertLog(up_to=held.value["up_to"], boot=core.now().boot, recent=times)
        writes.append(put_record(ALERT_LOG, key, to_plain(book), held))
    core.store.commit(lambda: writes)


def test_in_a_room_of_an_older_version_nothing_is_rung_for_again_and_a_channel_knows_its_own(
    factory: RoomFactory, clock: FakeClock
) -> None:
    room = factory.room(ring_hourly=3)
    bob = with_channels(room)
    post(room)
    clock.advance(1)
    assert all(rung(bob, way) for way in WAYS)
    now = clock.now().steady
    as_an_older_version_left_it(room, {"claude": (now - 90, now - 60, now - 30), "exec": (now - 40,)})
    clock.advance(1)
    assert [Later()] * 3 == [bob.next_alert(way) for way in WAYS]
    post(room)
    clock.advance(1)
    assert pytest.approx(HOUR - 92) == seconds(bob, "claude")
