"""The ledger: what was tried and what was promised, outside the room, in the order in which it was written down.

All processes of a test append to one file. A line is one write, so a kill leaves it whole or absent, and it is
never written before what it says is true.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

import msgspec

Line: TypeAlias = tuple[str, ...]  # who, a word, and what it is about

NAME = "ledger"
_MODE = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC


class Ledger:
    """One writer's hand in the ledger of a folder."""

    def __init__(self, folder: Path, who: str) -> None:
        self.path = folder / NAME
        self._who = who
        self._file = os.open(self.path, _MODE, 0o600)

    def write(self, word: str, *about: str) -> None:
        """One line, handed to the system at once."""
        line = msgspec.json.encode((self._who, word, *about)) + b"\n"
        os.writev(self._file, [line])  # a call that no store makes: what is done to its writes is not done to ours

    def own(self) -> list[Line]:
        """What this writer wrote here in its earlier lives."""
        return [line for line in lines(self.path.parent) if line[0] == self._who]

    def close(self) -> None:
        os.close(self._file)


def lines(folder: Path) -> list[Line]:
    """All whole lines, the oldest first."""
    path = folder / NAME
    written = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [msgspec.json.decode(line, type=Line) for line in written]


def lines_with(written: list[Line], word: str) -> list[Line]:
    """What follows a word, in all lines that have it: `(about, ...)`."""
    return [line[2:] for line in written if line[1] == word]
