"""The power fails while three processes send: nothing that was promised is lost (tests/faults/power.py)."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import LONG
from tests.faults.checker import check
from tests.faults.kinds import SOUND, Kind
from tests.faults.power import PowerCut, disk, why_not

CUTS = 10 if LONG else 1
WRITERS = 3
ENOUGH = 600 if LONG else 150  # promises before the lights go out
TOO_FEW = 90  # for a checkpoint, which would sync them
PATIENCE = 60.0
pytestmark = pytest.mark.costly


@pytest.fixture(scope="module", params=["ext4", "xfs"])
def file_system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    kind: str = request.param
    if kind == "xfs" and not LONG:
        pytest.skip("xfs is for the long form")
    refused = why_not(kind, tmp_path_factory.mktemp("trial"))
    if refused:
        pytest.skip(refused)
    return kind


def send_until_the_cut(kind: Kind, bug: str, room: Path, ledger: Path, power: PowerCut, enough: int) -> list[str]:
    """Start writers, wait until enough was promised, cut the power. All promises."""
    command = [sys.executable, "-m", "tests.faults.writer", str(room)]
    value = ["--kind", kind.name, "--bug", bug]
    with ledger.open("wb") as promises:
        writers = [
            subprocess.Popen([*command, f"writer{n}", *value], stdout=promises, stderr=subprocess.DEVNULL)
            for n in range(WRITERS)
        ]
        try:
            end = time.monotonic() + PATIENCE
            while ledger.read_bytes().count(b"\n") < enough and time.monotonic() < end:
                writers[0].poll()
                time.sleep(0.005)
            power.cut()
        finally:
            for writer in writers:
                writer.kill()
            for writer in writers:
                writer.wait(PATIENCE)
    return ledger.read_text().split("\n")[:-1]


def audit(kind: Kind, file_system: str, folder: Path, bug: str = SOUND, enough: int = ENOUGH) -> list[str]:
    """One power cut, and what is wrong after it."""
    folder.mkdir()
    with disk(file_system, folder) as power:
        room = power.root / "room"
        room.mkdir(mode=0o700)
        subprocess.run(["sync", "-f", str(power.root)], check=True, timeout=PATIENCE)
        promises = send_until_the_cut(kind, bug, room, folder / "ledger", power, enough)
        power.switch_on_again()
        assert len(promises) >= enough
        return check(kind, room, promises)


def test_a_power_cut_loses_nothing_promised(kind: Kind, file_system: str, tmp_path: Path) -> None:
    for number in range(CUTS):
        assert audit(kind, file_system, tmp_path / str(number)) == []


def test_the_audit_finds_a_store_that_does_not_sync(kind: Kind, file_system: str, tmp_path: Path) -> None:
    """So few letters that nothing else has synced them: all of them are still to be written."""
    wrong = audit(kind, file_system, tmp_path / "cut", "unsynced", enough=TOO_FEW)

    assert any(complaint.startswith("lost ") for complaint in wrong)
