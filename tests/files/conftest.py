"""Fixtures: every test of this folder that takes a layout runs once for each."""

from __future__ import annotations

import pytest

from postroom.store.files.layouts.base import Layout, layout_named
from postroom.store.files.layouts.paths import NAMES


@pytest.fixture(params=NAMES, scope="session")
def layout(request: pytest.FixtureRequest) -> Layout:
    return layout_named(request.param)
