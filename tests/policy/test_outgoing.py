"""Mail that another system did not take yet: when it is tried again, and when that ends (I5, G9)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from postroom.model.delivery import Delivery
from postroom.policy.limits import Limits
from postroom.policy.retry import is_spent, is_too_old, next_try, pause
from tests.letters import NOW

DOUBLING = Limits(outbox_retry_base=1, outbox_retry_cap=60)
FIXED = Limits(outbox_retry="fixed", outbox_retry_base=5, outbox_retry_cap=60)


@pytest.mark.parametrize(
    ("attempts", "least", "most"), [(1, 0.5, 1), (2, 1, 2), (3, 2, 4), (6, 16, 32), (7, 30, 60), (10_000, 30, 60)]
)
def test_pauses_double_up_to_the_cap_and_half_of_each_is_chance(attempts: int, least: float, most: float) -> None:
    assert timedelta(seconds=least) == pause(attempts, DOUBLING, 0.0)
    assert timedelta(seconds=most) == pause(attempts, DOUBLING, 1.0)
    assert timedelta(seconds=(least + most) / 2) == pause(attempts, DOUBLING, 0.5)


@pytest.mark.parametrize("attempts", [1, 2, 9, 10_000])
def test_fixed_pauses_are_all_alike(attempts: int) -> None:
    assert {timedelta(seconds=5)} == {pause(attempts, FIXED, chance) for chance in (0.0, 0.5, 1.0)}


def test_no_pause_is_longer_than_the_cap() -> None:
    wide = Limits(outbox_retry_base=90, outbox_retry_cap=60)
    assert timedelta(seconds=60) == pause(1, wide, 1.0)
    assert timedelta(seconds=60) == pause(
        1, Limits(outbox_retry="fixed", outbox_retry_base=90, outbox_retry_cap=60), 0.0
    )


def test_a_delivery_is_due_again_after_the_pause_of_its_tries() -> None:
    first = Delivery(message_id="m", mailbox="bob@berlin")
    third = Delivery(message_id="m", mailbox="bob@berlin", attempts=2)
    assert NOW + timedelta(seconds=1) == next_try(first, NOW, DOUBLING, 1.0)
    assert NOW + timedelta(seconds=4) == next_try(third, NOW, DOUBLING, 1.0)


@pytest.mark.parametrize(("age", "is_over"), [(0, False), (86_399, False), (86_400, True), (10**6, True)])
def test_mail_waits_for_a_day_and_no_longer(age: float, is_over: bool) -> None:
    assert is_over == is_too_old(NOW, NOW + timedelta(seconds=age), Limits())


@pytest.mark.parametrize(("most", "attempts", "is_over"), [(0, 10_000, False), (3, 2, False), (3, 3, True)])
def test_tries_are_counted_only_where_a_number_is_set(most: int, attempts: int, is_over: bool) -> None:
    assert is_over == is_spent(attempts, Limits(outbox_max_attempts=most))
