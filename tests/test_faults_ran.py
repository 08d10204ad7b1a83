"""The fault suite may skip what a machine cannot do, but not everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.coverage import uncounted
from tests.faults.conftest import OF_THE_SUITE

ROOT = Path(__file__).parent.parent
SKIPPED = "import pytest\n\n\ndef test_skipped() -> None:\n    pytest.skip('no strace')\n"
PASSED = "def test_passed() -> None:\n    pass\n"


def run_suite(folder: Path, tests: str, processes: int, *, must_run: str) -> int:
    """A fault suite of these tests, and the one of itself that always passes; how it ended."""
    (folder / OF_THE_SUITE).write_text(PASSED)
    (folder / "conftest.py").write_text("from tests.faults.conftest import pytest_sessionfinish\n")
    (folder / "test_it.py").write_text(tests)
    without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    command = [sys.executable, "-m", "pytest", "-q", *without, "-n", str(processes), str(folder)]
    outside = {name: value for name, value in uncounted(os.environ).items() if not name.startswith("PYTEST_")}
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    outside |= {"PYTHONPATH": paths, "POSTROOM_FAULTS_MUST_RUN": must_run}
    return subprocess.run(command, cwd=folder, env=outside, check=False, timeout=60).returncode


@pytest.mark.parametrize(
    ("tests", "processes", "ends"), [(SKIPPED, 0, 1), (SKIPPED, 1, 1), (SKIPPED + PASSED, 2, 0)]
)
def test_a_suite_that_skipped_everything_fails(tmp_path: Path, tests: str, processes: int, ends: int) -> None:
    assert run_suite(tmp_path, tests, processes, must_run="1") == ends


def test_whoever_tries_a_single_test_may_skip_it(tmp_path: Path) -> None:
    assert run_suite(tmp_path, SKIPPED, 0, must_run="0") == 0
