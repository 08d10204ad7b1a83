"""Every fault test runs over every kind of store; and a run in which a whole file was skipped fails."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.kinds import EVERY_KIND, KINDS, param

MUST_RUN = (
    "POSTROOM_FAULTS_MUST_RUN"  # set by tools/check.py and `make faults`: skipping a whole file is no success
)
OF_THE_SUITE = "test_audit.py"  # the suite's test of itself, which proves nothing about a store
OF_POWER = "test_power_cut.py"  # needs what no package can bring
LOOPS = Path("/dev/loop-control")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for a kind runs over all; a costly one, in the short form, over one of those alike."""
    if "kind" not in metafunc.fixturenames or _brings_kinds(metafunc):
        return
    is_short = not EVERY_KIND and metafunc.definition.get_closest_marker("costly") is not None
    metafunc.parametrize("kind", [param(kind) for kind in KINDS if not (is_short and kind.like)])


def _brings_kinds(metafunc: pytest.Metafunc) -> bool:
    return any("kind" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))


def excuse(file: str) -> str:
    """Why all tests of this file may be skipped here, or nothing."""
    if file == OF_POWER and (os.geteuid() != 0 or not LOOPS.exists()):
        return "a power cut needs root and loop devices"
    return ""


def untested(passed: set[str], skipped: set[str], excused: Callable[[str], str] = excuse) -> list[str]:
    """Test files in which all was skipped, though this machine has, or could be given, what they need."""
    of_stores = passed - {OF_THE_SUITE}
    files = [file for file in sorted(skipped - passed) if not excused(file)]
    return files or ([] if of_stores else ["everything"])


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Under xdist the process that hands out the tests sees all of their outcomes, and it decides."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    is_worker = hasattr(session.config, "workerinput")
    if is_worker or reporter is None or os.environ.get(MUST_RUN) != "1":
        return
    passed, skipped = (
        {Path(report.nodeid.partition("::")[0]).name for report in reporter.stats.get(outcome, [])}
        for outcome in ("passed", "skipped")
    )
    for file in untested(passed, skipped) if exitstatus == 0 else ():
        reporter.write_line(f"skipped as a whole: {file}: nothing is proven", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
