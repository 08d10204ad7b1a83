"""A state folder with a clock that moves when told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.chipset import Chipset
from tests.rooms import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def chipset(state: Path, clock: FakeClock) -> Iterator[Chipset]:
    with Chipset(state, clock=clock) as opened:
        yield opened
