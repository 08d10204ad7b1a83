"""The log of a task that tries again while our own room is busy, or fails."""

from __future__ import annotations

import pytest

from postroom.errors import StoreBusy, StoreFailing
from postroom.federation import courier
from postroom.federation.courier import WARN_AFTER, RetryLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    time = [1000.0]
    monkeypatch.setattr(courier, "monotonic", lambda: time[0])
    return time


def test_a_room_that_is_busy_for_a_moment_again_and_again_is_no_news(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    found = RetryLog("mail")
    for _ in range(5):
        found.failed(StoreBusy("somebody is in the room"))
        clock[0] += WARN_AFTER - 1
        found.failed(StoreBusy("somebody is in the room"))
        found.recovered()
    assert [] == caplog.messages


def test_what_lasts_or_fails_is_said_once_until_it_is_over(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    found = RetryLog("mail")
    for _ in range(5):
        found.failed(StoreBusy("somebody is in the room"))
        clock[0] += WARN_AFTER
    assert ["mail waits a moment: somebody is in the room"] == caplog.messages
    found.recovered()
    found.failed(StoreFailing("the disk is full"))
    assert 2 == len(caplog.messages)
