"""Every test of the command line has a desk of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Desk

# Where the lines of each command are counted as covered. The other files run the same commands, at other terminals
# and with other words, without that weight.
MEASURED = {
    "test_commands",
    "test_errands",
    "test_finding",
    "test_health",
    "test_tasks",
    "test_top",
}


@pytest.fixture
def desk(tmp_path: Path, request: pytest.FixtureRequest) -> Desk:
    return Desk(tmp_path, measured=request.module.__name__.rpartition(".")[2] in MEASURED)
