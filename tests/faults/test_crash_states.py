"""Whatever disk a crash leaves (tests/faults/crash.py), nothing that was promised is lost, and the room opens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.faults.checker import AFTER, check
from tests.faults.crash import (
    EVERYTHING,
    FOLDER_SYNC,
    LOSSES,
    Added,
    Disk,
    Made,
    Renamed,
    Step,
    Synced,
    after_each,
    crashes,
    lay_out,
    record,
    sample,
)
from tests.faults.kinds import EVERY_KIND, KINDS, Kind, param
from tests.faults.planting import BOOT
from tests.faults.quick import quick_folder

LETTERS = 40 if LONG else 6
MOST = 100_000 if LONG else 100

pytestmark = [
    pytest.mark.costly,
    pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed"),
]


def audit(kind: Kind, folder: Path, *arguments: str, most: int = MOST, boot: str = AFTER) -> tuple[int, list[str]]:
    """Watch a writer, crash it wherever it can be crashed: how often, and what was wrong afterwards."""
    room = folder / "room"
    room.mkdir()
    steps = record(room, folder / "trace", "--letters", str(LETTERS), "--kind", kind.name, *arguments)
    chosen = sample(crashes(steps), most)
    wrong = []
    with quick_folder() as quick:
        for crash, files, promises in after_each(steps, chosen):
            lay_out(files, room, quick / "left")
            wrong += [f"{crash}: {complaint}" for complaint in check(kind, quick / "left", promises, boot)]
    return len(chosen), wrong


def test_a_file_survives_under_the_name_that_its_folder_was_synced_with() -> None:
    disk = Disk()
    written: list[Step] = [Made("/r/new/1"), Added("/r/new/1", b"let"), Added("/r/new/1", b"ter")]
    moved: list[Step] = [Synced("/r/new"), Renamed("/r/new/1", "/r/done/1"), Synced("/r/done")]
    for step in [*written, Synced("/r/new/1"), *moved]:
        disk.take(step)
    assert {"/r/new/1": b"letter", "/r/done/1": b"letter"} == disk.left(LOSSES[EVERYTHING], FOLDER_SYNC)
    disk.take(Synced("/r/new"))
    assert {"/r/done/1": b"letter"} == disk.left(LOSSES[EVERYTHING], FOLDER_SYNC)


@pytest.mark.parametrize("log", [(), ("--small-log",)], ids=["in the log", "with checkpoints"])
def test_no_crash_loses_what_was_promised(kind: Kind, tmp_path: Path, log: tuple[str, ...]) -> None:
    tried, wrong = audit(kind, tmp_path, *log)

    assert wrong == []
    assert tried > MOST // 2 or LONG


def test_no_letter_is_lost_or_halved_where_a_disk_forgot_without_a_boot(kind: Kind, tmp_path: Path) -> None:
    """A disk that is taken away and comes back loses what was not synced, as in a crash; the boot is the same."""
    _, wrong = audit(kind, tmp_path, boot=BOOT, most=MOST // 2)

    assert wrong == []


@pytest.mark.parametrize(
    ("kind", "bug"), [param(kind, bug) for kind in KINDS if EVERY_KIND or not kind.like for bug in kind.late]
)
def test_the_audit_finds_a_store_that_syncs_too_late(kind: Kind, tmp_path: Path, bug: str) -> None:
    _, wrong = audit(kind, tmp_path, "--small-log", "--bug", bug, most=20)

    assert any(": lost " in complaint for complaint in wrong)
