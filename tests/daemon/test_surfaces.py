"""The script of every surface, told over the daemon's wires."""

from __future__ import annotations

from pathlib import Path

from tests.contract.surfaces import Library
from tests.contract.test_surfaces import comparable, transcript
from tests.contract.wire_surfaces import Socket


def test_the_socket_tells_the_same_as_the_library(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    expected = comparable(list(transcript(Library(tmp_path / "library"))))
    socket = Socket(tmp_path)
    told = comparable(list(transcript(socket)))
    socket.close()

    for number, (theirs, ours) in enumerate(zip(told, expected, strict=True)):
        assert ours == theirs, number
