"""Nudges: one slot, the latest wins; a reader acts only on what is newer than the last it handled."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from postroom.chipset import Chipset
from postroom.chipset.notes import TYPES
from postroom.errors import Invalid
from tests.rooms import FakeClock

ALPHA = "polecat-alpha"


def test_a_nudge_lies_in_its_slot_as_the_design_says(chipset: Chipset, state: Path) -> None:
    chipset.nudges.send("mayor", ALPHA, "abort", "Stop.", requires_response=True)
    assert json.loads((state / "nudge" / ALPHA / "latest.json").read_text()) == {
        "from": "mayor",
        "type": "abort",
        "message": "Stop.",
        "timestamp": "2030-01-01T12:00:00Z",
        "requires_response": True,
    }


def test_the_latest_wins_and_there_is_no_history(chipset: Chipset, state: Path) -> None:
    for type in TYPES:
        chipset.nudges.send("mayor", ALPHA, type)
    latest = chipset.nudges.latest(ALPHA)
    assert latest and latest.type == TYPES[-1]
    assert [path.name for path in (state / "nudge" / ALPHA).iterdir()] == ["latest.json"]


def test_a_nudge_is_newer_than_the_last_whatever_the_clock_says(chipset: Chipset, clock: FakeClock) -> None:
    first = chipset.nudges.send("mayor", ALPHA, "sync_request")
    chipset.nudges.handle(ALPHA, first)
    assert chipset.nudges.unhandled(ALPHA) is None
    clock.jump(-3600)
    second = chipset.nudges.send("mayor", ALPHA, "sync_request")
    assert second.timestamp > first.timestamp
    assert chipset.nudges.unhandled(ALPHA) == second
    assert chipset.nudges.unhandled(ALPHA, since=second.timestamp) is None
    chipset.nudges.handle(ALPHA, second)
    chipset.nudges.handle(ALPHA, first)  # late: nothing comes back by it
    assert chipset.nudges.unhandled(ALPHA) is None


def test_an_answer_goes_into_the_slot_of_who_asked_and_touches_the_work(
    chipset: Chipset, clock: FakeClock
) -> None:
    chipset.hooks.set(ALPHA, "gt-1", by="mayor")
    clock.advance(10)
    nudge = chipset.nudges.send("witness", ALPHA, "health_check", requires_response=True)
    clock.advance(1)
    chipset.answer(ALPHA, nudge, "Here.")
    answer = chipset.nudges.latest("witness")
    assert answer and (answer.sender, answer.type, answer.message) == (ALPHA, "nudge_response", "Here.")
    assert chipset.nudges.unhandled(ALPHA) is None
    assert chipset.hooks.get(ALPHA).last_activity == clock.wall
    idle = chipset.nudges.send("witness", "polecat-idle", "health_check")
    chipset.answer("polecat-idle", idle)  # without work in hand, there is nothing to touch


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"7",
        b'{"from": "mayor", "type": "abort"}',
        b'{"from": "mayor", "type": "nonsense", "timestamp": "2030-01-01T00:00:00Z"}',
        b'{"from": "../x", "type": "abort", "timestamp": "2030-01-01T00:00:00Z"}',
        b'{"from": "mayor", "type": "abort", "timestamp": "soon"}',
        b"\xff\xfe",
        b" " * 2_000_000,
    ],
)
def test_a_slot_that_cannot_be_read_is_no_nudge_and_is_reported(
    chipset: Chipset, state: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (state / "nudge" / ALPHA).mkdir(parents=True)
    (state / "nudge" / ALPHA / "latest.json").write_bytes(content)
    with caplog.at_level(logging.WARNING, "postroom"):
        assert chipset.nudges.latest(ALPHA) is None
    assert ALPHA in caplog.text
    chipset.nudges.send("mayor", ALPHA, "abort")
    assert chipset.nudges.unhandled(ALPHA)


def test_a_memory_that_is_damaged_acts_once_more(chipset: Chipset, state: Path) -> None:
    nudge = chipset.nudges.send("mayor", ALPHA, "abort")
    chipset.nudges.handle(ALPHA, nudge)
    (state / ".postroom" / "nudges" / f"{ALPHA}.json").write_text("{")
    assert chipset.nudges.unhandled(ALPHA) == nudge


def test_what_is_no_nudge_is_refused(chipset: Chipset) -> None:
    with pytest.raises(Invalid):
        chipset.nudges.send("mayor", ALPHA, "poke")
    with pytest.raises(Invalid):
        chipset.nudges.send("mayor", "../x", "abort")
    with pytest.raises(Invalid):
        chipset.nudges.send("mayor", ALPHA, "abort", "\ud800")
