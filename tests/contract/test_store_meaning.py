"""Every store answers what a query means, as `meaning` says it in plain Python, over mail of any kind.

The model filters all that is in the room; the store must find the same, in the same order.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from msgspec.structs import replace

from postroom.model import delivery as model_delivery
from postroom.model.delivery import State
from postroom.model.message import Priority
from postroom.model.query import Found, LetterQuery, Order, Query
from postroom.model.thread import conversation_of
from postroom.store.protocol import Store
from tests.conftest import LONG
from tests.contract import meaning
from tests.letters import ack, after, attempt, bury, claim, held, letter, moment, move, post, read

NAMES = ("ann", "bob", "cleo", "dora@far")
TIMES = tuple(after(seconds) for seconds in (-20, 0, 10, 30, 50, 100))
EXAMPLES = 2000 if LONG else 150


def fill(store: Store) -> None:
    """Mail in every state, to several mailboxes, with marks that come together in many ways."""
    for number in range(36):
        fields: dict[str, Any] = {
            "sender": NAMES[number % 3],
            "priority": tuple(Priority)[number % 4],
            "kind": ("message", "task", "bounce")[number % 3],
            "tags": (("red",), ("red", "blue"), ())[number % 3],
            "scope": ("default", "team")[number % 2],
            "created_at": TIMES[number % 4],
        }
        if number % 5 == 1:
            fields["thread_tag"] = "release"
        if number % 7 == 3:
            fields |= {"thread_id": "m0", "in_reply_to": "m0"}
        if number % 6 == 4:
            fields["expires_at"] = TIMES[3 + number % 3]
        id, to = f"m{number}", NAMES[number % 4 : number % 4 + 1 + number % 2]
        if number % 9 == 8:
            store.commit([post(letter(id, ["bob"], **fields), due_at=TIMES[3 + number % 3])])
            continue
        store.commit([post(letter(id, to, **fields))])
        sent = held(store, id, to[0])
        if sent.state is State.UNREAD:
            change(store, number, sent)


def change(store: Store, number: int, sent: model_delivery.Delivery) -> None:
    match number % 8:
        case 0:
            read(store, sent)
        case 1:
            claim(store, sent)
        case 2:
            ack(store, sent, TIMES[number % 6])
        case 3:
            ack(store, sent, archive=True)
        case 4:
            bury(store, sent)
        case 5:
            claimed = claim(store, sent)
            move(store, claimed, model_delivery.retry(claimed, attempt(), TIMES[number % 6]), "retry")
        case _:
            pass


@pytest.fixture
def room(store: Store) -> tuple[Store, list[Found]]:
    fill(store)
    return store, store.find(Query(order="age"))


def maybe(values: Any) -> some.SearchStrategy[Any]:
    return some.none() | some.sampled_from(values)


times: some.SearchStrategy[datetime | None] = maybe(TIMES)
queries = some.builds(
    Query,
    mailbox=maybe((*NAMES, "nobody")),
    states=some.lists(some.sampled_from(tuple(State)), max_size=3, unique=True).map(tuple),
    message_ids=some.just(()) | some.just(("m1", "m5", "m12", "x")),
    unread_only=some.booleans(),
    shown_only=some.booleans(),
    min_priority=some.sampled_from(tuple(Priority)),
    kinds=some.just(()) | some.just(("task", "bounce")),
    sender=maybe(NAMES),
    thread=maybe(("m0", "m7")),
    thread_tag=maybe(("release",)),
    tag=maybe(("blue", "red")),
    scope=maybe(("team", "default")),
    since=times,
    sent_before=times,
    offered_at=times,
    due_at=times,
    due_most=times,
    unarchived_before=times,
    reason=maybe(("failed", "no")),
    dead_by=times,
    after=maybe((0, 5, 17)),
    until=maybe((9, 25)),
    order=some.sampled_from(get_args(Order)),
    limit=maybe((1, 3, 50)),
)
letter_queries = some.builds(
    LetterQuery,
    thread=maybe(("m0", "m7")),
    thread_tag=maybe(("release",)),
    scope=maybe(("team", "default")),
    party=maybe(NAMES),
    sender=maybe(NAMES),
    received_by=maybe(NAMES),
    to_several=some.booleans(),
    settled_before=times,
    spared=some.just(()) | some.just(("m2", "m3")),
    replies_in=maybe(("m0",)),
    after=some.sampled_from((0, 5, 17)),
    skip=some.sampled_from((0, 2)),
    order=some.sampled_from(("age", "newest")),
    limit=maybe((1, 3, 50)),
)
many = settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@many
@given(query=queries)
def test_a_query_finds_and_counts_what_it_means(room: tuple[Store, list[Found]], query: Query) -> None:
    store, everything = room
    wanted = [
        one
        for one in everything
        if meaning.matches_delivery(one.delivery, query)
        and meaning.matches_letter(one.message, query, one.message.sender)
    ]
    wanted.sort(key=meaning.by_arrival if query.after is not None else meaning.SORT[query.order])

    def names(found: list[Found]) -> list[tuple[str, str]]:
        return [(one.message.id, one.delivery.mailbox) for one in found]

    counted = Counter(one.delivery.priority for one in wanted)
    assert {priority: counted[priority] for priority in Priority} == store.count(query)
    assert len(wanted) == store.count(query, by="all")
    reasons = Counter((one.delivery.mailbox, one.delivery.reason or "") for one in wanted)
    assert reasons == store.count(query, by="reason")
    mailboxes = Counter(one.delivery.mailbox for one in sorted(wanted, key=meaning.SORT["age"]))
    assert mailboxes == store.count(query, by="mailbox")
    found = store.find(query)
    if query.mailbox is not None:
        assert names(wanted[: query.limit]) == names(found)
    else:  # deliveries of one letter have no order among themselves
        assert sorted(names(found)) == sorted(names(found) if query.limit else names(wanted))
        assert [key(query, one) for one in found] == [key(query, one) for one in wanted[: query.limit]]


def key(query: Query, found: Found) -> Any:
    return meaning.by_arrival(found) if query.after is not None else meaning.SORT[query.order](found)


@many
@given(query=letter_queries)
def test_a_query_for_letters_finds_and_counts_what_it_means(
    room: tuple[Store, list[Found]], query: LetterQuery
) -> None:
    store, everything = room
    letters = store.letters(LetterQuery())
    wanted = [
        one.message.id
        for one in letters
        if one.number > query.after
        and meaning.matches_letters(
            one.message, [f.delivery for f in everything if f.message.id == one.message.id], query
        )
    ]
    if query.order == "newest":
        wanted.reverse()
    end = None if query.limit is None else query.skip + query.limit

    assert wanted[query.skip : end] == [one.message.id for one in store.letters(query)]
    assert len(wanted) == store.count(query, by="all")
    known = {letter.message.id: letter.message for letter in letters}
    newest = sorted((known[id] for id in wanted), key=lambda message: int(message.id[1:]), reverse=True)
    numbers = {letter.message.id: letter.number for letter in letters}
    for before in (None, *list(numbers.values())[::5]):
        talks: dict[str, str] = {}
        threads: dict[str, str] = {}
        for one in newest:
            talks.setdefault(conversation_of(one), one.id)
            if one.thread_id:
                threads.setdefault(one.thread_id, one.id)
        for group, first in (("conversation", talks), ("thread", threads)):
            expected = [id for id in first.values() if before is None or numbers[id] < before]
            asked = replace(query, newest_of=group, before=before)
            assert expected[: query.limit] == [one.message.id for one in store.letters(asked)]


def test_what_time_does_and_what_is_waiting_is_as_it_means(room: tuple[Store, list[Found]]) -> None:
    store, everything = room
    deliveries = [one.delivery for one in everything]
    assert meaning.tallies(deliveries) == store.count(Query(), by="state")
    for seconds in (0, 20, 49, 51, 200):
        at = moment(seconds)
        late = {(d.message_id, d.mailbox) for d in deliveries if meaning.seconds_left(d, at) <= 0}
        assert late == {(f.message.id, f.delivery.mailbox) for f in store.overdue(at, None, 100).found}
        for name in NAMES:
            wanted = meaning.next_timer(deliveries, at, name)
            assert store.overdue(at, [name], 0, ahead=1e9).next_in == pytest.approx(wanted)
