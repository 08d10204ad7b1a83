"""The fault suite may skip what a machine cannot do, but no file as a whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.coverage import uncounted
from tests.faults.conftest import OF_POWER, OF_THE_SUITE, untested

ROOT = Path(__file__).parent.parent
SKIPPED = "import pytest\n\n\ndef test_skipped() -> None:\n    pytest.skip('no strace')\n"
PASSED = "def test_passed() -> None:\n    pass\n"


def run_suite(folder: Path, tests: str, processes: int, *, must_run: str) -> int:
    """A fault suite of these tests, another that needs nothing, and the one of itself; how it ended."""
    (folder / OF_THE_SUITE).write_text(PASSED)
    (folder / "conftest.py").write_text("from tests.faults.conftest import pytest_sessionfinish\n")
    (folder / "test_it.py").write_text(tests)
    (folder / "test_other.py").write_text(PASSED)
    without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    command = [sys.executable, "-m", "pytest", "-q", *without, "-n", str(processes), str(folder)]
    outside = {name: value for name, value in uncounted(os.environ).items() if not name.startswith("PYTEST_")}
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    outside |= {"PYTHONPATH": paths, "POSTROOM_FAULTS_MUST_RUN": must_run}
    return subprocess.run(command, cwd=folder, env=outside, check=False, timeout=60).returncode


@pytest.mark.parametrize(
    ("tests", "processes", "ends"), [(SKIPPED, 0, 1), (SKIPPED, 1, 1), (SKIPPED + PASSED, 2, 0)]
)
def test_a_suite_that_skipped_a_whole_file_fails(tmp_path: Path, tests: str, processes: int, ends: int) -> None:
    assert run_suite(tmp_path, tests, processes, must_run="1") == ends


def test_a_single_test_may_be_skipped(tmp_path: Path) -> None:
    assert run_suite(tmp_path, SKIPPED, 0, must_run="0") == 0


@pytest.mark.parametrize("file", ["test_nth_call.py", "test_crash_states.py", "test_straits.py", OF_POWER])
def test_no_file_may_be_skipped_as_a_whole_without_an_excuse(file: str) -> None:
    assert untested({"test_clocks.py"}, {file}, lambda _file: "") == [file]
    assert untested({"test_clocks.py", file}, {file}, lambda _file: "") == []
    assert untested({"test_clocks.py"}, {file}, lambda _file: "no root") == []
    assert untested({OF_THE_SUITE}, {file}, lambda _file: "no root") == ["everything"]


def test_only_a_power_cut_is_ever_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert untested({"test_clocks.py"}, {OF_POWER, "test_nth_call.py"}) == ["test_nth_call.py"]
