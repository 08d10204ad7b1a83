"""What every store promises about guards: each is read inside the commit, and the one who posts is asked."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.errors import NotAllowed
from postroom.model.record import GUARD, Record
from postroom.store.base import FEW, Put, Store
from tests.letters import everything, letter, post


class Judge:
    """Remembers what it was asked, and refuses whom it is told to."""

    def __init__(self, refuses: str = "") -> None:
        self.asked: list[tuple[str, Any]] = []
        self._refuses = refuses

    def __call__(self, mailbox: str, guard: Any) -> None:
        self.asked.append((mailbox, guard))
        if mailbox == self._refuses:
            raise NotAllowed


def guard(mailbox: str, *allowed: str) -> Put:
    return Put(record=Record(kind=GUARD, key=mailbox, value=list(allowed)))


def test_only_recipients_with_a_guard_are_asked_about(store: Store) -> None:
    store.commit([guard("bob", "cleo"), guard("dora", "ann")])
    judge = Judge()

    store.commit([post(letter("m1", ["bob", "eve"]), admit=judge)])

    assert judge.asked == [("bob", ["cleo"])]


@pytest.mark.parametrize("recipients", [1, FEW + 3])
def test_a_refusal_leaves_nothing_behind(store: Store, recipients: int) -> None:
    everyone = ["bob", *(f"agent{number}" for number in range(recipients - 1))]
    store.commit([guard("bob", "cleo")])
    before = everything(store)

    with pytest.raises(NotAllowed):
        store.commit([post(letter("m0", ["eve"])), post(letter("m1", everyone), admit=Judge("bob"))])

    assert everything(store) == before


def test_a_guard_written_earlier_in_the_same_commit_counts(store: Store) -> None:
    judge = Judge()

    store.commit([guard("bob", "ann"), post(letter("m1"), admit=judge)])

    assert judge.asked == [("bob", ["ann"])]


def test_a_letter_that_was_accepted_before_is_not_judged_again(store: Store) -> None:
    store.commit([post(letter("m1"))])
    store.commit([guard("bob", "cleo")])

    (again,) = store.commit([post(letter("m1"), admit=Judge("bob"))])

    assert again.repeated


def test_without_a_judge_guards_are_not_asked(store: Store) -> None:
    store.commit([guard("bob", "cleo")])

    (posted,) = store.commit([post(letter("m1"))])

    assert posted.number
