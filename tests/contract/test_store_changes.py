"""What every store tells of what happened: changes, cursors and notification."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pytest
from msgspec.structs import replace

from postroom.errors import Resync, StaleRevision
from postroom.model import delivery as model_delivery
from postroom.model.delivery import State
from postroom.model.record import Change, Cursor, Record
from postroom.store.protocol import Forget, Move, Put, RenewEpoch, Store, Watch
from tests.contract.conftest import Reboot
from tests.contract.stores import Kind
from tests.letters import NOW, ack, attempt, claim, held, letter, move, note, post, read, send

SOON = 60.0  # seconds; only a lost signal waits this long


def facts(changes: Sequence[Change]) -> list[Change]:
    """Changes without their numbers."""
    return [replace(change, number=0) for change in changes]


def pages(store: Store, since: Cursor, limit: int) -> list[Change]:
    """All changes since, `limit` at a time."""
    found: list[Change] = []
    while page := store.changes(since, limit)[0]:
        assert len(page) <= limit
        found += page
        since = store.changes(since, limit)[1]
    return found


# -- changes


def test_a_record_that_is_put_and_never_kept_is_reported_each_time(store: Store) -> None:
    start = store.cursor()
    for _ in range(2):
        store.commit([Put(record=Record(kind="happened", key="c-1 joined ann", value=None))])
    assert [] == store.records("happened")
    result = facts(store.changes(start, 100)[0])
    assert [Change(number=0, what="put", kind="happened", key="c-1 joined ann")] * 2 == result


def test_every_kind_of_write_is_reported_in_order(store: Store) -> None:
    start = store.cursor()
    ack(store, send(store, "m1", ["bob", "cleo"]))
    store.commit([note(1), note(None, revision=1)])

    changes, now = store.changes(start, 100)

    assert facts(changes) == [
        Change(number=0, what="posted", message_id="m1"),
        Change(number=0, what="moved", message_id="m1", mailbox="bob", state=State.DONE),
        Change(number=0, what="put", kind="note", key="k"),
        Change(number=0, what="put", kind="note", key="k"),
    ]
    numbers = [change.number for change in changes]
    assert numbers == sorted(set(numbers))
    assert now == store.cursor() == replace(start, number=numbers[-1])


def test_letters_that_are_read_together_are_reported_one_by_one(store: Store) -> None:
    found = [send(store, f"m{number}") for number in range(5)]
    start = store.cursor()

    store.commit([Move(one, model_delivery.read(one, NOW), "read") for one in reversed(found)])

    result, now = store.changes(start, 100)
    ids = [one.message_id for one in reversed(found)]
    assert facts(result) == [
        Change(number=0, what="moved", message_id=id, mailbox="bob", state=State.UNREAD) for id in ids
    ]
    assert list(range(start.number + 1, start.number + 6)) == [change.number for change in result]
    assert now == store.cursor()
    after = [held(store, one.message_id) for one in found]
    assert [(2, NOW)] * 5 == [(one.revision, one.read_at) for one in after]


def test_letters_are_read_together_or_none_of_them_is(store: Store) -> None:
    first, second, third = [send(store, f"m{number}") for number in range(3)]
    read(store, second)
    start = store.cursor()
    with pytest.raises(StaleRevision):
        store.commit([Move(one, model_delivery.read(one, NOW), "read") for one in (first, second, third)])
    assert [] == store.changes(start, 100)[0]
    assert [1, 2, 1] == [held(store, one.message_id).revision for one in (first, second, third)]


def test_a_deleted_letter_is_reported_by_its_deletion_alone(store: Store) -> None:
    start = store.cursor()
    ack(store, send(store, "m1"))
    send(store, "m2")
    store.commit([Forget("m1")])

    assert facts(pages(store, start, 1)) == [
        Change(number=0, what="posted", message_id="m2"),
        Change(number=0, what="forgot", message_id="m1"),
    ]


def test_what_may_be_lost_and_what_repeats_is_not_reported(store: Store) -> None:
    send(store, "m1")
    start = store.cursor()

    store.commit([Put(record=Record(kind="beat", key="bob", value=1), durable=False), post(letter("m1"))])
    assert store.changes(start, 10) == ([], start)


def test_a_failed_commit_is_not_reported(store: Store) -> None:
    start = store.cursor()

    with pytest.raises(StaleRevision):
        store.commit([post(letter("m1")), note(1), note(1, revision=7)])
    assert store.changes(start, 10) == ([], start)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
def test_paging_misses_nothing_and_repeats_nothing(store: Store, limit: int) -> None:
    start = store.cursor()
    for number in range(6):
        delivery = send(store, f"m{number}")
        if number % 2:
            read(store, delivery)
        if number % 3 == 0:
            ack(store, held(store, f"m{number}"))
            store.commit([Forget(f"m{number}"), note(1, key=str(number))])

    changes = pages(store, start, limit)
    assert changes == store.changes(start, 1000)[0]
    assert [c.message_id for c in changes if c.what == "posted"] == ["m1", "m2", "m4", "m5"]
    assert [c.message_id for c in changes if c.what == "forgot"] == ["m0", "m3"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda now: replace(now, store="another"),
        lambda now: replace(now, epoch="another"),
        lambda now: replace(now, number=now.number + 1),
        lambda now: replace(now, number=10**50),
    ],
    ids=["another room", "another epoch", "the future", "the far future"],
)
def test_a_cursor_of_another_life_needs_a_resync(store: Store, wrong: object) -> None:
    assert callable(wrong)
    send(store, "m1")

    with pytest.raises(Resync):
        store.changes(wrong(store.cursor()), 10)


def test_a_cursor_survives_its_text_form(store: Store) -> None:
    start = store.cursor()
    send(store, "m1")

    assert len(store.changes(Cursor.parse(str(start)), 10)[0]) == 1


@pytest.mark.parametrize("keep", [0, 1, 3])
def test_after_a_trim_older_cursors_need_a_resync_and_newer_ones_go_on(store: Store, keep: int) -> None:
    cursors = [store.cursor()]
    for number in range(9):
        store.commit([note(1, key=str(number))])
        cursors.append(store.cursor())

    dropped = store.trim(keep).changes

    kept = max(keep, 1)
    assert dropped == 9 - kept
    with pytest.raises(Resync):
        store.changes(cursors[dropped - 1], 10)
    assert [c.key for c in pages(store, cursors[dropped], 2)] == [str(n) for n in range(dropped, 9)]
    assert store.trim(keep).changes == 0
    assert store.cursor() == cursors[-1]


def test_numbers_never_go_back(store: Store) -> None:
    """Not when the newest letter is deleted, nor when its changes are dropped."""
    ack(store, send(store, "m1"))
    store.commit([Forget("m1")])
    store.trim(0)
    now = store.cursor()

    assert store.commit([post(letter("m2"))])[0].number > now.number
    assert [c.message_id for c in store.changes(now, 10)[0]] == ["m2"]


def test_a_renewed_epoch_ends_all_cursors(store: Store) -> None:
    before = store.cursor()
    store.commit([RenewEpoch()])

    with pytest.raises(Resync):
        store.changes(before, 10)
    now = store.cursor()
    send(store, "m1")
    assert len(store.changes(now, 10)[0]) == 1


def test_a_new_boot_begins_a_new_epoch(store: Store, kind: Kind, reboot: Reboot) -> None:
    if not kind.lasts:
        pytest.skip("this store does not outlive its process")
    before = store.cursor()

    assert reboot("boot-1").changes(before, 10) == ([], before)
    again = reboot("boot-2")
    assert (again.cursor().store, again.cursor().number) == (before.store, before.number)
    with pytest.raises(Resync):
        again.changes(before, 10)


# -- notification


@contextmanager
def watching(store: Store, *mailboxes: str) -> Iterator[Watch]:
    with closing(store.watch(mailboxes)) as watch:
        yield watch


def test_mail_notifies_its_mailbox_and_no_other(store: Store) -> None:
    with watching(store, "bob", "swarm/dan") as bobs, watching(store, "cleo") as cleos:
        send(store, "m1")
        assert bobs.wait(SOON)
        assert not cleos.wait(0)

        send(store, "m2", ["swarm/dan"])
        assert bobs.notified() == {"swarm/dan"}
        assert bobs.notified() == set()
        assert cleos.notified() == set()


def test_a_watch_covers_several_mailboxes_and_those_added_later(store: Store) -> None:
    with watching(store, "bob") as watch:
        watch.add("cleo")
        send(store, "m1", ["bob", "cleo", "dan"])
        assert watch.notified() == {"bob", "cleo"}


def test_a_letter_to_very_many_notifies_each(store: Store) -> None:
    with watching(store, "bob17", "bob30") as watch:
        send(store, "m1", [f"bob{number}" for number in range(40)])
        assert watch.notified() == {"bob17", "bob30"}

        store.commit([replace(post(letter("m2", ["bob0"])), copies=tuple(f"bob{n}" for n in range(1, 40)))])
        assert watch.notified() == {"bob17", "bob30"}


def test_mail_that_can_be_claimed_again_notifies_and_mail_that_was_read_does_not(store: Store) -> None:
    delivery = send(store, "m1")
    with watching(store, "bob") as watch:
        claimed = claim(store, read(store, delivery))
        assert watch.notified() == set()
        move(store, claimed, model_delivery.lapse(claimed, attempt()), "lapse")
        assert watch.notified() == {"bob"}


def test_a_notified_watch_has_a_readable_descriptor(store: Store) -> None:
    with watching(store, "bob") as watch:
        if watch.fileno() < 0:
            pytest.skip("no descriptor here: such a watch is polled")
        assert select.select([watch], [], [], 0)[0] == []
        send(store, "m1")
        assert select.select([watch], [], [], SOON)[0] == [watch]
        watch.notified()
        assert select.select([watch], [], [], 0)[0] == []


def test_a_watch_waits_no_longer_than_its_timeout(store: Store) -> None:
    with watching(store, "bob") as watch:
        assert not watch.wait(0.01)
        assert not watch.wait(-1)


def test_a_notification_wakes_another_thread(store: Store) -> None:
    received = []
    with watching(store, "bob") as watch:
        waiter = threading.Thread(target=lambda: received.append(watch.wait(SOON)))
        waiter.start()
        send(store, "m1")
        waiter.join(SOON)
    assert received == [True]


def test_a_closed_watch_disturbs_no_commit(store: Store) -> None:
    with watching(store, "bob"):
        pass
    send(store, "m1")
