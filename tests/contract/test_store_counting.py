"""Mail is counted the same by every store: what is open, what is dead, what happened since."""

from __future__ import annotations

import pytest

from postroom import LookAlike, Resync, Room, StaleRevision, UnknownMessage
from postroom.core.outbox import unknown_names
from postroom.core.stats import Settled, traffic_since
from postroom.model import delivery
from postroom.model.delivery import REDIRECTED, State, redirect
from postroom.model.message import Priority
from postroom.model.query import LetterQuery, Query, Tally
from postroom.settings import Settings
from postroom.store.protocol import (
    Introduce,
    Move,
    RenewEpoch,
    Store,
    all_names,
    known_names,
    outgoing,
    waiting_letters,
)
from tests.letters import NOW, ack, after, bury, claim, forget, held, letter, move, post, read, send

EMPTY = dict.fromkeys(Priority, 0)


def fill(store: Store) -> None:
    """At bob's: two unread, one looked at, one claimed, one queued, one dead, one done. At cleo's: one unread."""
    for number, priority in enumerate([Priority.URGENT, *[Priority.NORMAL] * 5]):
        send(store, f"m{number}", priority=priority)
    store.commit([post(letter("later"), due_at=after(60)), post(letter("other", ["cleo"]))])
    read(store, held(store, "m2"))
    claim(store, held(store, "m3"))
    bury(store, held(store, "m4"))
    ack(store, held(store, "m5"))


def test_a_tally_counts_what_is_open_and_dead_by_mailbox(store: Store) -> None:
    fill(store)
    bob, cleo = store.count(Query(), by="state")
    assert bob == Tally(
        mailbox="bob",
        unread=EMPTY | {Priority.URGENT: 1, Priority.NORMAL: 1},
        seen=1,
        claimed=1,
        queued=1,
        dead=1,
        oldest_unread_at=NOW,
        oldest_seen_at=NOW,
        oldest_claimed_at=NOW,
    )
    assert (bob.total_unread, bob.backlog) == (2, 4)
    assert cleo == Tally(mailbox="cleo", unread=EMPTY | {Priority.NORMAL: 1}, oldest_unread_at=NOW)
    assert store.count(Query(mailbox="bob"), by="state") == [bob]
    assert store.count(Query(mailbox="Bob"), by="state") == store.count(Query(mailbox="nobody"), by="state") == []
    assert store.count(Query(), by="all") == 8


def test_what_is_done_has_no_tally(store: Store) -> None:
    ack(store, send(store, "m1"))
    assert store.count(Query(), by="state") == []
    assert store.count(Query(), by="all") == 1


def test_the_oldest_unread_letter_is_the_one_accepted_first(store: Store) -> None:
    late = post(letter("late"), due_at=after(30))
    store.commit([late])
    send(store, "m1", priority=Priority.URGENT)
    queued = held(store, "late")
    move(store, queued, delivery.deliver(queued, after(30)), "deliver")
    (bob,) = store.count(Query(mailbox="bob"), by="state")
    assert bob.oldest_unread_at == after(30)
    read(store, held(store, "late"))
    (bob,) = store.count(Query(mailbox="bob"), by="state")
    assert bob.oldest_unread_at == NOW


@pytest.mark.parametrize(
    ("query", "count"),
    [
        (LetterQuery(), 4),
        (LetterQuery(limit=1, skip=1), 4),
        (LetterQuery(sender="ann"), 3),
        (LetterQuery(party="cleo"), 2),
        (LetterQuery(after=2), 2),
        (LetterQuery(settled_before=after(1)), 1),
    ],
)
def test_letters_are_counted_as_they_are_found(store: Store, query: LetterQuery, count: int) -> None:
    for id, sender, to in (
        ("m1", "ann", "bob"),
        ("m2", "ann", "cleo"),
        ("m3", "ann", "bob"),
        ("m4", "cleo", "bob"),
    ):
        send(store, id, [to], sender=sender)
    ack(store, held(store, "m1"))
    assert store.count(query, by="all") == count


def test_traffic_is_what_happened_after_a_cursor(store: Store) -> None:
    ack(store, send(store, "before"))
    start = store.cursor()
    for number in range(4):
        send(store, f"m{number}", ["bob", "cleo"])
    done = claim(store, held(store, "m0"))
    ack(store, done, after(5), archive=True)
    ack(store, held(store, "m1", "cleo"), after(2))
    bury(store, held(store, "m2"))
    traffic = traffic_since(store, start, NOW)
    assert (traffic.sent, traffic.died) == (4, 1)
    assert sorted(traffic.settled, key=lambda s: s.mailbox) == [Settled("bob", 5.0), Settled("cleo", 2.0)]
    assert traffic.cursor == store.cursor()
    nothing = traffic_since(store, traffic.cursor, after(5))
    assert (nothing.sent, nothing.settled, nothing.died) == (0, (), 0)


def test_archiving_what_was_done_before_is_no_traffic(store: Store) -> None:
    done = ack(store, send(store, "m1"))
    start = store.cursor()
    move(store, done, delivery.archive(done, after(60)), "archive")
    assert traffic_since(store, start, after(1)).settled == ()
    assert len(traffic_since(store, start, NOW).settled) == 1  # done at the very moment of the cursor


def test_what_is_done_and_archived_between_two_looks_counts_once(store: Store) -> None:
    start = store.cursor()
    done = ack(store, send(store, "m1"))
    move(store, done, delivery.archive(done, after(60)), "archive")
    assert len(traffic_since(store, start, NOW).settled) == 1


def test_traffic_of_a_deleted_letter_is_not_reported(store: Store) -> None:
    start = store.cursor()
    ack(store, send(store, "m1"))
    store.commit(forget(letter("m1")))
    traffic = traffic_since(store, start, NOW)
    assert (traffic.sent, traffic.settled) == (0, ())


def test_traffic_after_a_cursor_of_another_life_needs_a_resync(store: Store) -> None:
    start = store.cursor()
    store.commit([RenewEpoch()])
    with pytest.raises(Resync):
        traffic_since(store, start, NOW)


def test_a_name_can_be_introduced_without_mail(store: Store) -> None:
    store.commit([Introduce("ann", known=True), Introduce("bob", known=False)])
    assert all_names(store) == ["ann", "bob"]
    assert known_names(store) == ["ann"]
    store.commit([Introduce("ann", known=False), Introduce("bob", known=True)])  # what is known stays so
    assert known_names(store) == ["ann", "bob"]
    with pytest.raises(LookAlike):
        store.commit([Introduce("Ann", known=True)])


def test_who_wrote_is_known_and_who_was_only_written_to_is_not(store: Store) -> None:
    send(store, "m1")
    assert known_names(store) == ["ann"]
    assert {State.UNREAD} == {held(store, "m1").state}


def test_strangers_are_names_never_active_with_mail_that_nobody_read(store: Store) -> None:
    core = Room(store, Settings()).core
    assert unknown_names(core) == {}
    send(store, "m1", ["bob", "cleo", "dan@far"], priority=Priority.URGENT)
    newest = send(store, "m2").number
    store.commit([Introduce("cleo", known=True)])
    assert unknown_names(core) == {"bob": newest}
    read(store, held(store, "m2"))
    assert unknown_names(core) == {}


def test_a_delivery_goes_to_another_mailbox_with_all_that_is_counted(store: Store) -> None:
    before = send(store, "m1", ["bob", "cleo"])
    there = redirect(before, "Bob@far", NOW)
    store.commit([Move(before, there, REDIRECTED)])

    assert (there, State.UNREAD) == (held(store, "m1", "Bob@far"), held(store, "m1", "cleo").state)
    assert not store.find(Query(mailbox="bob")) and outgoing(store) == {"Bob@far": 1}
    assert [(0, 0), (1, 1)] == [waiting_letters(store, name, "ann") for name in ("bob", "Bob@far")]
    assert known_names(store) == ["ann"]
    with pytest.raises((StaleRevision, UnknownMessage)):
        store.commit([Move(before, there, REDIRECTED)])


def test_a_delivery_that_changed_meanwhile_goes_nowhere(store: Store) -> None:
    before = send(store, "m1")
    claim(store, before)
    with pytest.raises(StaleRevision):
        store.commit([Move(before, redirect(before, "bob@far", NOW), REDIRECTED)])
    assert held(store, "m1").state is State.CLAIMED and outgoing(store) == {}


def test_what_came_after_a_number_is_counted_by_pair_and_by_move(store: Store) -> None:
    send(store, "before", ["bob"])
    start = LetterQuery(after=store.cursor().number)
    for number in range(3):
        send(store, f"m{number}", ["bob", "cleo"], sender=("ann", "bob")[number % 2])
    ack(store, held(store, "m0"))
    bury(store, held(store, "m1", "cleo"))
    ack(store, held(store, "before"))
    pairs = {("ann", "bob"): 2, ("ann", "cleo"): 2, ("bob", "bob"): 1, ("bob", "cleo"): 1}
    assert pairs == store.count(start, by="pair")
    assert {("bob", State.DONE): 2, ("cleo", State.DEAD): 1} == store.count(start, by="moved")
    nothing = LetterQuery(after=store.cursor().number)
    assert {} == store.count(nothing, by="pair") == store.count(nothing, by="moved")
