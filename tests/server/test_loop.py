"""The service runs in the quicker loop where it is installed, and in Python's own where it is not."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from postroom.app import app


async def the_loop(results: list[str]) -> None:
    results.append(type(asyncio.get_running_loop()).__module__)


def test_the_quicker_loop_is_taken_where_it_is_there() -> None:
    assert find_spec("uvloop")
    results: list[str] = []
    app.run(the_loop(results))
    assert results == ["uvloop"]


def test_pythons_own_does_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "is_installed", lambda module: module != "uvloop")
    results: list[str] = []
    app.run(the_loop(results))
    assert results == ["asyncio.unix_events"]
