"""Every test that asks for a room runs once for each store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rooms import FakeClock, RoomFactory, clock, factory, kind, room

__all__ = ["clock", "factory", "kind", "room"]


@pytest.fixture
def empty(tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest) -> Iterator[RoomFactory]:
    """A second store, of the kind a test names."""
    folder = tmp_path / "other"
    folder.mkdir()
    opened = RoomFactory(request.param, folder, clock)
    yield opened
    opened.store.close()
