"""The script of every surface, told over the daemon's wires."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.mcp_surface import Mcp
from tests.contract.surfaces import Library
from tests.contract.test_surfaces import comparable, transcript
from tests.contract.wire_surfaces import Http, Socket


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    return comparable(list(transcript(Library(tmp_path_factory.mktemp("library")))))


@pytest.mark.parametrize("surface", [Socket, Http, Mcp])
def test_every_wire_tells_the_same_as_the_library(
    surface: type[Socket | Http | Mcp], expected: list[Any], tmp_path: Path
) -> None:
    wire = surface(tmp_path)
    result = comparable(list(transcript(wire)))
    wire.close()

    for number, (theirs, ours) in enumerate(zip(result, expected, strict=True)):
        assert ours == theirs, number
