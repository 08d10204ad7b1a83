"""What happens when nobody looks (M16): leases, due and expired mail, archive, retention, memory."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest

from postroom import IdTaken, PostroomError, Room, State, draft
from postroom.core.retention import Sweep
from postroom.model.record import FORGOTTEN, Record
from tests.rooms import FakeClock, RoomFactory, texts

HOUR = 3600.0
DAY = 24 * HOUR


def test_a_round_with_nothing_to_do_does_nothing(room: Room) -> None:
    room.mailbox("ann").send("bob", "x")
    assert room.sweep() == Sweep()
    assert texts(room.mailbox("bob").check()) == ["x"]


def test_a_round_does_what_time_did_to_every_mailbox(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(max_attempts=2)
    ann = room.mailbox("ann")
    ann.send("bob", "lapses")
    assert room.mailbox("bob").claim(lease=10)
    ann.send("carol", "due", at=10)
    ann.send("dave", "expires", expires=10)
    clock.advance(10)
    assert room.sweep() == Sweep(lapsed=1, delivered=1, expired=1)
    assert room.mailbox("bob").claim(lease=10)
    clock.advance(10)
    assert room.sweep() == Sweep(buried=1)
    assert [letter.kind for letter in ann.check()] == ["bounce"]
    assert room.sweep() == Sweep()


def test_a_round_takes_as_many_commits_as_it_needs(room: Room, clock: FakeClock) -> None:
    room.mailbox("ann").send_many([draft("bob", str(n), expires=1) for n in range(450)])
    clock.advance(2)
    assert room.sweep().expired == 450


def test_acknowledged_mail_is_archived_after_a_day(room: Room, clock: FakeClock) -> None:
    id = room.mailbox("ann").send("bob", "x").id
    room.mailbox("ann").send("bob", "still open")
    room.mailbox("bob").read(id).ack(archive=False)
    clock.advance(DAY)
    assert room.sweep().archived == 0
    clock.advance(1)
    assert room.sweep().archived == 1
    assert room.mailbox("bob").read(id).delivery.archived_at == clock.wall
    assert room.sweep().archived == 0


@pytest.fixture
def mixed(factory: RoomFactory) -> dict[str, str]:
    """Letters in every state; `half` is done at one of two mailboxes."""
    room = factory.room()
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    ids = {name: ann.send("bob", name, key=name).id for name in ("done", "dead", "unread", "read", "claimed")}
    ids["queued"] = ann.send("bob", "queued", at=10**6).id
    ids["half"] = ann.send(["bob", "carol"], "half").id
    bob.read(ids["done"]).ack()
    bob.read(ids["half"]).ack()
    bob.read(ids["dead"]).reject("no")
    ann.check()[0].ack()
    bob.read(ids["read"])
    bob.claim(lease=7 * DAY, kinds="message", sender="ann")
    return ids


def left(room: Room, ids: dict[str, str]) -> set[str]:
    return {name for name, id in ids.items() if id in {message.id for message in room.thread(id)}}


def test_retention_by_age_deletes_settled_mail_alone(
    factory: RoomFactory, mixed: dict[str, str], clock: FakeClock
) -> None:
    room = factory.room(retain_for=5 * DAY)
    clock.advance(5 * DAY)
    assert room.sweep().purged == 0
    clock.advance(1)
    assert room.sweep().purged == 3  # done, dead, and the acknowledged bounce
    assert left(room, mixed) == set(mixed) - {"done", "dead"}


def test_retention_by_count_deletes_the_oldest_settled_mail_alone(
    factory: RoomFactory, mixed: dict[str, str], clock: FakeClock
) -> None:
    clock.advance(1)
    assert factory.room(retain_count=2, retain_for=0).sweep().purged == 1
    assert left(factory.room(), mixed) == set(mixed) - {"done"}
    assert factory.room(retain_count=1).sweep().purged == 1
    assert left(factory.room(), mixed) == set(mixed) - {"done", "dead"}


def test_without_limits_nothing_is_ever_deleted(
    factory: RoomFactory, mixed: dict[str, str], clock: FakeClock
) -> None:
    clock.advance(1000 * DAY)
    assert factory.room(retain_for=0).sweep().purged == 0


def test_a_wall_clock_gone_wild_deletes_no_open_mail(
    factory: RoomFactory, mixed: dict[str, str], clock: FakeClock
) -> None:
    for jump in (10**9, -(2 * 10**9), 10**9):
        clock.jump(jump)
        factory.room(retain_for=1, retain_count=1).sweep()
    assert {"unread", "read", "claimed", "queued", "half"} <= left(factory.room(), mixed)


def test_keys_of_deleted_letters_are_remembered_and_at_last_forgotten(
    factory: RoomFactory, clock: FakeClock
) -> None:
    room = factory.room(retain_for=DAY, remember_for=30 * DAY)
    first = room.mailbox("ann").send("bob", "x", key="k")
    room.mailbox("bob").check()[0].ack()
    clock.advance(DAY + 1)
    assert room.sweep().purged == 1
    clock.advance(30 * DAY)
    assert room.sweep().forgotten == 0
    again = room.mailbox("ann").send("bob", "x", key="k")
    assert (again.repeated, again.id) == (True, first.id)
    with pytest.raises(IdTaken):
        room.mailbox("ann").send("bob", "y", key="k")
    clock.advance(DAY)
    assert room.sweep().forgotten == 2
    assert not room.mailbox("ann").send("bob", "x", key="k").repeated


def test_two_janitors_that_forget_at_once_do_it_once(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(retain_for=DAY, remember_for=30 * DAY)
    room.mailbox("ann").send("bob", "x")
    room.mailbox("bob").check()[0].ack()
    clock.advance(DAY + 1)
    room.sweep()
    clock.advance(40 * DAY)
    records = factory.store.records
    rounds: list[Sweep] = []

    def interrupted(kind: str, key: str | None = None, **how: Any) -> list[Record]:
        """While the first janitor reads what to forget, the second does its whole round."""
        found = records(kind, key, **how)
        if kind == FORGOTTEN and key is None and not rounds:
            factory.store.records = records  # type: ignore[method-assign]
            rounds.append(room.sweep())
        return found

    factory.store.records = interrupted  # type: ignore[method-assign]
    rounds.append(room.sweep())
    assert sorted(sweep.forgotten for sweep in rounds) == [0, 2]


def test_old_changes_are_trimmed(factory: RoomFactory) -> None:
    room = factory.room(retain_changes=3)
    room.mailbox("ann").send("bob", "x")
    for _ in range(6):
        work = room.mailbox("bob").claim()
        assert work
        work.release()
    assert room.sweep().trimmed > 0
    assert texts(room.mailbox("bob").check()) == ["x"]


def test_many_janitors_at_once_do_everything_once(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(retain_for=HOUR, archive_after=60)
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(40)])
    for letter in room.mailbox("bob").check(None):
        letter.ack(archive=False)
    room.mailbox("ann").send_many([draft("bob", str(n), expires=60) for n in range(40)])
    clock.advance(HOUR + 1)
    rounds: list[Sweep] = []
    failures: list[PostroomError] = []

    def clean() -> None:
        try:
            rounds.append(room.sweep())
        except PostroomError as error:
            failures.append(error)

    janitors = [threading.Thread(target=clean) for _ in range(6)]
    for janitor in janitors:
        janitor.start()
    for janitor in janitors:
        janitor.join(60)
    assert failures == []
    assert sum(sweep.purged for sweep in rounds) == 40
    assert sum(sweep.expired for sweep in rounds) == 40
    assert {letter.state for letter in room.mailbox("bob").dead()} == {State.DEAD}


# -- the same, asked for by people


def test_people_archive_what_is_done_long_enough(room: Room, clock: FakeClock) -> None:
    for number in range(450):
        room.mailbox("ann").send("bob", str(number))
    for letter in room.mailbox("bob").check(None):
        letter.ack(archive=False)
    results: list[tuple[int, int]] = []
    clock.advance(60)
    assert room.archive() == 0  # the settings say a day
    assert room.archive(older_than=120) == 0
    assert room.archive(older_than=timedelta(seconds=30), progress=lambda *at: results.append(at)) == 450
    assert results == [(200, 450), (400, 450), (450, 450)]
    assert room.archive(older_than=0) == 0


def test_people_purge_by_age_by_count_and_as_the_settings_say(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(retain_for=1000)
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    for number in range(5):
        ann.send("bob", str(number))
        bob.check()[0].ack()
        clock.advance(100)
    ann.send("bob", "open")
    clock.advance(1)
    assert room.purge() == 0
    assert room.purge(older_than=450) == 1
    assert room.purge(keep=3) == 1
    assert room.purge(older_than=1e12) == 0
    clock.advance(850)
    results: list[tuple[int, int]] = []
    assert room.purge(progress=lambda *at: results.append(at)) == 2
    assert results == [(2, 2)]
    assert room.purge(keep=0) == 1
    assert room.purge(older_than=0, keep=0) == 0
    assert texts(bob.check()) == ["open"]


def test_a_round_tells_how_far_it_is(factory: RoomFactory, clock: FakeClock) -> None:
    room = factory.room(retain_for=10)
    room.mailbox("ann").send_many([draft("bob", str(n)) for n in range(300)])
    for letter in room.mailbox("bob").check(None):
        letter.ack()
    clock.advance(11)
    results: list[tuple[int, int]] = []
    assert room.sweep(progress=lambda *at: results.append(at)).purged == 300
    assert results == [(200, 300), (300, 300)]


@pytest.mark.parametrize("how", [{"keep": 0}, {"older_than": 0}, {"older_than": 0, "keep": 0}, {}])
def test_letters_of_tasks_and_questions_that_go_on_are_spared(
    factory: RoomFactory, clock: FakeClock, how: dict[str, Any]
) -> None:
    room = factory.room(retain_for=60, retain_count=1)
    ann, bob = room.mailbox("ann"), room.mailbox("bob")
    goes_on, over = (ann.give_task("bob", text).id for text in ("goes on", "over"))
    request = ann.escalate("May I?", reason="blocked", ladder=["lead", "coo"])
    for id in (goes_on, over):
        bob.task(id).accept()
    bob.task(over).complete()
    for name in ("ann", "lead"):
        for letter in room.mailbox(name).check():
            letter.ack()
    clock.advance(61)
    purged = room.purge(**how)
    assert purged > 0
    kept = factory.store.get((goes_on, over, request.id))
    assert set(kept) == {goes_on, request.id}
    bob.task(goes_on).complete()
    assert [one.waits_for for one in room.escalations()] == ["lead"]
    clock.advance(4 * 3600)
    assert room.sweep().climbed == 1
    assert "May I?" in room.mailbox("coo").check()[0].text
