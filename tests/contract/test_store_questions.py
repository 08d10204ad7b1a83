"""What every store answers: every field and order of a query for deliveries, and counts."""

from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from postroom.model import delivery as model_delivery
from postroom.model.delivery import OPEN, SETTLED, State
from postroom.model.message import Priority
from postroom.model.query import Order, Query
from postroom.store.protocol import Store
from tests.letters import (
    NOW,
    ack,
    after,
    attempt,
    bury,
    claim,
    held,
    ids,
    lease,
    letter,
    move,
    post,
    read,
    send,
)

LOW, NORMAL, HIGH, URGENT = Priority
ALL = (
    "plain",
    "task",
    "reply",
    "retried",
    "expiring",
    "queued",
    "claimed",
    "done",
    "archived",
    "dead",
    "cleo's",
)


@pytest.fixture
def mixed(store: Store) -> Store:
    """A room with mail in every state. All letters are ann's to bob but for two; ids say what is special."""
    send(store, "plain")
    send(store, "task", priority=HIGH, kind="task", tags=("red", "blue"), thread_tag="release", scope="team")
    read(store, send(store, "reply", sender="cleo", priority=URGENT, thread_id="plain", in_reply_to="plain"))
    held_once = claim(store, send(store, "retried", priority=LOW))
    move(store, held_once, model_delivery.retry(held_once, attempt(), after(50)), "retry")
    send(store, "expiring", expires_at=after(30), created_at=after(10))
    store.commit([post(letter("queued", priority=HIGH, thread_id="plain"), due_at=after(100))])
    claim(store, send(store, "claimed", priority=URGENT))
    ack(store, send(store, "done"))
    ack(store, send(store, "archived"), after(-20), archive=True)
    bury(store, send(store, "dead", kind="bounce"))
    send(store, "cleo's", ["cleo"])
    return store


QUERIES = [
    (Query(), ALL),
    (Query(mailbox="bob"), ALL[:-1]),
    (Query(mailbox="cleo"), ("cleo's",)),
    (Query(mailbox="Bob"), ()),
    (Query(mailbox="nobody"), ()),
    (Query(states=(State.UNREAD,)), ("plain", "task", "reply", "retried", "expiring", "cleo's")),
    (Query(states=(State.DONE, State.DEAD)), ("done", "archived", "dead")),
    (Query(states=OPEN, mailbox="bob"), ALL[:7]),
    (Query(message_ids=("dead", "plain", "nothing")), ("plain", "dead")),
    (Query(message_ids=("cleo's",), mailbox="bob"), ()),
    (Query(unread_only=True, states=(State.UNREAD,), mailbox="bob"), ("plain", "task", "retried", "expiring")),
    (Query(unread_only=True, states=SETTLED), ("dead",)),
    (Query(kinds=("task", "bounce")), ("task", "dead")),
    (Query(kinds=("message",), states=SETTLED), ("done", "archived")),
    (Query(min_priority=HIGH), ("task", "reply", "queued", "claimed")),
    (Query(min_priority=URGENT), ("reply", "claimed")),
    (Query(sender="cleo"), ("reply",)),
    (Query(sender="Cleo"), ()),
    (Query(sender="nobody"), ()),
    (Query(thread="plain"), ("plain", "reply", "queued")),
    (Query(thread="reply"), ()),
    (Query(thread="done"), ("done",)),
    (Query(thread_tag="release"), ("task",)),
    (Query(tag="blue"), ("task",)),
    (Query(tag="re"), ()),
    (Query(scope="team"), ("task",)),
    (Query(scope="default", mailbox="cleo"), ("cleo's",)),
    (Query(since=after(10)), ("expiring",)),
    (Query(since=after(11)), ()),
    (Query(offered_at=after(29), states=(State.UNREAD,), kinds=("message",), min_priority=NORMAL, mailbox="bob"),
     ("plain", "reply", "expiring")),
    (Query(offered_at=after(30), states=(State.UNREAD,), kinds=("message",), min_priority=NORMAL, mailbox="bob"),
     ("plain", "reply")),
    (Query(due_at=after(49), states=(State.UNREAD, State.QUEUED), mailbox="bob"),
     ("plain", "task", "reply", "expiring")),
    (Query(due_at=after(100), states=(State.UNREAD, State.QUEUED), mailbox="bob"), ALL[:6]),
    (Query(unarchived_before=after(1)), ("done",)),
    (Query(unarchived_before=NOW), ()),
    (Query(mailbox="bob", sender="ann", thread="plain", min_priority=HIGH, states=OPEN), ("queued",)),
]  # fmt: skip


def name_of(query: object) -> str:
    return repr(query)[:60] if isinstance(query, Query) else ""


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=name_of)
def test_every_field_of_a_query_narrows(mixed: Store, query: Query, expected: tuple[str, ...]) -> None:
    assert tuple(ids(mixed, replace(query, order="age"))) == expected
    for order in ("inbox", "priority", "newest"):
        assert sorted(ids(mixed, replace(query, order=order))) == sorted(expected)


@pytest.mark.parametrize(("query", "expected"), QUERIES, ids=name_of)
def test_a_count_agrees_with_what_is_found(mixed: Store, query: Query, expected: tuple[str, ...]) -> None:
    counts = mixed.count(replace(query, limit=1, order="newest"))

    found = [f.delivery.priority for f in mixed.find(query)]
    assert {priority: found.count(priority) for priority in Priority} == counts
    assert sum(counts.values()) == len(expected)


def test_after_counts_by_the_number_of_acceptance(mixed: Store) -> None:
    number = held(mixed, "done").number

    assert ids(mixed, Query(after=number, order="age")) == ["archived", "dead", "cleo's"]
    assert ids(mixed, Query(after=number, states=SETTLED, order="age")) == ["archived", "dead"]


ORDERS: list[tuple[Order, tuple[str, ...]]] = [
    (
        "inbox",
        ("claimed", "task", "queued", "plain", "expiring", "dead", "retried", "reply", "done", "archived"),
    ),
    (
        "priority",
        ("reply", "claimed", "task", "queued", "plain", "expiring", "done", "archived", "dead", "retried"),
    ),
    ("age", ALL[:-1]),
    ("newest", ALL[-2::-1]),
]


@pytest.mark.parametrize(("order", "expected"), ORDERS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_order_is_kept_with_and_without_a_limit(
    mixed: Store, order: Order, expected: tuple[str, ...]
) -> None:
    for limit in (None, 0, 1, 2, 3, 9, 100):
        assert tuple(ids(mixed, Query(mailbox="bob", order=order, limit=limit))) == expected[:limit]


def test_priority_order_mixes_read_and_unread_mail(store: Store) -> None:
    """A store may keep the two apart; the answer may not."""
    for number, (priority, seen) in enumerate(itertools.product(Priority, (False, True, False, True))):
        delivery = send(store, f"m{number}", priority=priority)
        if seen:
            read(store, delivery)

    query = Query(mailbox="bob", states=(State.UNREAD,), order="priority", offered_at=NOW, due_at=NOW)
    everything = ids(store, query)
    assert everything == [f"m{n}" for n in (12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3)]
    for limit in range(17):
        assert ids(store, replace(query, limit=limit)) == everything[:limit]
        unread = ids(store, replace(query, limit=limit, unread_only=True))
        assert unread == [id for id in everything if int(id[1:]) % 2 == 0][:limit]


def test_letters_are_got_by_id(mixed: Store) -> None:
    got = mixed.get(["plain", "nothing", "cleo's"])

    assert {id: found.message.id for id, found in got.items()} == {"plain": "plain", "cleo's": "cleo's"}
    assert got["plain"].number == held(mixed, "plain").number
    assert mixed.get([]) == {}


def test_every_field_of_a_delivery_is_kept(store: Store) -> None:
    """Through a life of failures, so that every field has a value at some time."""
    delivery = send(store, "m1", expires_at=after(99), priority=URGENT)
    for step in range(25):
        delivery = claim(store, delivery, lease(step + 0.25, token=f"t{step}"))
        assert held(store, "m1") == delivery
        delivery = move(
            store, delivery, model_delivery.retry(delivery, attempt(f"try {step} ☹"), after(step)), "retry"
        )
        assert held(store, "m1") == delivery
    assert len(delivery.history) == 20

    delivery = bury(store, delivery)
    assert held(store, "m1") == delivery
    delivery = move(store, delivery, model_delivery.revive(delivery), "revive")
    delivery = ack(store, claim(store, read(store, delivery)), after(7))
    delivery = move(store, delivery, model_delivery.archive(delivery, after(8)), "archive")
    assert held(store, "m1") == delivery
    assert delivery.lease == lease()


def test_mail_that_nobody_has_looked_at_comes_in_the_order_that_is_asked_for(store: Store) -> None:
    for number, priority in enumerate((LOW, URGENT, HIGH, LOW)):
        send(store, f"m{number}", priority=priority)
    query = Query(mailbox="bob", states=(State.UNREAD,), unread_only=True)

    orders: tuple[Order, ...] = ("inbox", "age", "newest")
    found = [ids(store, replace(query, order=order, limit=limit)) for order in orders for limit in (None, 4, 2)]

    by_priority, by_age = ["m1", "m2", "m0", "m3"], ["m0", "m1", "m2", "m3"]
    assert [order[:limit] for order in (by_priority, by_age, by_age[::-1]) for limit in (4, 4, 2)] == found
