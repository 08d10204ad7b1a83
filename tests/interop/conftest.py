"""Programs of others are held against a post room without a rate: how fast they send is not what is tested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _no_rate() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POSTROOM_SENDER_RATE", "0")
        yield
