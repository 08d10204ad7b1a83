"""What every store promises about guards: who posts is asked, inside the commit, how a letter may be written."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from postroom.errors import NotAllowed
from postroom.model.query import Query
from postroom.model.record import GUARD, Record
from postroom.store.protocol import FEW, Post, Put, Store
from tests.letters import everything, letter, post


def guard(mailbox: str, *allowed: str) -> Put:
    return Put(record=Record(kind=GUARD, key=mailbox, value=list(allowed)))


def refuse(post: Post) -> Post:
    raise NotAllowed


def send_on(post: Post) -> Post:
    return replace(post, deliveries=tuple(replace(d, mailbox="dora") for d in post.deliveries[:1]))


@pytest.mark.parametrize("recipients", [1, FEW + 3])
def test_a_refusal_leaves_nothing_behind(store: Store, recipients: int) -> None:
    everyone = ["bob", *(f"agent{number}" for number in range(recipients - 1))]
    store.commit([guard("bob", "cleo")])
    before = everything(store)

    with pytest.raises(NotAllowed):
        store.commit([post(letter("m0", ["eve"])), post(letter("m1", everyone), admit=refuse)])

    assert everything(store) == before


def test_a_letter_is_written_as_it_was_admitted_and_its_reader_is_notified(store: Store) -> None:
    store.commit([guard("bob", "cleo")])
    watch = store.watch(["dora"])

    (posted,) = store.commit([post(letter("m1"), admit=send_on)])

    assert [found.delivery.mailbox for found in store.find(Query())] == ["dora"]
    assert posted.written is not None
    assert posted.written.deliveries[0].mailbox == "dora"
    assert watch.wait(10)
    assert watch.notified() <= {"dora"}
    watch.close()


def test_a_letter_that_routes_is_asked_about_where_nobody_has_a_guard(store: Store) -> None:
    store.commit([post(letter("m1"), admit=send_on, routes=True)])

    assert [found.delivery.mailbox for found in store.find(Query())] == ["dora"]


def test_a_guard_written_earlier_in_the_same_commit_counts(store: Store) -> None:
    with pytest.raises(NotAllowed):
        store.commit([guard("bob", "ann"), post(letter("m1"), admit=refuse)])


def test_one_who_is_asked_sees_the_letters_before_it_in_the_same_commit(store: Store) -> None:
    seen = []

    def look(post: Post) -> Post:
        seen.append(len(store.find(Query())))
        return post

    store.commit([post(letter("m1")), post(letter("m2"), admit=look, routes=True)])

    assert seen == [1]


def test_a_letter_that_was_accepted_before_is_not_asked_about_again(store: Store) -> None:
    store.commit([post(letter("m1"))])
    store.commit([guard("bob", "cleo")])

    (again,) = store.commit([post(letter("m1"), admit=refuse)])

    assert again.repeated
