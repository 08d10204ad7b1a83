"""The token bucket of `sender_rate`: what it admits in any span of time, and what it never refuses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import TooFast, TooLarge
from postroom.policy.admission import check_rate

Check: TypeAlias = Callable[[int, int, int, float, float], float]
START = 1e6  # of a clock that has been running for eleven days
TICK = 1e-5

rates = st.integers(1, 1000)
bursts = st.integers(1, 3000)
calls = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 3000)), min_size=1, max_size=40)  # a pause, letters


def admitted(
    check: Check, rate: int, burst: int, request: list[tuple[float, int]]
) -> list[tuple[float, int, bool]]:
    """When, how many letters, and whether they were admitted."""
    now, full_at, found = START, 0.0, []
    for pause, letters in request:
        now += pause
        try:
            full_at = check(rate, burst, letters, full_at, now)
        except (TooFast, TooLarge):
            found.append((now, letters, False))
        else:
            found.append((now, letters, True))
    return found


def is_bounded(rate: int, burst: int, found: list[tuple[float, int, bool]]) -> bool:
    """In no span of time are more admitted than a burst and the rate allow."""
    for first, (start, _, _) in enumerate(found):
        total = 0
        for at, letters, is_in in found[first:]:
            total += letters if is_in else 0
            if total > burst + rate * (at - start + TICK):
                return False
    return True


@given(rates, bursts, calls)
def test_no_span_of_time_admits_more_than_a_burst_and_the_rate(
    rate: int, burst: int, request: list[tuple[float, int]]
) -> None:
    assert is_bounded(rate, burst, admitted(check_rate, rate, burst, request))


def hoards(rate: int, burst: int, letters: int, full_at: float, now: float) -> float:
    """Saves what it did not use, without bound."""
    return check_rate(rate, burst, letters, full_at, max(now, full_at))


def ignores_number(rate: int, burst: int, letters: int, full_at: float, now: float) -> float:
    """Counts a call of many letters as one."""
    return check_rate(rate, burst, 1, full_at, now)


@pytest.mark.parametrize("planted", [hoards, ignores_number])
def test_a_bucket_that_leaks_is_found(planted: Check) -> None:
    request = [(0.0, 10)] * 20

    assert is_bounded(10, 20, admitted(check_rate, 10, 20, request))
    assert not is_bounded(10, 20, admitted(planted, 10, 20, request))


@given(rates, bursts, st.lists(st.integers(1, 50), min_size=1, max_size=40))
def test_who_stays_under_the_rate_is_never_refused(rate: int, burst: int, sizes: list[int]) -> None:
    fitting = [min(size, burst) for size in sizes]
    paced = [(0.0, fitting[0]), *((before / rate + TICK, size) for before, size in pairwise(fitting))]

    assert all(is_in for _, _, is_in in admitted(check_rate, rate, burst, paced))


def wait(rate: int, burst: int, letters: int, full_at: float, now: float) -> float:
    """As long as the error tells; no time where there is none."""
    try:
        check_rate(rate, burst, letters, full_at, now)
    except TooFast as refused:
        result = refused.retry_after or 0.0
        is_clear = (
            refused.temporary and f"{result:g} seconds" in str(refused) and 0 < result <= burst / rate + 0.001
        )
        return result if is_clear else -1e9
    return 0.0


@given(rates, bursts, calls)
def test_a_client_that_waits_as_long_as_the_error_says_is_admitted(
    rate: int, burst: int, request: list[tuple[float, int]]
) -> None:
    now, full_at = START, 0.0
    for pause, letters in request:
        now += pause
        fitting = min(letters, burst)
        now += wait(rate, burst, fitting, full_at, now)
        full_at = check_rate(rate, burst, fitting, full_at, now)


def test_more_at_once_than_ever_fits_is_refused_for_good_and_says_what_to_do() -> None:
    with pytest.raises(TooLarge, match=r"21 letters at once.*smaller pieces, or raise sender_burst") as refused:
        check_rate(10, 20, 21, 0.0, START)
    assert not refused.value.temporary and refused.value.retry_after is None
