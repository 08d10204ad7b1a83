"""What every store knows of time: what is overdue, and when something will be."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from postroom.model import delivery
from postroom.model.delivery import State
from postroom.model.message import Priority
from postroom.model.query import Query
from postroom.store.protocol import Store
from tests.contract.conftest import Reboot
from tests.contract.stores import Kind
from tests.letters import NOW, ack, after, attempt, claim, held, lease, letter, moment, move, post, read, send


def overdue(store: Store, seconds: float, *mailboxes: str, boot: str = "boot-1") -> list[str]:
    return sorted(f.message.id for f in store.overdue(moment(seconds, boot), mailboxes or None, 100))


def wait(store: Store, seconds: float = 0, *mailboxes: str) -> float | None:
    left = store.next_timer(moment(seconds), mailboxes or ("bob",))
    return None if left is None else round(left, 6)


@pytest.fixture
def timed(store: Store) -> Store:
    """Bob's letters, each with one thing that time will do to it."""
    claim(store, send(store, "lease"), lease(10))
    store.commit([post(letter("queued"), due_at=after(20))])
    send(store, "expiring", expires_at=after(30))
    retried = claim(store, send(store, "retried"))
    move(store, retried, delivery.retry(retried, attempt(), after(40)), "retry")
    store.commit([post(letter("both", expires_at=after(50)), due_at=after(60))])
    send(store, "plain")
    ack(store, send(store, "settled", expires_at=after(5)))
    claim(store, send(store, "held", expires_at=after(15)), lease(1000))
    return store


def test_nothing_is_overdue_too_early(timed: Store) -> None:
    assert overdue(timed, 9.999) == []


def test_leases_queued_mail_and_expiries_become_overdue_in_time(timed: Store) -> None:
    assert overdue(timed, 10) == ["lease"]
    assert overdue(timed, 20) == ["lease", "queued"]
    assert overdue(timed, 30) == ["expiring", "lease", "queued"]
    assert overdue(timed, 50) == ["both", "expiring", "lease", "queued"]


def test_overdue_mail_is_that_of_the_mailboxes_asked_for(timed: Store) -> None:
    send(timed, "cleo's", ["cleo"], expires_at=after(1))

    assert overdue(timed, 10, "cleo") == ["cleo's"]
    assert overdue(timed, 10, "bob", "cleo", "nobody") == ["cleo's", "lease"]
    assert overdue(timed, 10, "nobody") == []
    assert timed.overdue(moment(99), [], 100) == []
    assert len(timed.overdue(moment(99), ["bob"], 2)) == 2


def offered(store: Store, seconds: float, mailbox: str = "bob", **more: Any) -> list[str] | None:
    """The ids of what can be claimed, the way whoever claims asks for it."""
    now = moment(seconds)
    query = Query(mailbox=mailbox, states=(State.UNREAD,), offered_at=now.wall, due_at=now.wall, order="priority")
    found = store.offered(replace(query, **({"limit": 10} | more)), now)
    return None if found is None else [f.message.id for f in found]


def test_mail_is_offered_unless_something_there_is_overdue(timed: Store) -> None:
    assert offered(timed, 9.999) == ["expiring", "plain"]
    assert offered(timed, 9.999, limit=1) == ["expiring"]
    assert offered(timed, 10) is None


@pytest.mark.parametrize("cause", ["lease", "queued", "expiring"])
@pytest.mark.parametrize("other", ["unread", "seen", "none"])
def test_whatever_is_overdue_comes_before_what_is_offered(store: Store, cause: str, other: str) -> None:
    if other != "none":
        send(store, "other", priority=Priority.URGENT)
    if other == "seen":
        read(store, held(store, "other"))
    if cause == "lease":
        claim(store, send(store, "lease"), lease(10))
    elif cause == "queued":
        store.commit([post(letter("queued"), due_at=after(10))])
    else:
        send(store, "expiring", expires_at=after(10))
    send(store, "cleo's", ["cleo"])

    before = (["other"] if other != "none" else []) + (["expiring"] if cause == "expiring" else [])
    assert offered(store, 9.999) == before
    assert offered(store, 10) is None
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
    (found,) = timed.overdue(moment(10), None, 10)

    assert (found.message, found.delivery.lease) == (letter("lease"), lease(10))


def test_no_lease_outlives_a_boot(kind: Kind, store: Store, reboot: Reboot) -> None:
    if not kind.lasts:
        pytest.skip("this store does not outlive its process")
    claim(store, send(store, "m1"), lease(1_000_000))
    assert overdue(store, 0) == []

    again = reboot("boot-2")
    assert overdue(again, 0, boot="boot-2") == ["m1"]
    assert overdue(again, 0, "bob", boot="boot-2") == ["m1"]
    assert again.next_timer(moment(0, "boot-2"), ["bob"]) is None


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
    send(timed, "cleo's", ["cleo"], expires_at=after(1))

    assert wait(timed, 0, "cleo") == 1
    assert wait(timed, 0, "bob", "cleo") == 1
    assert wait(timed, 0, "nobody") is None
    assert timed.next_timer(moment(), []) is None


def test_a_wall_clock_that_jumps_ends_no_lease(store: Store) -> None:
    claim(store, send(store, "m1"), lease(10))
    jumped = moment(5)

    assert store.overdue(type(jumped)(wall=after(9e8), steady=jumped.steady, boot=jumped.boot), None, 9) == []
    back = type(jumped)(wall=NOW, steady=1010, boot=jumped.boot)
    assert len(store.overdue(back, None, 9)) == 1
