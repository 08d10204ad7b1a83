"""The table of how a delivery may move, and what each move leaves behind."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from postroom.errors import IllegalMove
from postroom.model import delivery as model_delivery
from postroom.model.delivery import DURABLE, MOVES, OPEN, SETTLED, Delivery, State, advance, open_delivery
from postroom.model.message import Priority
from tests.letters import NOW, after, attempt, lease, letter

ACTIONS = sorted({action for _, action in MOVES})
FRESH = open_delivery(letter("m1", priority=Priority.HIGH, expires_at=after(60)), "bob", "to", NOW)


def in_state(state: State, **fields: Any) -> Delivery:
    return replace(FRESH, state=state, **fields)


@pytest.mark.parametrize(("state", "action"), [*itertools.product(State, ACTIONS)])
def test_the_table_decides_every_move(state: State, action: str) -> None:
    before = in_state(state)
    if (state, action) in MOVES:
        after_it = advance(before, action)
        assert (after_it.state, after_it.revision) == (MOVES[state, action], before.revision + 1)
        return
    with pytest.raises(IllegalMove) as refused:
        advance(before, action)
    assert f"a letter that is {state} cannot {action}" in str(refused.value)
    legal = sorted(a for s, a in MOVES if s is state)
    assert f"legal from here: {', '.join(legal)}" in str(refused.value)


def test_every_state_is_open_or_settled_and_every_durable_move_is_in_the_table() -> None:
    assert {*OPEN, *SETTLED} == set(State)
    assert set(ACTIONS) >= DURABLE


def test_done_is_final() -> None:
    assert {after_it for (state, _), after_it in MOVES.items() if state is State.DONE} == {State.DONE}


def test_a_letter_starts_unread_or_queued() -> None:
    queued = open_delivery(letter("m1"), "bob", "cc", NOW, after(9))

    assert (FRESH.state, FRESH.delivered_at, FRESH.due_at) == (State.UNREAD, NOW, None)
    assert (FRESH.priority, FRESH.expires_at) == (Priority.HIGH, after(60))
    assert (queued.state, queued.delivered_at, queued.due_at, queued.kind) == (State.QUEUED, None, after(9), "cc")
    assert model_delivery.deliver(queued, after(9)).delivered_at == after(9)


def test_a_letter_is_unread_until_it_is_looked_at() -> None:
    assert FRESH.is_unread
    assert not model_delivery.read(FRESH, NOW).is_unread
    assert not in_state(State.CLAIMED).is_unread


def test_the_first_look_counts() -> None:
    seen = model_delivery.read(model_delivery.read(FRESH, NOW), after(5))
    assert (seen.read_at, model_delivery.ack(seen, after(9), archive=False).read_at) == (NOW, NOW)
    assert model_delivery.ack(FRESH, after(9), archive=False).read_at == after(9)


def test_an_ack_keeps_the_lease_so_that_its_holder_may_confirm_twice() -> None:
    claimed = model_delivery.renew(model_delivery.claim(FRESH, lease(1)), lease(2))
    done = model_delivery.ack(claimed, NOW, archive=True)

    assert (done.state, done.lease, done.acked_at, done.archived_at) == (State.DONE, lease(2), NOW, NOW)
    later = model_delivery.archive(model_delivery.ack(claimed, NOW, archive=False), after(1))
    assert (later.archived_at, later.acked_at) == (after(1), NOW)


def test_a_failed_try_is_remembered_and_a_release_is_not() -> None:
    claimed = model_delivery.claim(FRESH, lease())
    retried = model_delivery.retry(claimed, attempt("no"), after(10))
    lapsed = model_delivery.lapse(claimed, attempt("late"))
    buried = model_delivery.bury(claimed, attempt("never"))

    assert (retried.attempts, retried.due_at, retried.reason, retried.lease) == (1, after(10), "no", None)
    assert (lapsed.attempts, lapsed.due_at, lapsed.history) == (1, None, (attempt("late"),))
    assert (buried.state, buried.dead_at, buried.reason) == (State.DEAD, NOW, "never")
    assert model_delivery.release(claimed) == replace(FRESH, revision=3)


def test_history_keeps_the_last_twenty_tries() -> None:
    delivery = FRESH
    for number in range(25):
        delivery = model_delivery.retry(model_delivery.claim(delivery, lease()), attempt(str(number)), NOW)

    assert [a.reason for a in delivery.history] == [str(number) for number in range(5, 25)]
    assert delivery.attempts == 25


def test_a_revived_letter_has_all_its_tries_and_no_expiry_but_its_history() -> None:
    dead = model_delivery.expire(FRESH, after(61))
    assert (dead.reason, dead.dead_at) == ("expired", after(61))

    buried = model_delivery.bury(model_delivery.claim(FRESH, lease()), attempt())
    alive = model_delivery.revive(buried)
    assert (alive.state, alive.attempts, alive.expires_at, alive.reason) == (State.UNREAD, 0, None, None)
    assert alive.history == (attempt(),)
