"""Every test of the command line has a desk of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
