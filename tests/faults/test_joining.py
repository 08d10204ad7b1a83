"""A store joins by one line: what it must bring is said here, and no test knows more of it than that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.contract.stores import STORES
from tests.coverage import uncounted
from tests.faults.kinds import GUEST, KINDS, OURS, OWN_BUGS, Kind

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
OF_ONE_STORE = {
    "kinds.py",
    "guest.py",
    "files_bugs.py",
    "files_room.py",
    "forgetful_daemon.py",
    "sqlite_bugs.py",
    "sqlite_room.py",
    "test_failing_disk.py",
    "test_read_only.py",
    "test_young_rooms.py",
    Path(__file__).name,
}
A_FEW = (  # in one process and in several, with twins of its own and with those of any store
    "test_audit.py",
    "test_clocks.py",
    "test_damage.py::test_the_audit_finds_a_store_that_does_not_look_at_its_sums",
    "test_kill_storm.py::test_the_audit_finds_a_planted_bug",
)


def test_every_store_that_outlives_its_process_is_tried() -> None:
    # A server is not our process: what breaks rooms on PostgreSQL stands in tests/postgres/test_faults.py.
    assert [kind.name for kind in STORES if kind.lasts and kind.name != "postgres"] == [kind.name for kind in OURS]


def test_a_kind_brings_the_bugs_that_only_it_can_have(kind: Kind) -> None:
    if_it_can = {"unindexed": kind.steps}
    needed = OWN_BUGS | {*kind.late} | {bug for bug, can in if_it_can.items() if can}
    assert [] == sorted(needed - kind.own_bugs.keys())


def test_nothing_else_knows_one_store_from_another() -> None:
    others = [file for file in HERE.glob("*.py") if file.name not in OF_ONE_STORE]
    assert [] == [file.name for file in others if any(k.name in file.read_text().lower() for k in KINDS)]


def test_a_store_from_another_package_is_tried_like_ours() -> None:
    few = [str(HERE / test) for test in A_FEW]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "guest", *few]
    outside = {name: value for name, value in uncounted(os.environ).items() if not name.startswith("PYTEST_")}
    outside |= {GUEST: "tests.faults.guest:GUEST", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    ended = subprocess.run(
        command, cwd=ROOT, env=outside, capture_output=True, text=True, check=False, timeout=300
    )

    assert (0, True) == (ended.returncode, " passed" in ended.stdout), ended.stdout
