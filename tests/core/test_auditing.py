"""What is kept of rings and sights (B2): it goes with its letter, follows a name, stays here, can be counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import postroom
from postroom import Mailbox, Room
from postroom.core import alerts
from postroom.model.query import Found, Query
from postroom.model.record import ALERT_LOG, AUDIT, AUDITED
from postroom.store.protocol import record_keys
from tests.core.test_ringing import post, rung
from tests.rooms import FakeClock, RoomFactory


@pytest.fixture
def bob(room: Room) -> Mailbox:
    """A mailbox at which somebody rings."""
    box = room.mailbox("bob")
    box.begin_alerts("exec")
    return box


def kept(room: Room) -> dict[str, list[str]]:
    """The letters of which anything is kept besides them."""
    store = room.core.store
    found = {kind: record_keys(store, kind) for kind in (AUDIT + "bob", AUDIT + "carol")}
    for record in store.records(AUDITED):
        found[f"{AUDITED} {record.key}"] = record.value
    for record in store.records(ALERT_LOG):
        found[f"{ALERT_LOG} {record.key}"] = [*record.value.get("notes", ()), *record.value.get("dead", ())]
    return {name: ids for name, ids in found.items() if ids}


def tell(room: Room, clock: FakeClock, **fields: Any) -> str:
    """A letter to bob and carol, rung for in vain and shown."""
    bob, carol = room.mailbox("bob"), room.mailbox("carol")
    id = room.mailbox("ann").send(["bob", "carol", "dan"], "x", **fields).id
    clock.advance(30)
    assert id in rung(bob)
    bob.alert_failed("exec", id, "exit 1")
    carol.mark_shown(id, "claude")
    return id


# -- forgetting


def test_what_was_reported_of_a_letter_is_forgotten_with_it(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    gone, stays = tell(room, clock), tell(room, clock)
    assert 5 == sum(gone in ids for ids in kept(room).values())
    for name in ("bob", "carol", "dan"):
        room.mailbox(name).read(gone).ack()
    clock.advance(1)
    assert 1 == room.purge(older_than=0)
    assert 0 == sum(gone in ids for ids in kept(room).values())
    assert 5 == sum(stays in ids for ids in kept(room).values())


def test_a_dead_letter_that_is_purged_takes_it_along(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = tell(room, clock)
    for name in ("bob", "carol", "dan"):
        room.mailbox(name).read(id).reject("no")
    assert 1 == bob.purge(id)
    assert {} == kept(room)


def test_where_nobody_is_notified_of_mail_a_purge_looks_for_nothing_more(
    room: Room, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(room)
    room.mailbox("bob").claim().ack()  # type: ignore[union-attr]
    clock.advance(1)
    store = room.core.store
    request: list[Query] = []
    monkeypatch.setattr(store, "find", request.append)
    assert 1 == room.purge(older_than=0)
    assert [] == request


# -- other rooms


def test_nothing_of_it_is_in_an_export_and_another_room_begins_again(
    room: Room, bob: Mailbox, clock: FakeClock
) -> None:
    id = post(room)
    clock.advance(1)
    assert (id,) == rung(bob)
    lines = list(room.export())
    assert not any(word in line for line in lines for word in (b'"bell"', b'"told"', b'"audit'))
    with postroom.open("memory:") as other:
        other.load(lines)
        assert 1 == other.mailbox("bob").begin_alerts("exec")
        (stop,) = other.trace(id).stops
        assert ((), ()) == (stop.rings, stop.sights)


def test_a_record_of_a_ring_is_refused_by_an_import(room: Room, bob: Mailbox) -> None:
    post(room)
    lines = list(room.export())
    planted = b'{"record":{"kind":"bell","key":"bob exec","value":{"up_to":9},"revision":1}}'
    with postroom.open("memory:") as other, pytest.raises(postroom.Invalid, match="not a kind of record"):
        other.load([*lines[:-1], planted, lines[-1]])


# -- rates


def test_rates_say_what_came_of_each_alert(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    assert () == room.stats().rates
    ids = [post(room) for _ in range(4)]
    clock.advance(1)
    assert tuple(ids) == rung(bob)
    bob.alert_failed("exec", ids[3], "exit 1")
    clock.advance(5)
    bob.mark_shown(ids[:2], "claude", "Stop")
    clock.advance(7)
    bob.read(ids[0]).ack()
    exec_rate, claude = sorted(room.stats().rates, key=lambda rate: rate.name, reverse=True)
    assert ("exec", 4, 3, 2, 1) == (
        exec_rate.name, exec_rate.letters, exec_rate.rung, exec_rate.shown, exec_rate.acknowledged,
    )  # fmt: skip
    assert (5.0, 7.0) == (exec_rate.median_to_shown, exec_rate.median_to_acknowledged)
    assert ("claude", 2, 0, 2, 1) == (claude.name, claude.letters, claude.rung, claude.shown, claude.acknowledged)
    assert (None, 7.0) == (claude.median_to_shown, claude.median_to_acknowledged)


def test_rates_look_at_a_bounded_sample(
    room: Room, bob: Mailbox, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"agent-{number}" for number in range(6)]
    for _ in range(5):
        id = room.mailbox("ann").send(names, "x").id
        for name in names:
            room.mailbox(name).mark_shown(id, "claude")
    monkeypatch.setattr(alerts, "SAMPLE", 12)
    store = room.core.store
    looked: list[int] = []
    find = store.find

    def counting(query: Query) -> Sequence[Found]:
        found = find(query)
        looked.append(len(found))
        return found

    monkeypatch.setattr(store, "find", counting)
    assert 12 == room.stats().rates[0].letters == sum(looked)


def test_a_clock_that_was_set_back_makes_no_negative_times(room: Room, bob: Mailbox, clock: FakeClock) -> None:
    id = post(room)
    clock.advance(1)
    assert rung(bob)
    clock.jump(-1000)
    bob.mark_shown(id, "claude")
    clock.jump(-1000)
    bob.read(id).ack()
    assert all((None, None) == (rate.median_to_shown, rate.median_to_acknowledged) for rate in room.stats().rates)


def test_the_newest_letters_of_a_mailbox_are_counted(factory: RoomFactory) -> None:
    room = factory.room()
    bob = room.mailbox("bob")
    ids = [post(room) for _ in range(103)]
    for id in ids:
        bob.mark_shown(id, "claude")
    assert 100 == room.stats().rates[0].letters
    assert ids[3:] == room.core.store.records(AUDITED, "bob")[0].value
