"""What a connection remembers between two commits is used only while nobody else has written."""

from __future__ import annotations

import pytest

from postroom.errors import IdTaken, QuotaFull, StaleRevision
from postroom.model.record import GUARD, ROUTE, Record
from postroom.store.protocol import Introduce, Post, Put, Write
from postroom.store.sqlite.store import SqliteStore
from tests.letters import ack, claim, forget, held, letter, note, post, send
from tests.store.helpers import database


def numbers(store: SqliteStore) -> list[int]:
    """All that were ever given, in their order."""
    sql = "SELECT number FROM letters UNION ALL SELECT number FROM changes ORDER BY 1"
    return [number for (number,) in store.query(sql, [])]


def test_no_number_is_given_twice_by_two_who_take_turns(store: SqliteStore, other: SqliteStore) -> None:
    for place, room in enumerate((store, store, other, store, other, other, store)):
        delivery = claim(room, send(room, f"letter-{place}"))
        if place % 2:
            ack(room, delivery)
        room.commit([note(place, key=f"key-{place}")])
    assert list(range(1, len(numbers(store)) + 1)) == numbers(store)


def test_no_number_is_given_twice_after_a_commit_that_failed(store: SqliteStore) -> None:
    send(store, "first")
    with pytest.raises(StaleRevision):
        store.commit([post(letter("refused")), note("x", revision=5)])
    send(store, "second")
    assert [1, 2] == numbers(store)


def test_what_a_plan_set_aside_counts(store: SqliteStore) -> None:
    send(store, "first")
    with database(store.path) as room:
        room.execute("UPDATE letters SET body = 'junk'")
    send(store, "second")
    send(store, "third")

    def plan() -> list[Write]:
        assert {} == store.get(("first",))
        return [post(letter("fourth"))]

    store.commit(plan)
    assert [2, 3, 4, 5] == numbers(store)


def test_a_letter_that_is_here_is_met_though_nobody_looked_for_it(store: SqliteStore) -> None:
    send(store, "first")
    send(store, "second")
    (again,) = store.commit([post(letter("first"))])
    assert again.repeated
    with pytest.raises(IdTaken):
        store.commit([post(letter("first", subject="something else"))])
    send(store, "third")
    assert [1, 2, 3] == numbers(store)


def test_a_repeated_letter_is_not_refused_for_a_full_inbox(store: SqliteStore) -> None:
    send(store, "first")
    send(store, "second")
    (again,) = store.commit([post(letter("first"), quota=1)])
    assert again.repeated
    with pytest.raises(QuotaFull):
        store.commit([post(letter("third"), quota=1)])


def test_what_another_process_forgot_is_remembered(store: SqliteStore, other: SqliteStore) -> None:
    send(store, "first")
    ack(store, claim(store, held(store, "first")))
    other.commit(forget(letter("first")))
    (again,) = store.commit([post(letter("first"))])
    assert again.repeated


@pytest.mark.parametrize("is_own", [True, False])
def test_a_guard_is_asked_from_the_moment_it_is_there(
    store: SqliteStore, other: SqliteStore, *, is_own: bool
) -> None:
    request: list[str] = []

    def admit(read_cursor: Post) -> Post:
        request.append(read_cursor.message.id)
        return read_cursor

    store.commit([post(letter("before"), admit=admit)])
    store.commit([post(letter("still before"), admit=admit)])
    guard = Put(record=Record(kind=GUARD, key="bob", value={}))
    (store if is_own else other).commit([guard])
    store.commit([post(letter("after"), admit=admit)])
    assert ["after"] == request


def test_where_agents_elsewhere_are_known_only_a_letter_to_nobody_here_is_asked(
    store: SqliteStore, other: SqliteStore
) -> None:
    request: list[str] = []

    def admit(read_cursor: Post) -> Post:
        request.append(read_cursor.message.id)
        return read_cursor

    store.commit([Put(record=Record(kind=ROUTE, key="carl", value={}))])
    store.commit([post(letter("to a stranger", ["carl"]), admit=admit)])
    other.commit([Introduce("bob", known=True)])
    store.commit([post(letter("to bob", ["bob"]), admit=admit)])
    store.commit([post(letter("elsewhere", ["dora@far"]), admit=admit)])
    assert ["to a stranger"] == request
