"""Every test of this folder runs once for each store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from postroom.store.protocol import Store
from tests.contract.stores import STORES, Kind
from tests.letters import BOOT, run_plans_twice

Reboot: TypeAlias = Callable[[str], Store]


@pytest.fixture(params=STORES, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def store(kind: Kind, tmp_path: Path) -> Iterator[Store]:
    opened = run_plans_twice(kind.open(tmp_path, BOOT))
    yield opened
    opened.close()


@pytest.fixture
def reboot(kind: Kind, store: Store, tmp_path: Path) -> Iterator[Reboot]:
    """Open the room again after a reboot of the machine, where a room outlives that."""
    opened = []

    def reopen(boot: str) -> Store:
        if not kind.lasts:
            return store
        store.close()
        opened.append(run_plans_twice(kind.open(tmp_path, boot)))
        return opened[-1]

    yield reopen
    for again in opened:
        again.close()
