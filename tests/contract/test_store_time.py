"""What every store knows of time: what is overdue, and when something will be."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from postroom.model import delivery
from postroom.model.delivery import State
from postroom.model.message import Priority
from postroom.model.query import Moment, Query
from postroom.store.protocol import Store
from tests.contract.conftest import Reboot
from tests.contract.stores import Kind
from tests.letters import ack, attempt, claim, held, lease_of, letter, move, post, read, send

AHEAD = 1e6  # seconds


class Time:
    """The time of one store: it decides when a lease is over."""

    def __init__(self, store: Store) -> None:
        self._now = store.clock.now()

    def moment(self, seconds: float = 0) -> Moment:
        return replace(self._now, wall=self.after(seconds), steady=self._now.steady + seconds)

    def after(self, seconds: float) -> datetime:
        return self._now.wall + timedelta(seconds=seconds)


def overdue(store: Store, seconds: float, *mailboxes: str) -> list[str]:
    found = store.overdue(Time(store).moment(seconds), mailboxes or None, 100).found
    return sorted(f.message.id for f in found)


def wait(store: Store, seconds: float = 0, *mailboxes: str, ahead: float = AHEAD) -> float | None:
    left = store.overdue(Time(store).moment(seconds), mailboxes or ("bob",), 0, ahead=ahead).next_in
    return None if left is None else round(left, 6)


@pytest.fixture
def timed(store: Store) -> Store:
    """Bob's letters, each with one thing that time will do to it."""
    after = Time(store).after
    claim(store, send(store, "lease"), lease_of(store, 10))
    store.commit([post(letter("queued"), due_at=after(20))])
    send(store, "expiring", expires_at=after(30))
    retried = claim(store, send(store, "retried"))
    move(store, retried, delivery.retry(retried, attempt(), after(40)), "retry")
    store.commit([post(letter("both", expires_at=after(50)), due_at=after(60))])
    send(store, "plain")
    ack(store, send(store, "settled", expires_at=after(5)))
    claim(store, send(store, "held", expires_at=after(15)), lease_of(store, 1000))
    return store


def test_nothing_is_overdue_too_early(timed: Store) -> None:
    assert overdue(timed, 9.999) == []


def test_leases_queued_mail_and_expiries_become_overdue_in_time(timed: Store) -> None:
    assert overdue(timed, 10) == ["lease"]
    assert overdue(timed, 20) == ["lease", "queued"]
    assert overdue(timed, 30) == ["expiring", "lease", "queued"]
    assert overdue(timed, 50) == ["both", "expiring", "lease", "queued"]


def test_overdue_mail_is_that_of_the_mailboxes_asked_for(timed: Store) -> None:
    send(timed, "cleo's", ["cleo"], expires_at=Time(timed).after(1))

    assert overdue(timed, 10, "cleo") == ["cleo's"]
    assert overdue(timed, 10, "bob", "cleo", "nobody") == ["cleo's", "lease"]
    assert overdue(timed, 10, "nobody") == []
    late = Time(timed).moment(99)
    assert timed.overdue(late, [], 100).found == []
    assert len(timed.overdue(late, ["bob"], 2).found) == 2
    assert timed.overdue(late, ["bob"], 0).found == []


def offered(store: Store, seconds: float, mailbox: str = "bob", **more: Any) -> list[str]:
    """The ids of what can be claimed, the way whoever claims asks for it."""
    now = Time(store).after(seconds)
    query = Query(mailbox=mailbox, states=(State.UNREAD,), offered_at=now, due_at=now, order="priority", limit=10)
    return [f.message.id for f in store.find(replace(query, **more))]


def test_mail_is_offered_until_it_expires_and_once_its_next_try_is_due(timed: Store) -> None:
    assert offered(timed, 9.999) == ["expiring", "plain"]
    assert offered(timed, 9.999, limit=1) == ["expiring"]
    assert offered(timed, 30) == ["plain"]
    assert offered(timed, 40) == ["retried", "plain"]


@pytest.mark.parametrize("cause", ["lease", "queued", "expiring"])
@pytest.mark.parametrize("other", ["unread", "seen", "none"])
def test_what_is_overdue_is_found_whatever_else_is_offered(store: Store, cause: str, other: str) -> None:
    time = Time(store)
    if other != "none":
        send(store, "other", priority=Priority.URGENT)
    if other == "seen":
        read(store, held(store, "other"))
    if cause == "lease":
        claim(store, send(store, "lease"), lease_of(store, 10))
    elif cause == "queued":
        store.commit([post(letter("queued"), due_at=time.after(10))])
    else:
        send(store, "expiring", expires_at=time.after(10))
    send(store, "cleo's", ["cleo"])

    before = (["other"] if other != "none" else []) + (["expiring"] if cause == "expiring" else [])
    assert (overdue(store, 9.999, "bob"), offered(store, 9.999)) == ([], before)
    assert overdue(store, 10, "bob") == [cause]
    assert overdue(store, 10, "cleo") == []
    assert offered(store, 10, "cleo") == ["cleo's"]


def test_mail_that_was_looked_at_is_offered_by_its_priority_too(store: Store) -> None:
    send(store, "low", priority=Priority.LOW)
    send(store, "seen")
    read(store, held(store, "seen"))
    send(store, "high", priority=Priority.HIGH)

    assert offered(store, 0) == ["high", "seen", "low"]
    assert offered(store, 0, limit=2) == ["high", "seen"]
    assert offered(store, 0, sender="nobody") == []
    assert offered(store, 0, "nobody") == []


def test_an_overdue_delivery_comes_as_it_is(timed: Store) -> None:
    time = Time(timed)
    (found,) = timed.overdue(time.moment(10), None, 10).found

    assert (found.message, found.delivery.lease) == (letter("lease"), lease_of(timed, 10))


def test_no_lease_outlives_a_boot(kind: Kind, store: Store, reboot: Reboot) -> None:
    if not kind.lasts:
        pytest.skip("this store does not outlive its process")
    claim(store, send(store, "m1"), lease_of(store, 1_000_000))
    assert overdue(store, 0) == []

    again = reboot("boot-2")
    assert overdue(again, 0) == ["m1"]
    assert overdue(again, 0, "bob") == ["m1"]
    assert wait(again) is None


def test_the_next_timer_is_the_earliest_thing_that_time_will_do(timed: Store) -> None:
    assert wait(timed) == 10
    assert wait(timed, 9.5) == 0.5
    assert wait(timed, 10) == 10
    assert wait(timed, 20) == 10
    assert wait(timed, 30) == 10
    assert wait(timed, 40) == 10
    assert wait(timed, 60) == 940
    assert wait(timed, 1000) is None


def test_the_next_timer_is_that_of_the_mailboxes_asked_for(timed: Store) -> None:
    send(timed, "cleo's", ["cleo"], expires_at=Time(timed).after(1))

    assert wait(timed, 0, "cleo") == 1
    assert wait(timed, 0, "bob", "cleo") == 1
    assert wait(timed, 0, "nobody") is None
    assert timed.overdue(Time(timed).moment(), [], 0, ahead=AHEAD).next_in is None
    assert timed.overdue(Time(timed).moment(), None, 0, ahead=AHEAD).next_in == 1


def test_the_next_timer_is_looked_for_only_so_far_ahead(timed: Store) -> None:
    assert [wait(timed, ahead=seconds) for seconds in (0, 9.999, 10.001)] == [None, None, 10]
    assert wait(timed, 60, ahead=900) is None


def test_a_wall_clock_that_jumps_ends_no_lease(store: Store) -> None:
    time = Time(store)
    claim(store, send(store, "m1"), lease_of(store, 10))

    jumped = replace(time.moment(5), wall=time.after(9e8))
    assert store.overdue(jumped, None, 9).found == []
    back = replace(time.moment(10), wall=time.after(0))
    assert len(store.overdue(back, None, 9).found) == 1
