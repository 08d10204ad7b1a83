"""A room in a file, and the same room again: in another process, as far as SQLite can tell."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.store.sqlite.store import SqliteStore
from tests.store.helpers import opened


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with opened(tmp_path / "room.db") as room:
        yield room


@pytest.fixture
def other(store: SqliteStore) -> Iterator[SqliteStore]:
    with opened(store.path) as room:
        yield room
