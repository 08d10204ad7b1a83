"""Handoff notes: append-only, each under a name of its own, in the order of time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.chipset import Chipset
from postroom.errors import Invalid
from tests.chipset.people import finish, start
from tests.rooms import FakeClock

ALPHA = "polecat-alpha"


def test_a_note_stands_in_its_file_as_the_design_says(chipset: Chipset, state: Path, clock: FakeClock) -> None:
    note = chipset.notes.write(
        ALPHA,
        bead="gt-1",
        session_outgoing="s-1",
        summary="Half done.",
        remaining=["tests", "docs"],
        branch="auth",
        last_commit="abc123",
    )
    assert note.filename == "2030-01-01T12-00-00.000000Z.json"
    assert note.written_at == clock.wall
    assert json.loads((state / "handoff" / ALPHA / note.filename).read_text()) == {
        "bead": "gt-1",
        "session_outgoing": "s-1",
        "summary": "Half done.",
        "remaining": ["tests", "docs"],
        "branch": "auth",
        "last_commit": "abc123",
    }
    assert chipset.notes.all(ALPHA) == [note]
    assert chipset.notes.latest("polecat-beta") is None


def test_notes_of_one_moment_and_of_a_clock_set_back_stay_apart_and_in_order(
    chipset: Chipset, clock: FakeClock
) -> None:
    for number in range(3):
        chipset.notes.write(ALPHA, bead="gt-1", summary=str(number))
        clock.jump(-60)
    assert [note.summary for note in chipset.notes.all(ALPHA)] == ["0", "1", "2"]
    latest = chipset.notes.latest(ALPHA)
    assert latest and latest.summary == "2"


def test_notes_of_many_processes_are_all_there(state: Path) -> None:
    finish([start("noter", state, name, "40") for name in ("a", "b", "c")])
    notes = Chipset(state).notes.all(ALPHA)
    assert len({note.filename for note in notes}) == len({note.summary for note in notes}) == 120


def test_what_cannot_be_read_is_left_out_and_reported(chipset: Chipset, state: Path) -> None:
    chipset.notes.write(ALPHA, bead="gt-1", summary="x")
    folder = state / "handoff" / ALPHA
    (folder / "2029-01-01T00-00-00Z.json").write_text('{"bead": "gt-0", "remaining": "x", "summary": 7}')
    (folder / "zz.json").write_text("{")
    (folder / "zy.json").write_text("{}")
    assert [note.bead for note in chipset.notes.all(ALPHA)] == ["gt-0", "gt-1"]
    assert len(chipset.notes.broken(ALPHA)) == 2
    chipset.notes.write(ALPHA, bead="gt-2", summary="y")
    assert chipset.notes.latest(ALPHA) is not None


def test_bad_values_are_refused(chipset: Chipset) -> None:
    for wrong in ({"bead": ""}, {"remaining": "text"}, {"branch": "a\nb"}, {"summary": 7}):
        with pytest.raises(Invalid):
            chipset.notes.write(ALPHA, **{"bead": "gt-1", "summary": "x"} | wrong)
