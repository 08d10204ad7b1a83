"""What every store promises about a commit: all or nothing, and nobody in between."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from postroom.errors import IdTaken, IllegalMove, PostroomError, QuotaFull, StaleRevision, UnknownAgent
from postroom.model import delivery
from postroom.model.delivery import State
from postroom.model.query import Query
from postroom.store.protocol import Forget, Move, Store, Write
from tests.letters import NOW, everything, held, ids, lease, letter, note, post, send


def failing(store: Store) -> list[tuple[Write, type[PostroomError]]]:
    """One write of each kind that must fail, in a room where bob holds the letter m1."""
    stale = replace(held(store, "m1"), revision=7)
    return [
        (post(letter("m1", subject="other")), IdTaken),
        (post(letter("x", ["nobody"]), known_only=True), UnknownAgent),
        (post(letter("x"), quota=1), QuotaFull),
        (Move(stale, delivery.read(stale, NOW), "read"), StaleRevision),
        (note(1, revision=7), StaleRevision),
        (Forget("m1"), IllegalMove),
    ]


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("which", range(6))
def test_a_failing_write_at_any_place_leaves_nothing(store: Store, at: int, which: int) -> None:
    before = send(store, "m1")
    bad, error = failing(store)[which]
    good: list[Write] = [
        post(letter("m2", ["dan", "eve"], sender="fay", key="k2")),
        note({"n": 1}, key="fresh"),
        Move(before, delivery.claim(before, lease()), "claim"),
    ]
    known = everything(store)

    with pytest.raises(error):
        store.commit([*good[:at], bad, *good[at:]])
    assert everything(store) == known
    store.commit([post(letter("m3", ["dan"]))])
    assert store.commit(good)[0].unknown == ("dan", "eve")


def test_a_batch_is_seen_whole(store: Store) -> None:
    """An ack and its reply are one commit."""
    before = send(store, "m1")
    reply = letter("m2", ["ann"], sender="bob", in_reply_to="m1", thread_id="m1")

    store.commit([Move(before, delivery.ack(before, NOW, archive=True), "ack"), post(reply), note("sent")])

    assert held(store, "m1").state is State.DONE
    assert (ids(store, Query(mailbox="ann")), store.records("note")[0].value) == (["m2"], "sent")


# -- plans


def test_a_plan_sees_what_is_there_and_writes_in_the_same_commit(store: Store) -> None:
    send(store, "m1")

    def acknowledge_all() -> Sequence[Write]:
        found = store.find(Query(mailbox="bob"))
        assert store.count(Query()) != {}
        return [Move(f.delivery, delivery.ack(f.delivery, NOW, archive=False), "ack") for f in found]

    assert store.commit(acknowledge_all) == ()
    assert held(store, "m1").state is State.DONE


def test_a_plan_may_post(store: Store) -> None:
    assert store.commit(lambda: [post(letter("m1"))])[0].message_id == "m1"


def test_an_empty_plan_writes_nothing(store: Store) -> None:
    before = everything(store)

    assert store.commit(list) == ()
    assert store.commit([]) == ()
    assert everything(store) == before


def test_an_error_in_a_plan_leaves_nothing_and_the_store_working(store: Store) -> None:
    send(store, "m1")
    before = everything(store)

    def give_up() -> Sequence[Write]:
        store.find(Query())
        raise LookupError

    with pytest.raises(LookupError):
        store.commit(give_up)
    assert everything(store) == before
    assert store.commit([post(letter("m2"))])[0].number > 1


def test_an_empty_commit_is_a_barrier_and_changes_nothing(store: Store) -> None:
    send(store, "m1")
    before = everything(store)

    assert store.commit(()) == ()
    with store.batch():
        assert store.commit(()) == ()
    assert everything(store) == before


# -- several commits, one sync


def test_in_a_batch_each_commit_is_all_or_nothing_and_sees_the_ones_before(store: Store) -> None:
    seen: list[str] = []

    def plan() -> Sequence[Write]:
        seen[:] = ids(store, Query(mailbox="bob"))
        return [post(letter("m3"))]

    with store.batch():
        send(store, "m1")
        with pytest.raises(StaleRevision):
            store.commit([post(letter("m2")), note("x", revision=5)])
        store.commit(plan)

    assert seen == ["m1"]
    assert ids(store, Query(mailbox="bob", order="age")) == ["m1", "m3"]


def test_what_was_committed_before_an_error_in_a_batch_stays(store: Store) -> None:
    with pytest.raises(LookupError), store.batch():  # noqa: PT012
        send(store, "m1")
        raise LookupError

    assert ids(store, Query(mailbox="bob")) == ["m1"]
    assert send(store, "m2").number > 1


def test_a_batch_wakes_whoever_waits(store: Store) -> None:
    watch = store.watch(["bob"])
    try:
        with store.batch():
            send(store, "m1")
        assert watch.wait(5.0)
    finally:
        watch.close()


# -- many at once


def test_many_letters_are_read_at_once_and_each_is_reported_in_order(store: Store) -> None:
    store.commit([post(letter(f"m{number}")) for number in range(120)])
    found = store.find(Query(mailbox="bob", states=(State.UNREAD,), unread_only=True, order="age"))
    since = store.cursor()

    store.commit([Move(one.delivery, delivery.read(one.delivery, NOW), "read") for one in found])

    result, _ = store.changes(since, 200)
    assert [f"m{number}" for number in range(120)] == [change.message_id for change in result]
    assert {NOW} == {one.delivery.read_at for one in store.find(Query(mailbox="bob"))}
    assert {2} == {one.delivery.revision for one in store.find(Query(mailbox="bob"))}


def test_where_one_of_many_was_read_by_another_agent_none_is_read(store: Store) -> None:
    store.commit([post(letter(f"m{number}")) for number in range(120)])
    found = store.find(Query(mailbox="bob", order="age"))
    other = found[70].delivery
    store.commit([Move(other, delivery.read(other, NOW), "read")])
    known = everything(store)

    with pytest.raises(StaleRevision):
        store.commit([Move(one.delivery, delivery.read(one.delivery, NOW), "read") for one in found])
    assert everything(store) == known
