"""Programs whose lines are not counted as covered: counting takes four times as long as a short program itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


def uncounted(environment: Mapping[str, str]) -> dict[str, str]:
    """What a program is told of its surroundings, without the wish to count its lines."""
    return {name: value for name, value in environment.items() if not name.startswith("COVERAGE")}


@contextmanager
def nothing_counted() -> Iterator[None]:
    """Processes that are started meanwhile do not count theirs."""
    wishes = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE")}
    for name in wishes:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(wishes)
