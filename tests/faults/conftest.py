"""Every fault test runs over every kind of store; and a run that tested nothing fails."""

from __future__ import annotations

import os

import pytest

from tests.faults.kinds import KINDS, Kind

MUST_RUN = "POSTROOM_FAULTS_MUST_RUN"  # set by tools/check.py and `make faults`: skipping everything is no success
OF_THE_SUITE = "test_audit.py"  # the suite's test of itself, which proves nothing about a store


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Under xdist the process that hands out the tests sees all of their outcomes, and it decides."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    is_worker = hasattr(session.config, "workerinput")
    if is_worker or reporter is None or os.environ.get(MUST_RUN) != "1":
        return
    passed = [report for report in reporter.stats.get("passed", []) if OF_THE_SUITE not in report.nodeid]
    if exitstatus == 0 and not passed:
        reporter.write_line("all fault tests were skipped: nothing is proven", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
